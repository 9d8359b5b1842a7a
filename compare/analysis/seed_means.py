"""Tables of one row a seed as tables of means over seeds."""

from collections.abc import Sequence
from typing import Any

from compare.analysis.table import Row, Table


def mean_over_seeds(table: Table) -> Table:
    """The mean over the seeds of rows that agree in every word, and how many there are.

    A figure that one of the seeds does not have is None: the mean of the others would flatter.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in table.rows:
        words = tuple(value for value in row.values() if isinstance(value, str))
        groups.setdefault(words, []).append(row)
    return Table(table.caption, [_mean_row(rows) for rows in groups.values()])


def _mean_row(rows: Sequence[Row]) -> Row:
    """One row for ``rows``; the column of seeds becomes their number."""
    means = {name: _mean([row[name] for row in rows]) for name in rows[0] if name != "seed"}
    return {**means, "seeds": len(rows)}


def _mean(values: Sequence[Any]) -> Any:
    """The mean; what is the same for all stays as it is, so that a count remains an integer."""
    if all(value == values[0] for value in values):
        return values[0]
    return None if None in values else sum(values) / len(values)
