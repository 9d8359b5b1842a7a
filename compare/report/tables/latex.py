"""A table as a LaTeX document with booktabs, whose tabular can be copied into a paper."""

import re

from compare.report.tables.layout import TextTable
from compare.results.columns import LEFT_ALIGNED
from data.text.control_characters import visible

DOCUMENT = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage{textcomp}
\usepackage[landscape,margin=1cm]{geometry}
\usepackage{booktabs}
\begin{document}
\begin{table}
\centering\scriptsize
\begin{tabular}{%s}
\toprule
%s \\
\midrule
%s
\bottomrule
\end{tabular}
\caption{%s}
\end{table}
\end{document}
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


def latex(table: TextTable) -> str:
    """Format the table, with its notes as the caption, as a document that compiles."""
    alignment = "".join("l" if heading in LEFT_ALIGNED else "r" for heading in table.headings)
    lines = [" & ".join(map(_escape, line)) + r" \\" for line in table.lines]
    headings = " & ".join(map(_escape, table.headings))
    caption = "; ".join(map(_escape, table.notes))
    return DOCUMENT % (alignment, headings, "\n".join(lines), caption)


def _escape(text: str) -> str:
    """Escape ``text`` for LaTeX."""
    return PATTERN.sub(lambda match: SIGNS[match.group()], visible(" ".join(text.split())))
