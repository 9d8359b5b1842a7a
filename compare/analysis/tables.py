"""Tables of figures as people see them, and means over seeds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any

from compare.results.table import Column, format_number
from compare.scoring import METRICS

Row = dict[str, Any]
"""One row of a table by column name, units in the names."""

SPELLINGS = {
    **{"label": "model", "aer": "AER", "f1": "F1", "flops": "FLOPs", "percent": "(%)", "rep": "REP"},
    **{"ref": "reference", "hyp": "translation", "holm": "Holm", "params": "parameters"},
}
"""Words of column names that headings spell differently; metrics have their own headings."""
DECIMALS = {
    **dict.fromkeys(("words", "seconds", "tokens", "flops", "updates"), 0),
    **dict.fromkeys(("percent", "minutes", "score", "difference", "s", *METRICS), 1),
    **dict.fromkeys(("nats", "share", "weight"), 2),
    **dict.fromkeys(("ratio", "loss", "aer", "precision", "recall", "f1"), 3),
}
"""Decimal places of figures by a word of their names, the last of them that is here."""


@dataclass(frozen=True)
class Table:
    """Rows of figures, and the columns that make their cells."""

    caption: str
    """Explanation of how to read it."""
    rows: Sequence[Row]
    title: str = ""
    layout: Sequence[Column] = ()
    """The columns; by default those of all rows under their names in words, without empty ones."""
    notes: Sequence[str] = ()
    """Conditions of the figures, and warnings where rows do not compare."""
    optional: Collection[str] = ()
    """Headings of the columns that a page shows only once the reader has chosen them."""

    @cached_property
    def columns(self) -> Sequence[Column]:
        """The columns that are shown."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        known = [name for name in names if any(row.get(name) is not None for row in self.rows)]
        return self.layout or [plain_column(name, heading_of(name)) for name in known]

    @property
    def headings(self) -> list[str]:
        """The headings of the columns."""
        return [column.heading for column in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """Rows of texts, one per column."""
        return [[column.text(row) for column in self.columns] for row in self.rows]

    @cached_property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers, and so is sorted by them."""
        return [any(column.order(row) is not None for row in self.rows) for column in self.columns]


def plain_column(name: str, heading: str = "") -> Column:
    """Return a column of the values by ``name``, rounded by ``DECIMALS``, others by ``format_number``."""
    decimals = next((DECIMALS[word] for word in reversed(name.split("_")) if word in DECIMALS), None)

    def text(value: Any) -> str:
        is_rounded = isinstance(value, float) and decimals is not None
        return f"{value:,.{decimals}f}" if is_rounded else format_number(value)

    return Column(name, heading or name, form=text)


def heading_of(name: str) -> str:
    """Return the name of a figure of an analysis in words: "BLEU difference" for "bleu_difference"."""
    spellings = SPELLINGS | {metric: each.heading for metric, each in METRICS.items()}
    return " ".join(spellings.get(word, word) for word in name.split("_"))


def mean_over_seeds(rows: Sequence[Row]) -> list[Row]:
    """Average the rows that differ only in their seed and their figures.

    Rows belong together if all their strings are equal.

    Args:
        rows: rows with a column ``seed``; the number of seeds replaces it as ``seeds``.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        strings = tuple(value for value in row.values() if isinstance(value, str))
        groups.setdefault(strings, []).append(row)
    return [
        {name: seed_mean([row[name] for row in group]) for name in group[0] if name != "seed"}
        | {"seeds": len(group)}
        for group in groups.values()
    ]


def find_groups(scores: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """Divide the scores of three seeds or more into a lower and a higher group; None if they are one.

    The largest gap between two neighbours is then above a tenth of the mean and four times the standard
    deviation within the two sides (0.5 at least); eight times for three seeds, which hardly show it. No
    deviation describes such scores.
    """
    ordered = sorted(scores)
    if len(ordered) < 3:
        return None
    gap, place = max((after - before, i + 1) for i, (before, after) in enumerate(pairwise(ordered)))
    sides = ordered[:place], ordered[place:]
    squares = sum((score - fmean(side)) ** 2 for side in sides for score in side)
    inside = len(ordered) - 2
    limit = 4 * (1 + 1 / inside) * max(0.5, (squares / inside) ** 0.5)
    return sides if gap > max(limit, 0.1 * fmean(ordered)) else None


def groups_text(groups: tuple[Sequence[float], Sequence[float]]) -> str:
    """List the scores of two groups, the lower one first: "33.6 / 39.5, 40.1"."""
    return " / ".join(", ".join(f"{score:.1f}" for score in group) for group in groups)


def seed_mean(values: Sequence[Any]) -> Any:
    """Average the values of several seeds; equal ones stay as they are, so that a count remains an integer.

    A figure that is missing for one seed is missing in the mean, as are texts that differ.
    """
    if all(value == values[0] for value in values):
        return values[0]
    return fmean(values) if all(isinstance(value, int | float) for value in values) else None
