"""Use of fast.py, which may be deleted: then each function is what stands beside its use, slower."""

from collections.abc import Callable
from typing import Any, TypeVar

try:
    import seq2seq.fast as fast
except ModuleNotFoundError:
    fast = None  # type: ignore[assignment]

Plain = TypeVar("Plain", bound=Callable[..., Any])


def use_fast(plain: Plain) -> Plain:
    """Return the function or class of the same name in fast.py, or ``plain`` itself without that file."""
    return getattr(fast, plain.__name__, plain)
