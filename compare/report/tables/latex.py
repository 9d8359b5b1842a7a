"""A table as LaTeX in the style of booktabs: a whole document, whose tabular can be taken into a paper."""

import re

from compare.report.tables.layout import WORDS, TextTable

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
    "[": "{[}",  # a [ at the start of a line would be an argument of the \\ before it
}
"""What LaTeX takes for its own, and how to write it as text."""
PATTERN = re.compile("|".join(map(re.escape, SIGNS)))


def latex(grid: TextTable) -> str:
    """The table with its notes as the caption; it compiles as it is."""
    alignment = "".join("l" if heading in WORDS else "r" for heading in grid.headings)
    lines = [" & ".join(map(_escape, line)) + r" \\" for line in grid.lines]
    headings = " & ".join(map(_escape, grid.headings))
    caption = "; ".join(map(_escape, grid.notes))
    return DOCUMENT % (alignment, headings, "\n".join(lines), caption)


def _escape(text: str) -> str:
    """``text`` as LaTeX shows it."""
    return PATTERN.sub(lambda match: SIGNS[match.group()], " ".join(text.split()))
