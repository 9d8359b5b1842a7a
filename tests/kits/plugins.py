"""Plug-ins in tests: the template of examples/plugin and small modules, forgotten at the end of a test."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import compare.scoring
import compare.studies.study  # noqa: F401 (registries that plug-ins add to)
from compare.system.plugins import PLUGINS, remove_entries, unclaimed_entries
from tests.kits.paths import ROOT

EXAMPLE = ROOT / "examples" / "plugin"
"""The folder of the template; its module is attnbench_example."""
MODELS = """
[[models]]
preset = "conv-gru"
embedding_size = 16
hidden_size = 16

[[models]]
preset = "cosine-rnn"
embedding_size = 16
hidden_size = 16
"""
"""Its two presets, small."""


def forget() -> None:
    """Forget every plug-in, as a new process would."""
    roots = {name.partition(".")[0] for name in PLUGINS} | {"attnbench_example"}
    PLUGINS.clear()
    remove_entries(unclaimed_entries())
    for module in list(sys.modules):
        if module.partition(".")[0] in roots:
            del sys.modules[module]


@contextmanager
def importable(*folders: Path) -> Iterator[None]:
    """Find modules in ``folders`` too, and forget the plug-ins at the end."""
    path = list(sys.path)
    sys.path[:0] = [str(folder) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = path
        forget()


def plugin_toml(tiny_toml: Path, plugins: str = '["attnbench_example"]', models: str = MODELS) -> str:
    """Return the tiny experiment with other models, and few updates."""
    head = tiny_toml.read_text().split("[[models]]")[0]
    for line, short in (("max_updates = 90", "max_updates = 6"), ("valid_every = 40", "valid_every = 3")):
        assert line in head
        head = head.replace(line, short)
    return f"plugins = {plugins}\n{head}{models}"
