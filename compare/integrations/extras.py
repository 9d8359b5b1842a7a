"""Libraries that are installed only on demand."""

from importlib import import_module
from types import ModuleType


def import_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Import a library of an optional extra.

    Args:
        module: its name, such as "huggingface_hub".
        extra: the extra of attnbench that installs it.
        purpose: what needs it, for the message.

    Raises:
        ValueError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise ValueError(
            f"{purpose} needs {module}, which is not installed: pip install 'attnbench[{extra}]'"
        ) from None
