"""Bounds of settings, with errors that name setting, bound and value."""

from difflib import get_close_matches

from compare.system.hints import MAX_COMPARED, abbreviate


def at_least(bound: int, **values: float) -> None:
    """Raise ValueError if a value is below ``bound``; the keywords are the names of settings."""
    for name, value in values.items():
        if value < bound:
            raise ValueError(f"{name} must be at least {bound}, found {value}")


def at_most(bound: int, **values: float) -> None:
    """Raise ValueError if a value is above ``bound``; the keywords are the names of settings."""
    for name, value in values.items():
        if value > bound:
            raise ValueError(f"{name} must be at most {bound:,}, found {value:,}")


def one_of(**choices: tuple[str, tuple[str, ...]]) -> None:
    """Raise ValueError if a value is none of those known, and name the nearest.

    Args:
        choices: the value and the known ones, by the name of the setting.
    """
    for name, (value, known) in choices.items():
        if value not in known:
            close = get_close_matches(value[:MAX_COMPARED], known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"{name} must be one of {', '.join(known)}, found {abbreviate(value)}{hint}")
