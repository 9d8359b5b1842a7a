"""Plug-ins of an experiment: modules from outside this repository, whose import registers what they add.

A module calls ``register_preset``, ``register_family``, ``register_score``, ``register_metric`` or
``register_study`` when it is imported. The key ``plugins`` of an experiment's file names such modules, and
every command that reads the file, or the config.toml of a run, imports them first.
"""

import importlib
import logging
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from compare.config.toml import read_toml
from compare.system.messages import abbreviate, first_line
from compare.system.plugins import (
    PACKAGES,
    PLUGINS,
    Plugin,
    RegistryChanges,
    distribution_version,
    hash_sources,
)

SUFFIXES = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)
"""Files that are hashed."""


def load_plugins(names: Iterable[str], context: str = "plugins") -> None:
    """Import plug-ins; one that is imported already stays as it is.

    Args:
        names: names of modules, such as "mypackage".
        context: what error messages begin with.

    Raises:
        ValueError: a module that is not installed, cannot be imported, registers nothing, or registers a
            name that is taken. Nothing of it remains registered.
    """
    for name in names:
        if name not in PLUGINS:
            PLUGINS[name] = _import(name, context)


def read_plugins(value: Any, context: str) -> tuple[str, ...]:
    """Check the value of the key ``plugins``: a list of names of modules, or one name.

    Raises:
        ValueError: another type, or a text that is no name of a module.
    """
    names = value if isinstance(value, list) else [value]
    for name in names:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(
                f"{context}: plugins must be names of modules, such as 'mypackage', found {abbreviate(name)}"
            )
    return tuple(dict.fromkeys(names))


def load_plugins_of_run(folder: Path) -> None:
    """Import the plug-ins that config.toml of a run names; a file that cannot be read names none.

    Raises:
        ValueError: as ``load_plugins``.
    """
    path = folder / "config.toml"
    try:
        names = read_plugins(read_toml(path).get("plugins", []), str(path))
    except (OSError, ValueError):
        return  # whoever needs its settings reads it too, and says what is wrong
    load_plugins(names, str(path))


def plugin_problem(folder: Path) -> str:
    """Import the plug-ins of a run; return why that is impossible, "" if it is not.

    Args:
        folder: the folder of the run.
    """
    try:
        load_plugins_of_run(folder)
    except ValueError as error:
        return str(error).removeprefix(f"{folder / 'config.toml'}: ")
    return ""


def _import(name: str, context: str) -> Plugin:
    """Import a plug-in, or leave everything as it was; see ``load_plugins``."""
    root = name.partition(".")[0]
    if root in (*PACKAGES, "torch") or root in sys.stdlib_module_names:
        raise ValueError(f"{context}: {name!r} is no plug-in: it belongs to Python, torch or attnbench")
    importlib.import_module("compare.models.presets")  # so that its registries are known
    loaded, changes = set(sys.modules), RegistryChanges()
    importlib.invalidate_caches()
    try:
        if root not in sys.modules and find_spec(root) is None:
            raise ValueError(f"it is not installed here: {_remedy(root)}")
        importlib.import_module(name)
        # The program itself may have imported it before, whose entries are then those of no other plug-in.
        registered = changes.added() if name not in loaded else changes.unclaimed()
        if not registered:
            raise ValueError("it registers no preset, family, score, metric or study (see docs/plugins.md)")
        version = f"{root} {distribution_version(root)}+{hash_sources(_sources(sys.modules[root]))}"
    except (Exception, SystemExit) as error:
        changes.undo()
        for module in set(sys.modules) - loaded:
            if f"{module}.".startswith(f"{root}."):  # so that a second attempt imports all of it again
                del sys.modules[module]
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        text = first_line(error) if isinstance(error, Exception) else f"status {error.code!r}"
        raise ValueError(f"{context}: plug-in {name!r} cannot be used: {kind}{text}") from error
    return Plugin(module=name, version=version, registered=registered)


def _remedy(root: str) -> str:
    """Say how a module can be found; the command ``attnbench`` does not look into the working directory."""
    if (Path(root) / "__init__.py").is_file() or Path(f"{root}.py").is_file():
        return f"it is in the working directory, so set PYTHONPATH={Path.cwd()}, or install it"
    return "install it, or put its folder on PYTHONPATH"


def _sources(package: ModuleType) -> Iterator[tuple[Path, Path]]:
    """Yield the files that a package may run, or the one file of a module, each with its folder."""
    folders = [Path(folder) for folder in getattr(package, "__path__", ())]
    if not folders and package.__file__:
        yield Path(package.__file__).parent, Path(package.__file__)
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES)):
            yield folder.parent, path


# Plug-ins that are installed and name themselves: entry points of the group ``attnbench.plugins``.


logger = logging.getLogger(__name__)

GROUP = "attnbench.plugins"
"""Group of the entry points; the value of each is a module."""


def load_installed_plugins() -> list[str]:
    """Import every installed plug-in; one that cannot be used is left out with a warning.

    Returns:
        The names of the modules that are imported now.
    """
    modules = []
    for module in sorted({point.module for point in entry_points(group=GROUP)}):
        try:
            load_plugins([module], "installed")
            modules.append(module)
        except ValueError as error:  # a command that does not need it works without it
            logger.warning(f"left out: {error}")
    return modules
