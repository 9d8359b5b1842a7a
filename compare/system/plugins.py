"""Plug-ins that this process has imported: what each registers, and the version of its sources."""

import hashlib
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any


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

_REGISTRIES: dict[str, tuple[MutableMapping[Any, Any], dict[Any, Any]]] = {}
"""By kind of entry: the registry, and its content before any plug-in was imported."""


def track_registry(kind: str, registry: MutableMapping[Any, Any]) -> None:
    """Let plug-ins add entries to a registry; to be called when it holds the entries of this repository.

    Args:
        kind: what an entry is, such as "preset".
        registry: the registry, the same object for as long as the process lives.
    """
    _REGISTRIES[kind] = (registry, dict(registry))


class RegistryChanges:
    """What the import of a plug-in changes in the registries."""

    def __init__(self) -> None:
        """Remember what the registries hold now."""
        self._before = {kind: dict(registry) for kind, (registry, _) in _REGISTRIES.items()}

    def added(self) -> frozenset[tuple[str, Any]]:
        """Return kind and key of every entry that is new.

        Raises:
            ValueError: an entry that was there has been replaced or removed.
        """
        new: set[tuple[str, Any]] = set()
        for kind, (registry, original) in _REGISTRIES.items():
            before = self._before.get(kind, original)  # a registry may have been imported meanwhile
            for key, entry in before.items():
                if registry.get(key) is not entry:
                    name = getattr(key, "__name__", key)
                    raise ValueError(f"it replaces the {kind} {name!r}, which exists already: rename its own")
            new |= {(kind, key) for key in registry.keys() - before.keys()}
        return frozenset(new)

    def unclaimed(self) -> frozenset[tuple[str, Any]]:
        """Return kind and key of every entry that neither this repository nor a plug-in has registered."""
        claimed = {entry for plugin in PLUGINS.values() for entry in plugin.registered}
        entries = {
            (kind, key)
            for kind, (registry, original) in _REGISTRIES.items()
            for key in registry.keys() - original.keys()
        }
        return frozenset(entries - claimed)

    def undo(self) -> None:
        """Give the registries back what they held."""
        for kind, (registry, original) in _REGISTRIES.items():
            registry.clear()
            registry.update(self._before.get(kind, original))


def plugin_versions(modules: Iterable[str]) -> str:
    """List the versions of imported plug-ins: "a 1.0+0123456789ab, b 2.0+ba9876543210"; empty for none."""
    return ", ".join(sorted(PLUGINS[module].version for module in modules))


# Version of the package, and hashes of its sources and of those of plug-ins.


PACKAGES = ("compare", "data", "seq2seq", "transformer")
HASH_DIGITS = 12
"""Digits of a sha256 that a version shows."""


def package_version() -> str:
    """The version of the installed distribution; "source" if attnbench runs from a checkout alone."""
    return distribution_version("attnbench")


def distribution_version(name: str) -> str:
    """The version of an installed distribution; "source" if it is not installed as one."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "source"


def hash_sources(files: Iterable[tuple[Path, Path]]) -> str:
    """Hash source files, each given as (folder, path), with their paths below their folders."""
    digest = hashlib.sha256()
    for folder, path in files:
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:HASH_DIGITS]


@cache
def source_version() -> str:
    """The package's version and a hash of its sources, so that an edited checkout differs from a release."""
    root = Path(__file__).resolve().parents[2]
    files = [
        (root, path)
        for package in PACKAGES
        for path in sorted((root / package).rglob("*"))
        if path.suffix in (".py", ".tsv", ".toml")
    ]
    return f"{package_version()}+{hash_sources(files)}"


def code_version(plugins: Iterable[str] = ()) -> str:
    """``source_version``, and the version of each plug-in that took part.

    Args:
        plugins: names of the modules of plug-ins that this process has imported.
    """
    versions = plugin_versions(plugins)
    return f"{source_version()} with {versions}" if versions else source_version()
