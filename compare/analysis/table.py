"""Tables of an analysis: rows by column name, and how they are shown to people."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]
"""One row of a table by column name, units in the names."""


class Table(NamedTuple):
    """Figures under a caption."""

    caption: str
    rows: Sequence[Row]


def markdown(rows: Sequence[Row]) -> str:
    """``rows`` as a Markdown table, numbers to the right."""
    import pandas as pd  # imported here: many a module that names a Row draws no table

    cells = [{name: format_number(value).replace("|", r"\|") for name, value in row.items()} for row in rows]
    words = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    frame = pd.DataFrame(cells).fillna("–")
    align = ["left" if name in words else "right" for name in frame.columns]
    # Left alone, tabulate would round what is rounded already.
    return str(frame.to_markdown(index=False, tablefmt="pipe", disable_numparse=True, colalign=align))


def format_number(value: Any) -> str:
    """A cell of a table: four digits of a float, all of an integer, a dash for what is not known."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "–"
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return "–" if value is None else str(value)
