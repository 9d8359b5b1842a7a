"""Renderers of a table for a terminal, as Markdown and as LaTeX; html/template.html.j2 has that for HTML."""

import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from compare.results.formatting import Table, listing
from data.text import visible

if TYPE_CHECKING:
    import pandas as pd

TAG = re.compile(r"(\\*)(<(?=[A-Za-z/!?]))")
"""The beginning of an HTML tag, and backslashes before it, which must be escaped too."""
TAG_OR_BAR = re.compile(r"(\\*)(<(?=[A-Za-z/!?])|\|)")
"""The same, or the end of a table cell."""
LEAST_TEXT = 24
"""Free characters of a line from which on text is wrapped into them; with fewer, it is left out."""


PLAIN_WIDTH = 100
"""Width of output into a file or a pipe, in characters."""


def terminal_width() -> int:
    """Return the width of the terminal in characters, or ``PLAIN_WIDTH`` without one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PLAIN_WIDTH


def draw(table: Table, width: int | None = None) -> str:
    """Format a table for a terminal of that width; None: as Markdown."""
    return markdown(table) if width is None else terminal(table, width)


def table_text(
    rows: Sequence[Mapping[str, Any]], left: Collection[str] | None = None, width: int | None = None
) -> str:
    """Draw rows by heading (see ``listing``), without a newline at the end."""
    return draw(listing(rows, left), width).rstrip("\n")


def list_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows in aligned columns: as wide as the terminal, in a pipe one line per row, for grep."""
    return table_text(rows, width=terminal_width() if sys.stdout.isatty() else 10_000)


def csv_text(frame: "pd.DataFrame") -> str:
    """Format a frame as CSV; spreadsheets show its texts and do not compute them."""
    cells = frame.map(lambda cell: _shown_by_spreadsheets(cell) if isinstance(cell, str) else cell)
    return str(cells.to_csv(index=False, lineterminator="\n"))


def _shown_by_spreadsheets(text: str) -> str:
    """Put a ' before formulas, but not before numbers; write line ends as semicolons."""
    line = "; ".join(text.splitlines())
    is_number = re.fullmatch(r"[+-]?\d+([.,]\d+)*", line)
    return line if is_number or not re.match(r"[' ]*[=+\-@\t＝＋－＠]", line) else f"'{line}"


def terminal(table: Table, width: int) -> str:
    """Format a table in aligned columns, with its outcome above, warnings and conditions below.

    Columns on the right that do not fit are left out. Text in the first of them is wrapped if there is room.
    """
    lines = [[_one_line(text) for text in line] for line in (table.headings, *table.cells)]
    left, rest = [column.left for column in table.columns], None
    ends = list(accumulate(2 + max(map(len, column)) for column in zip(*lines, strict=True)))
    fitting = max(sum(end - 2 <= width for end in ends), 1)
    if fitting < len(left) and left[fitting] and width - ends[fitting - 1] >= LEAST_TEXT:
        rest = width - ends[fitting - 1]
        fitting += 1
    grid = tabulate(
        [line[:fitting] for line in lines],
        tablefmt="plain",  # without headers, which make columns wider
        disable_numparse=True,
        colalign=_align(left[:fitting]),
        maxcolwidths=[*[None] * (fitting - 1), rest],
    )
    warnings = [f"! {warning.removeprefix('Warning: ').removeprefix('Note: ')}" for warning in table.warnings]
    parts = [
        "\n".join(textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False) for line in part)
        for part in (table.outcome, [*warnings, *table.conditions])
    ]
    parts.insert(1, "\n".join(map(str.rstrip, grid.splitlines())))
    return "\n\n".join(filter(None, parts)) + "\n"


def markdown(table: Table) -> str:
    """Format a table, with its outcome as a list above, conditions and warnings below."""
    grid = tabulate(
        [[escape_markdown(text, TAG_OR_BAR) for text in line] for line in (table.headings, *table.cells)],
        headers="firstrow",
        tablefmt="pipe",
        disable_numparse=True,  # otherwise tabulate prints 38.10 as 38.1
        colalign=_align([column.left for column in table.columns]),
    )
    above, below = (
        "\n".join(f"- {escape_markdown(line)}" for line in part)
        for part in (table.outcome, [*table.conditions, *table.warnings])
    )
    return "\n\n".join(filter(None, (above, grid, below))) + "\n"


def _align(left: Sequence[bool]) -> list[str]:
    return ["left" if is_left else "right" for is_left in left]


def escape_markdown(text: str, special: re.Pattern[str] = TAG) -> str:
    """Format text as one line, with control characters and ``special`` escaped."""
    return special.sub(r"\1\1\\\2", _one_line(text))


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def fill_page(template: Path, **values: object) -> str:
    """Fill in a Markdown template; the caller escapes text of users."""
    from jinja2 import StrictUndefined, Template  # imported here: tables need no template

    text = template.read_text(encoding="utf-8")
    options: dict[str, Any] = {
        "trim_blocks": True,
        "keep_trailing_newline": True,
        "undefined": StrictUndefined,
    }
    page: str = Template(text, **options).render(values)
    return page


LATEX = r"""%% \input this file; the preamble needs \usepackage{booktabs}
%s\begin{table}
\centering
\caption{%s}
\label{tab:%s}
\begin{tabular}{%s}
\toprule
%s \\
\midrule
%s
\bottomrule
\end{tabular}
%s\end{table}
"""
SIGNS = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{sign: "\\" + sign for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "–": "--",
        "±": r"$\pm$",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "[": "{[}",  # a [ or * at the start of a line would be an argument of the \\ before it
        "*": "{*}",
    }
)
"""LaTeX for characters that are special in LaTeX or missing from its fonts."""


def latex(table: Table, experiments: Sequence[str] = (), caption: str = "") -> str:
    r"""Format a floating table with booktabs, that a document can \\input, with conditions and warnings.

    The names of ``experiments`` make the label and, by default, the caption.
    """
    alignment = "".join(side[0] for side in _align([column.left for column in table.columns]))
    headings, *lines = (
        " & ".join(_one_line(text).translate(SIGNS) for text in line)
        for line in (table.headings, *table.cells)
    )
    outcome = "".join(f"% {_one_line(line)}\n" for line in table.outcome)  # too long for a page
    notes = [*table.conditions, *table.warnings]
    text = "; ".join(_one_line(note).removesuffix(".").translate(SIGNS) for note in notes)
    below = f"\\par\\smallskip\n\\parbox{{\\linewidth}}{{{text}}}\n" if notes else ""
    title = caption or f"Results{' of ' if experiments else ''}{', '.join(experiments)}."
    label = re.sub("[^a-z0-9]+", "-", "-".join(experiments).lower()).strip("-") or "results"
    body = "\n".join(f"{line} \\\\" for line in lines)
    return LATEX % (outcome, _one_line(title).translate(SIGNS), label, alignment, headings, body, below)
