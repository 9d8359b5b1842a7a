"""What to say of a name that does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches


def hint(name: str, known: Iterable[str], cutoff: float = 0.4) -> str:
    """The nearest of the ``known`` names, or all of them where none is near."""
    names = list(known)
    close = get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
