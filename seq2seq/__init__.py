"""Recurrent encoder-decoders and language models, as PyTorch modules that need nothing but torch."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_MODULES = {
    alias.name: str(node.module)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""The module that defines each public name; ``__init__.pyi`` lists them, for type checkers too."""

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'seq2seq' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, for tab completion."""
    return sorted(__all__)
