"""What to say of a name that does not exist, and how much of a value."""

from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr
from typing import Any

MAX_COMPARED = 200
"""Characters of a name that are compared: the time grows with their square."""
SHOWN = Repr()
SHOWN.maxstring = SHOWN.maxother = 80


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.4) -> str:
    """The nearest of the ``known`` names, or all of them where none is near."""
    names = list(known)
    close = get_close_matches(name[:MAX_COMPARED], names, n=1, cutoff=cutoff)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"


def abbreviate(value: Any) -> str:
    """``value`` as Python writes it, cut where it would fill the screen: a file may hold a megabyte there."""
    return SHOWN.repr(value)


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its class where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
