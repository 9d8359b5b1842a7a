"""Tables of analyses, and means over seeds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

# Tables of an analysis.


Row = dict[str, Any]
"""One row of a table by column name, units in the names."""


class Table(NamedTuple):
    """Figures under a caption."""

    caption: str
    rows: Sequence[Row]


# Means over seeds for tables with one row per seed.


def mean_over_seeds(table: Table) -> Table:
    """Average the rows that differ only in their seed and their figures.

    Rows belong together if all their strings are equal. A figure that is missing for one seed is missing in
    the mean: a mean over the remaining seeds would be biased.

    Args:
        table: rows with a column ``seed``.

    Returns:
        A table with the same caption; the number of seeds replaces the column ``seed`` as ``seeds``.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in table.rows:
        strings = tuple(value for value in row.values() if isinstance(value, str))
        groups.setdefault(strings, []).append(row)
    return Table(table.caption, [_mean_row(rows) for rows in groups.values()])


def _mean_row(rows: Sequence[Row]) -> Row:
    """Average ``rows`` column by column and count the seeds."""
    means = {name: _mean([row[name] for row in rows]) for name in rows[0] if name != "seed"}
    return {**means, "seeds": len(rows)}


def _mean(values: Sequence[Any]) -> Any:
    """Average ``values``; equal values stay as they are, so that a count remains an integer."""
    if all(value == values[0] for value in values):
        return values[0]
    return None if None in values else sum(values) / len(values)
