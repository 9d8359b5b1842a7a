"""Plug-ins: modules of other packages, whose import registers what they add; versions of the sources.

A module calls ``register_preset``, ``register_family``, ``register_score``, ``register_metric`` or
``register_study`` when it is imported. The key ``plugins`` of an experiment's file names such modules, and
every command that reads the file, or the config.toml of a run, imports them first.
"""

import hashlib
import importlib
import sys
import tomllib
import traceback
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from compare.system.messages import abbreviate, first_line

PACKAGES = ("compare", "data", "seq2seq", "transformer")
HASH_DIGITS = 12
"""Digits of a sha256 that a version shows."""
VERSIONS: dict[str, str] = {}
"""Version of each plug-in that this process has imported, by module: "mypackage 1.0+0123456789ab"."""


def load_plugins(names: Iterable[str]) -> None:
    """Import plug-ins, and take the version of their sources.

    Args:
        names: names of modules, such as "mypackage".

    Raises:
        ValueError: a module that is not installed or cannot be imported.
    """
    for name in names:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(
                f"plugins must be names of modules, such as 'mypackage', found {abbreviate(name)}"
            )
        if name not in VERSIONS:
            VERSIONS[name] = _import(name)


def _import(name: str) -> str:
    """Import a module, and return the version of its package."""
    root = name.partition(".")[0]
    try:
        module = importlib.import_module(name)
        file = sys.modules[root].__file__ or module.__file__  # a namespace package has no file
        return f"{root} {package_version(root)}+{_hash_package(file)}"
    except Exception as error:
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        problem = f"{kind}{first_line(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name == root:
            problem = "it is not installed here: install it, or put its folder on PYTHONPATH"
        line = user_line(error)
        raise ValueError(
            f"plug-in {name!r} cannot be used: {problem}{f' ({line})' if line else ''}"
        ) from error


def plugin_problem(folder: Path) -> str:
    """Import the plug-ins that config.toml of a run names; return why that is impossible, "" if it is not."""
    try:
        names = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8")).get("plugins", [])
    except (OSError, ValueError, RecursionError):
        return ""  # whoever needs its settings reads it too, and says what is wrong
    try:
        load_plugins(names)
    except ValueError as error:
        return str(error)
    return ""


def is_of_plugin(part: Any) -> bool:
    """Return whether a class or function is of a plug-in or another program, not of this repository."""
    return part.__module__.partition(".")[0] not in PACKAGES


def user_line(error: BaseException) -> str:
    """Return "FILE:LINE" of the innermost call of an error that is not in our code, Python's or torch's."""
    ours = {*PACKAGES, "torch", *sys.stdlib_module_names}
    lines = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in ours
    ]
    return lines[-1] if lines else ""


# Version of the package, and hashes of its sources and of those of plug-ins.


def package_version(name: str = "attnbench") -> str:
    """The version of an installed distribution; "source" if it runs from a checkout alone."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "source"


def _hash_package(file: str | None) -> str:
    """Hash the sources of a package, given its ``__init__.py``, or the one file of a module."""
    path = Path(str(file))
    files = path.parent.rglob("*.py") if path.name == "__init__.py" else [path]
    return _hash_files(path.parent, files)


def _hash_files(root: Path, files: Iterable[Path]) -> str:
    """Hash files with their paths below ``root``; Git for Windows may have changed their line ends."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:HASH_DIGITS]


@cache
def source_version() -> str:
    """The package's version and a hash of its sources, so that an edited checkout differs from a release."""
    root = Path(__file__).resolve().parents[2]
    files = [
        path
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in (".py", ".tsv", ".toml")
    ]
    return f"{package_version()}+{_hash_files(root, files)}"


def code_version(plugins: Iterable[str] = ()) -> str:
    """``source_version``, and the version of each plug-in that took part.

    Args:
        plugins: names of the modules of plug-ins that this process has imported.
    """
    versions = ", ".join(sorted(VERSIONS[module] for module in plugins))
    return f"{source_version()} with {versions}" if versions else source_version()
