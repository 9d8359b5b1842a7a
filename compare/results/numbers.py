"""Numbers as text for tables and messages."""

import math
from typing import Any

UNKNOWN = "–"
"""Text for an unknown value."""


def format_number(value: Any, digits: int = 4) -> str:
    """Format a value for a table.

    Args:
        value: an integer is printed in full, None and non-finite floats as ``UNKNOWN``, text as it is.
        digits: significant digits of a float; its integer part is always printed in full, up to 1e15.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return UNKNOWN
        text = f"{value:.{digits}g}"
        return f"{value:,.0f}" if 10**digits <= abs(float(text)) and abs(value) < 1e15 else text
    return UNKNOWN if value is None else str(value)
