"""The comparison: trains, decodes, scores and times every model alike."""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compare.results.store import load_results
    from compare.results.trained_model import load_model

__all__ = ["load_model", "load_results"]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # print nothing unless logging is configured


def __getattr__(name: str) -> Any:
    """Import what is asked for only then: ``attnbench --help`` must not wait for torch or pandas."""
    if name == "load_results":
        from compare.results.store import load_results

        return load_results
    if name == "load_model":
        from compare.results.trained_model import load_model

        return load_model
    raise AttributeError(f"module 'compare' has no attribute {name!r}")
