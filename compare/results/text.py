"""Text of result tables: numbers, Markdown, aligned columns."""

import re
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from tabulate import tabulate

from compare.results.table import UNKNOWN, format_number
from data.text import visible


def describe_seeds(runs: Iterable[tuple[str, int]]) -> str:
    """Say how many seeds models have: "3 seeds", or "3 to 5 seeds" where they differ; "" without runs.

    Args:
        runs: label and seed of each.
    """
    counts = Counter(label for label, _ in set(runs)).values()
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f"{low} to {high} seeds" if low < high else f"{low} seed{'s' if low > 1 else ''}"


# Tables in Markdown, and in aligned columns for a terminal.


TAG = re.compile(r"(\\*)(<(?=[A-Za-z/!?]))")
"""The beginning of an HTML tag with the backslashes before it, which must be escaped too."""
TAG_OR_BAR = re.compile(r"(\\*)(<(?=[A-Za-z/!?])|\|)")
"""The same, or the end of a cell."""
LEAST_TEXT = 24
"""Characters that are left of the width for a text to be wrapped in them, not left out."""


def terminal_width() -> int | None:
    """Return the number of columns of the terminal that standard output is; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def list_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows in aligned columns, which fit into the terminal; without one they are whole."""
    return table_text(rows, width=terminal_width() or 10_000)


def table_text(
    rows: Sequence[Mapping[str, Any]], left: Collection[str] | None = None, width: int | None = None
) -> str:
    """Format rows as a Markdown table, or for a terminal of that ``width`` in aligned columns.

    Columns that do not fit into the width are left out, from the right; text in the first of these is wrapped
    where there is room for it.

    Args:
        rows: values by heading, printed by ``format_number``; the table has every heading of any row.
        left: headings of left-aligned columns; by default those with text in any row.
        width: characters of a line, such as ``terminal_width()``; None gives Markdown with all columns.

    Returns:
        The table without a newline at its end.
    """
    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    if left is None:
        left = {heading for row in rows for heading, value in row.items() if isinstance(value, str)}
    escape = _escape if width is None else _one_line
    lines = [headings, *([format_number(row.get(heading, UNKNOWN)) for heading in headings] for row in rows)]
    lines = [list(map(escape, line)) for line in lines]
    rest = None
    if width is not None:
        ends = list(accumulate(2 + max(map(len, column)) for column in zip(*lines, strict=True)))
        fitting = max(sum(end - 2 <= width for end in ends), 1)
        if fitting < len(headings) and headings[fitting] in left and width - ends[fitting - 1] >= LEAST_TEXT:
            rest = width - ends[fitting - 1]
            fitting += 1
        headings, lines = headings[:fitting], [line[:fitting] for line in lines]
    table: str = tabulate(
        lines,
        headers="firstrow" if width is None else (),  # tabulate makes columns with headers wider
        tablefmt="pipe" if width is None else "plain",
        disable_numparse=True,  # otherwise tabulate prints 38.10 as 38.1
        colalign=["left" if heading in left else "right" for heading in headings],
        maxcolwidths=[*[None] * (len(headings) - 1), rest],
    )
    return "\n".join(map(str.rstrip, table.splitlines()))


def escape_markdown(text: str, special: re.Pattern[str] = TAG) -> str:
    """Format text as one line: control characters and ``special`` are escaped, white space is one blank."""
    return special.sub(r"\1\1\\\2", _one_line(text))


def fill_page(template: Path, **values: object) -> str:
    """Fill in a Markdown page from its template, in which every text that is not ours is to be escaped."""
    from jinja2 import StrictUndefined, Template  # imported here: tables need no template

    text = template.read_text(encoding="utf-8")
    options: dict[str, Any] = {
        "trim_blocks": True,
        "keep_trailing_newline": True,
        "undefined": StrictUndefined,
    }
    page: str = Template(text, **options).render(values)
    return page


def _escape(text: str) -> str:
    """Format the text of a cell, which a ``|`` or a line break would end."""
    return escape_markdown(text, TAG_OR_BAR)


def _one_line(text: str) -> str:
    """Format text as one line without control characters."""
    return visible(" ".join(text.split()))
