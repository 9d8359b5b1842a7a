"""Parts of messages: hints, shortened values, the program's name, errors that mean the memory is short."""

import os
import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from shlex import quote
from shutil import which
from typing import Any

MAX_COMPARED = 200
"""Characters of a name that are compared; the time grows with their square."""
MAX_NAMED = 8
"""Folders that a message lists."""
SHORT_REPR = Repr()
SHORT_REPR.maxstring = SHORT_REPR.maxother = 80


def did_you_mean(name: str, valid: Iterable[str], cutoff: float = 0.4) -> str:
    """Suggest the ``valid`` name nearest to ``name``, or list all of them if none is near."""
    names = list(valid)
    near = nearest(name, names, cutoff)
    return f"did you mean {near!r}?" if near is not None else f"known are {', '.join(names)}"


def nearest(name: str, valid: Iterable[str], cutoff: float = 0.4) -> str | None:
    """Return the ``valid`` name nearest to ``name``; None if the similarity of none reaches ``cutoff``."""
    return next(iter(get_close_matches(name[:MAX_COMPARED], list(valid), n=1, cutoff=cutoff)), None)


def ensure_folder(folder: Path) -> None:
    """Raise ValueError if there is no such folder; the message names those that are there."""
    if folder.is_dir():
        return
    parent = folder.parent
    while not parent.is_dir():
        parent = parent.parent
    names = sorted(path.name for path in parent.glob("[!.]*/"))
    hint = nearest(folder.name, names, 0.6) or ", ".join(names[:MAX_NAMED]) or "no folders"
    raise ValueError(f"{folder}: no such folder; {parent} has {hint}")


def abbreviate(value: Any) -> str:
    """Return the repr of ``value``, cut to about 80 characters: a file may hold a megabyte there."""
    return SHORT_REPR.repr(value)


def program_name() -> str:
    """Return the command that started this program, as a shell finds it; from Python "attnbench"."""
    path, name, module = sys.argv[0], "attnbench", ""
    if Path(path).parts[-2:] == ("compare", "__main__.py"):
        path, name, module = sys.executable, Path(sys.executable).name, " -m compare"
    elif Path(path).stem != name:
        return name
    is_on_path = which(name) == os.path.abspath(path)
    return (name if is_on_path else quote(os.path.relpath(path))) + module


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its class if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def explain(error: Exception) -> str:
    """Return the message of an error as one sentence in one line."""
    text = " ".join(str(error).split())
    return text if text.endswith((".", "?")) else f"{text}."


NO_MEMORY = "out of memory|allocate memory|could not create a primitive|bad alloc|bad_alloc|failed to map"
"""Parts of messages of torch's allocators, oneDNN, C++ and the loader of libraries when memory is short."""


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error says that memory is short; but for MemoryError only the message shows this."""
    is_short = isinstance(error, RuntimeError | ImportError) and re.search(NO_MEMORY, str(error)) is not None
    return isinstance(error, MemoryError) or is_short
