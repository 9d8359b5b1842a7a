"""Plug-ins in tests: the template of examples/plugin and small modules, forgotten at the end of a test."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compare.models.presets import PRESETS
from compare.models.registry import FAMILIES
from compare.scoring import METRICS
from compare.studies.study import STUDIES
from compare.system.plugins import VERSIONS
from seq2seq.scores import SCORES
from tests.kits.common import ROOT

EXAMPLE = ROOT / "examples" / "plugin"
"""The folder of the template; its module is attnbench_example."""


@contextmanager
def importable(*folders: Path) -> Iterator[None]:
    """Find modules in ``folders`` too, and forget the plug-ins at the end, as a new process would."""
    path, modules = list(sys.path), set(sys.modules)
    registries: list[tuple[Any, Any]] = [
        (registry, dict(registry)) for registry in (PRESETS, FAMILIES, METRICS, STUDIES, SCORES)
    ]
    sys.path[:0] = [str(folder) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = path
        VERSIONS.clear()
        for registry, entries in registries:
            registry.clear()
            registry.update(entries)
        for name in set(sys.modules) - modules:
            if any(
                str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder))
                for folder in folders
            ):
                del sys.modules[name]
