"""attnbench from Python: run experiments, load models and results, translate, score, and register extensions.

``docs/api.md`` describes each function with an example. Names are imported when they are first used, so
``import compare`` needs neither torch nor pandas.
"""

import os
import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != os.path.abspath(f"{__file__}/../.."):
    del sys.path[0]  # ``python -m compare``: the working directory may have modules of any name

import ast
import logging
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_MODULES = {
    alias.name: str(node.module)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""The module of each public name, as ``__init__.pyi`` lists them for type checkers."""

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from compare.system.plugins import package_version

        return package_version()
    if name not in _MODULES:
        raise AttributeError(f"module 'compare' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _refuse_hidden_packages() -> None:
    """Raise ImportError if a module of the user hides one of our packages."""
    for name in ("data", "seq2seq", "transformer"):
        ours = Path(__file__).resolve().parent.parent / name / "__init__.py"
        spec = find_spec(name)
        imported = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if imported != ours:
            raise ImportError(
                f"attnbench's package {name!r} ({ours.parent}) is hidden by "
                f"{imported or 'a folder without __init__.py'}: "
                "rename that file, or start Python in another folder"
            )


_refuse_hidden_packages()
logging.getLogger(__name__).addHandler(logging.NullHandler())  # no output unless logging is configured
