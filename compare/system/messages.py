"""Settings that people give, and the messages about wrong ones and other errors.

A section of an experiment is a frozen dataclass whose fields are made by ``setting``, of which every list is
derived. The annotation has the type and the bounds, as ``msgspec`` reads them; ``Section`` holds the values
against them.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import field, fields
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

MAX_COMPARED = 200
"""Characters of a name that are compared; the time grows with their square."""
MAX_NAMED = 8
"""Folders that a message lists."""
SHORT_REPR = Repr()
SHORT_REPR.maxstring = SHORT_REPR.maxother = 80


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.4) -> str:
    """Suggest the ``known`` name nearest to ``name``, or list all of them if none is near."""
    names = list(known)
    near = nearest(name, names, cutoff)
    return f"did you mean {near!r}?" if near is not None else f"known are {', '.join(names)}"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.4) -> str | None:
    """Return the ``known`` name nearest to ``name``; None if the similarity of none reaches ``cutoff``."""
    return next(iter(get_close_matches(name[:MAX_COMPARED], list(known), n=1, cutoff=cutoff)), None)


def ensure_folder(folder: Path) -> None:
    """Raise ValueError if there is no such folder; the message names those that are there."""
    if folder.is_dir():
        return
    place = folder.parent
    while not place.is_dir():
        place = place.parent
    names = sorted(path.name for path in place.glob("*/"))
    hint = nearest(folder.name, names, 0.6) or ", ".join(names[:MAX_NAMED]) or "no folders"
    raise ValueError(f"{folder}: no such folder; {place} has {hint}")


def abbreviate(value: Any) -> str:
    """Return the repr of ``value``, cut to about 80 characters: a file may hold a megabyte there."""
    return SHORT_REPR.repr(value)


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


# Declaration of a setting: its type with bounds, its default and its help.


Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, lt=1)]
"""A probability, or a decay: at least 0 and below 1."""


def setting(default: Any, about: str, *, shared: bool = True) -> Any:
    """Declare a setting as a field of a dataclass; the annotation has its type and bounds.

    Args:
        default: value of a file that does not name it; one that means "as before" changes no hash.
        about: help, as Markdown, for docs/settings.md.
        shared: whether all rows of a table must have the same value; a setting that changes no score need
            not, nor does the seed.
    """
    return field(default=default, metadata={"about": about, "shared": shared})


class Section:
    """Base class of frozen dataclasses of settings: each value is checked, and converted to its type."""

    def __post_init__(self) -> None:
        """Reject values of another type or out of bounds."""
        for each in fields(self):  # type: ignore[arg-type]  # a base class of dataclasses alone
            value = convert_setting(getattr(self, each.name), each.type, each.name)
            object.__setattr__(self, each.name, value)


def convert_setting(value: Any, kind: Any, name: str) -> Any:
    """Return ``value`` as the type ``kind``; an int is accepted as a float, a bool not as an int.

    For a tuple, a list is accepted, or a single value, which is a list of one.

    Args:
        value: the value, as TOML gives it.
        kind: the annotation of the field.
        name: what the error message begins with.

    Raises:
        ValueError: a value of another type, out of bounds or not finite, or none of the choices.
    """
    base = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(base) is tuple and not isinstance(value, list | tuple):
        value = [value]
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        parts = [part for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
        if choices := [str(choice) for part in parts for choice in get_args(part)]:
            near = nearest(value, choices, 0.6) if isinstance(value, str) else None
            expected, hint = f"one of {', '.join(choices)}", f"; did you mean {near!r}?" if near else ""
        else:
            expected, hint = re.sub(r"Expected |, got .*| - at .*|`| \| null", "", str(error)), ""
        raise ValueError(f"{name} must be {expected}, found {abbreviate(value)}{hint}") from None
    numbers = converted if isinstance(converted, tuple) else (converted,)
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        raise ValueError(f"{name} must be finite, found {value}")
    return converted
