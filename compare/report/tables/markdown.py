"""A table as Markdown."""

from compare.report.tables.layout import WORDS, TextTable


def markdown(grid: TextTable) -> str:
    """The table, and below it a list of its notes."""
    import pandas as pd

    cells = [[_escape(cell) for cell in line] for line in grid.lines]
    table = pd.DataFrame(cells, columns=[_escape(heading) for heading in grid.headings]).to_markdown(
        index=False,
        tablefmt="pipe",
        disable_numparse=True,  # or tabulate would round 38.10 to 38.1
        colalign=["left" if heading in WORDS else "right" for heading in grid.headings],
    )
    notes = "".join(f"- {note}\n" for note in grid.notes)
    return f"{table}\n\n{notes}" if notes else f"{table}\n"


def _escape(text: str) -> str:
    """``text`` made fit for a cell, which ends at a | or at the end of the line."""
    return " ".join(text.replace("|", r"\|").split())
