"""Plug-ins: modules of other packages, whose import registers what they add; versions of the sources.

A module calls ``register_preset``, ``register_family``, ``register_score``, ``register_metric`` or
``register_study`` when it is imported. The key ``plugins`` of an experiment's file names such modules, and
every command that reads the file, or the config.toml of a run, imports them first.
"""

import hashlib
import importlib
import logging
import sys
import tomllib
import traceback
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compare.system.messages import abbreviate, first_line

logger = logging.getLogger(__name__)

PACKAGES = ("compare", "data", "seq2seq", "transformer")
GROUP = "attnbench.plugins"
"""Group of the entry points by which installed plug-ins name themselves; the value of each is a module."""
HASH_DIGITS = 12
"""Digits of a sha256 that a version shows."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A package from outside this repository that registers models, scores, metrics or studies."""

    module: str
    """Name of the module whose import registers them."""
    version: str
    """Name and version of the package, and a hash of its sources: "mypackage 1.0+0123456789ab"."""
    registered: frozenset[tuple[str, Any]]
    """Kind and key of each entry, such as ("preset", "mine")."""


PLUGINS: dict[str, Plugin] = {}
"""The plug-ins of this process by the name of their module."""

OWNERS = ("compare.models.presets", "compare.scoring", "compare.studies.study")
"""The modules that declare the registries, which must be complete before a plug-in adds to one."""
_REGISTRIES: dict[str, tuple[MutableMapping[Any, Any], frozenset[Any]]] = {}
"""By kind of entry: the registry, and the keys of this repository."""


def track_registry(kind: str, registry: MutableMapping[Any, Any]) -> None:
    """Let plug-ins add entries to a registry; to be called when it holds the entries of this repository.

    Args:
        kind: what an entry is, such as "preset".
        registry: the registry, the same object for as long as the process lives.
    """
    _REGISTRIES[kind] = (registry, frozenset(registry))


def unclaimed_entries() -> frozenset[tuple[str, Any]]:
    """Return kind and key of every entry that neither this repository nor a known plug-in has registered."""
    entries = {
        (kind, key) for kind, (registry, ours) in _REGISTRIES.items() for key in registry.keys() - ours
    }
    return frozenset(entries).difference(*(plugin.registered for plugin in PLUGINS.values()))


def is_of_plugin(kind: str, key: Any) -> bool:
    """Return whether an entry was registered by a plug-in or another program, not by this repository."""
    registry, ours = _REGISTRIES[kind]
    return key in registry and key not in ours


def user_line(error: BaseException) -> str:
    """Return "FILE:LINE" of the innermost call of an error that is not in our code, Python's or torch's."""
    lines = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not _is_known(str(frame.f_globals.get("__name__")))
    ]
    return lines[-1] if lines else ""


def _is_known(module: str) -> bool:
    root = module.partition(".")[0]
    return root in (*PACKAGES, "torch") or root in sys.stdlib_module_names


def remove_entries(entries: Iterable[tuple[str, Any]]) -> None:
    """Remove entries, each given as kind and key, from their registries."""
    for kind, key in entries:
        del _REGISTRIES[kind][0][key]


def load_plugins(names: Iterable[str]) -> None:
    """Import plug-ins; one that is imported already stays as it is.

    Args:
        names: names of modules, such as "mypackage".

    Raises:
        ValueError: a module that is not installed, cannot be imported, registers nothing, or registers a
            name that is taken. Nothing of it remains registered.
    """
    for name in names:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(
                f"plugins must be names of modules, such as 'mypackage', found {abbreviate(name)}"
            )
        if name not in PLUGINS:
            PLUGINS[name] = _import(name)


def load_installed_plugins() -> None:
    """Import every installed plug-in; one that cannot be used is left out with a warning."""
    for module in sorted({point.module for point in metadata.entry_points(group=GROUP)}):
        try:
            load_plugins([module])
        except ValueError as error:  # a command that does not need it works without it
            logger.warning(f"left out: {error}")


def plugin_problem(folder: Path) -> str:
    """Import the plug-ins that config.toml of a run names; return why that is impossible, "" if it is not."""
    try:
        names = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8")).get("plugins", [])
    except (OSError, ValueError):
        return ""  # whoever needs its settings reads it too, and says what is wrong
    try:
        load_plugins(names)
    except ValueError as error:
        return str(error)
    return ""


def _import(name: str) -> Plugin:
    """Import a plug-in, or leave everything as it was; see ``load_plugins``."""
    root = name.partition(".")[0]
    if _is_known(name):
        raise ValueError(f"{name!r} is no plug-in: it belongs to Python, torch or attnbench")
    for owner in OWNERS:  # else what a plug-in adds to the scores of seq2seq would be taken for ours
        importlib.import_module(owner)
    loaded, registered = set(sys.modules), unclaimed_entries()
    importlib.invalidate_caches()
    try:
        if root not in sys.modules and find_spec(root) is None:
            raise ValueError(f"it is not installed here: {_remedy(root)}")
        importlib.import_module(name)
        # If the program itself imported it before, it had registered its entries already.
        added = unclaimed_entries() - (registered if name not in loaded else frozenset())
        if not added:
            raise ValueError("it registers no preset, family, score, metric or study (see docs/plugins.md)")
        sources = sys.modules[root].__file__ or sys.modules[name].__file__  # of a namespace package, the part
        version = f"{root} {package_version(root)}+{_hash_package(sources)}"
    except (Exception, SystemExit) as error:
        remove_entries(unclaimed_entries() - registered)
        for module in set(sys.modules) - loaded:
            if f"{module}.".startswith(f"{root}."):  # so that a second attempt imports all of it again
                del sys.modules[module]
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        text = first_line(error) if isinstance(error, Exception) else f"status {error.code!r}"
        line = user_line(error)
        raise ValueError(
            f"plug-in {name!r} cannot be used: {kind}{text}{f' ({line})' if line else ''}"
        ) from error
    return Plugin(module=name, version=version, registered=added)


def _remedy(root: str) -> str:
    """Say how a module can be found; the command ``attnbench`` does not look into the working directory."""
    if (Path(root) / "__init__.py").is_file() or Path(f"{root}.py").is_file():
        return f"it is in the working directory, so set PYTHONPATH={Path.cwd()}, or install it"
    return "install it, or put its folder on PYTHONPATH"


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
    """Hash files with their paths below ``root``."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
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
    versions = ", ".join(sorted(PLUGINS[module].version for module in plugins))
    return f"{source_version()} with {versions}" if versions else source_version()
