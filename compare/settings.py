"""Declaration of settings as dataclass fields, and the check of their values.

The annotation of a field gives type and bounds, in the form that ``msgspec`` reads. Every list of settings is
derived from these fields.
"""

import math
import re
from dataclasses import field, fields
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from compare.system.messages import abbreviate, nearest

Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, lt=1)]
"""A probability, or a decay: at least 0 and below 1."""


def setting(default: Any, about: str, *, shared: bool = True) -> Any:
    """Declare a setting as a dataclass field.

    Args:
        default: value where a file does not name the setting. A new setting whose default means "as before"
            changes no hash.
        about: help text, in Markdown, for docs/settings.md.
        shared: whether all rows of a table must have the same value.
    """
    return field(default=default, metadata={"about": about, "shared": shared})


class Section:
    """Base class of frozen dataclasses of settings, which converts each value to its type."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value of another type or out of bounds."""
        for item in fields(self):  # type: ignore[arg-type]  # only dataclasses derive from this class
            value = convert_setting(getattr(self, item.name), item.type, item.name)
            object.__setattr__(self, item.name, value)


def convert_setting(value: Any, kind: Any, name: str) -> Any:
    """Convert a value from TOML to the type of its setting.

    An int is accepted as a float, but a bool is not accepted as an int. A tuple may be given as a list or as
    a single value.

    Args:
        value: the value, as TOML gives it.
        kind: the annotation of the field.
        name: name of the setting in error messages.

    Raises:
        ValueError: the value has another type, is out of bounds, not finite, or none of the choices.
    """
    base = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(base) is tuple and not isinstance(value, list | tuple):
        value = [value]
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        parts = [part for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
        if choices := [str(choice) for part in parts for choice in get_args(part)]:
            near = nearest(value, choices, 0.6) if isinstance(value, str) else None
            expected, hint = f"one of {', '.join(choices)}", f"; did you mean {near!r}?" if near else ""
        else:
            expected, hint = re.sub(r"Expected |, got .*| - at .*|`| \| null", "", str(error)), ""
        raise ValueError(f"{name} must be {expected}, found {abbreviate(value)}{hint}") from None
    numbers = converted if isinstance(converted, tuple) else (converted,)
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        raise ValueError(f"{name} must be finite, found {value}")
    return converted
