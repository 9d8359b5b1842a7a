"""A table with its notes as Markdown."""

from compare.report.tables.layout import TextTable
from compare.results.columns import LEFT_ALIGNED
from compare.results.markdown import escape_markdown, markdown_table


def markdown(table: TextTable) -> str:
    """Format the table, and below it a list of its notes."""
    rows = [dict(zip(table.headings, cells, strict=True)) for cells in table.lines]
    notes = "".join(f"- {escape_markdown(note)}\n" for note in table.notes)
    return f"{markdown_table(rows, left=LEFT_ALIGNED)}\n" + (f"\n{notes}" if notes else "")
