"""A table in LaTeX, with booktabs, caption and label, for a paper to include."""

import re
from collections.abc import Sequence

from compare.report.tables.layout import TextTable
from compare.results.columns import LEFT_ALIGNED
from data.text.control_characters import visible

TABLE = r"""%% \input this file; the preamble needs \usepackage{booktabs}
\begin{table}
\centering
\caption{%s}
\label{%s}
\scriptsize
\begin{tabular}{%s}
\toprule
%s \\
\midrule
%s
\bottomrule
\end{tabular}
%s\end{table}
"""
NOTES = r"""\par\smallskip
\parbox{\linewidth}{%s}
"""
SIGNS = {
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
"""LaTeX for characters that are special in LaTeX or missing from its fonts."""
PATTERN = re.compile("|".join(map(re.escape, SIGNS)))


def latex(table: TextTable, experiments: Sequence[str] = (), caption: str = "") -> str:
    r"""Format the table as a floating table that a document can \input, with its notes below it.

    Args:
        table: headings, cells and notes.
        experiments: names of the experiments that the rows are from; label and caption name them.
        caption: another caption.
    """
    alignment = "".join("l" if heading in LEFT_ALIGNED else "r" for heading in table.headings)
    lines = [" & ".join(map(_escape, line)) + r" \\" for line in table.lines]
    headings = " & ".join(map(_escape, table.headings))
    notes = NOTES % "; ".join(map(_escape, table.notes)) if table.notes else ""
    of = f" of {', '.join(experiments)}" if experiments else ""
    text = _escape(caption or f"Results{of}.")
    label = re.sub("[^a-z0-9]+", "-", "-".join(experiments).lower()).strip("-")
    return TABLE % (text, f"tab:{label or 'results'}", alignment, headings, "\n".join(lines), notes)


def _escape(text: str) -> str:
    """Escape ``text`` for LaTeX."""
    return PATTERN.sub(lambda match: SIGNS[match.group()], visible(" ".join(text.split())))
