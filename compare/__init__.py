"""attnbench from Python: run experiments, load models and results, translate, score, and register extensions.

Everything a command does is a function here; ``docs/api.md`` describes each with an example. Names are
imported when they are first used, so ``import compare`` needs neither torch nor pandas.
"""

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
"""The module that defines each public name; ``__init__.pyi`` lists them, for type checkers too."""

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "__version__":
        from compare.system.plugins import package_version

        return package_version()
    if name not in _MODULES:
        raise AttributeError(f"module 'compare' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, for tab completion."""
    return sorted(__all__)


def _refuse_hidden_packages() -> None:
    """Fail with a clear message where a module of the user's own hides one of our packages.

    Raises:
        ImportError: naming the file that hides it.
    """
    for name in ("data", "seq2seq", "transformer"):
        ours = Path(__file__).resolve().parent.parent / name / "__init__.py"
        spec = find_spec(name)
        found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if found != ours:
            hiding = found or "a folder without __init__.py"
            raise ImportError(
                f"attnbench's package {name!r} ({ours.parent}) is hidden by {hiding}: "
                "rename that file, or start Python in another folder"
            )


_refuse_hidden_packages()
logging.getLogger(__name__).addHandler(logging.NullHandler())  # print nothing unless logging is configured
