"""Tables in Markdown."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from compare.results.numbers import UNKNOWN, format_number
from data.text.control_characters import visible

TAG = re.compile(r"(\\*)(<(?=[A-Za-z/!?]))")
"""The beginning of an HTML tag with the backslashes before it, which must be escaped too."""
TAG_OR_BAR = re.compile(r"(\\*)(<(?=[A-Za-z/!?])|\|)")
"""The same, or the end of a cell."""


def markdown_table(rows: Sequence[Mapping[str, Any]], left: Collection[str] | None = None) -> str:
    """Format rows as a Markdown table.

    Args:
        rows: values by heading, printed by ``format_number``; the table has every heading of any row.
        left: headings of left-aligned columns; by default those with text in any row.

    Returns:
        The table without a newline at its end.
    """
    import pandas as pd  # slow to import

    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    if left is None:
        left = {heading for row in rows for heading, value in row.items() if isinstance(value, str)}
    cells = [[_escape(format_number(row.get(heading, UNKNOWN))) for heading in headings] for row in rows]
    table: str = pd.DataFrame(cells, columns=list(map(_escape, headings))).to_markdown(
        index=False,
        tablefmt="pipe",
        disable_numparse=True,  # otherwise tabulate prints 38.10 as 38.1
        colalign=["left" if heading in left else "right" for heading in headings],
    )
    return table


def escape_markdown(text: str, special: re.Pattern[str] = TAG) -> str:
    """Format text as one line: control characters and ``special`` are escaped, white space is one blank."""
    return special.sub(r"\1\1\\\2", visible(" ".join(text.split())))


def _escape(text: str) -> str:
    """Format the text of a cell, which a ``|`` or a line break would end."""
    return escape_markdown(text, TAG_OR_BAR)
