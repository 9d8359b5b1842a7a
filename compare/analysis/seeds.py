"""Means over seeds, and seeds that form two groups."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from compare.results.formatting import Row


def mean_over_seeds(rows: Sequence[Row]) -> list[Row]:
    """Average rows that have equal strings; their number replaces ``seed`` as ``seeds``."""
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
    """Divide the scores of three or more seeds into a lower and a higher group; None if they are one.

    The largest gap must exceed a tenth of the mean, and the standard deviation within the sides (at least
    0.5) times the 99.75% quantile of Student's t. Scores of one normal distribution do so in 2 to 5%.
    """
    from scipy.special import stdtrit  # slow to import

    ordered = sorted(scores)
    if len(ordered) < 3:
        return None
    gap, cut = max((after - before, i + 1) for i, (before, after) in enumerate(pairwise(ordered)))
    sides = ordered[:cut], ordered[cut:]
    squares = sum((score - fmean(side)) ** 2 for side in sides for score in side)
    inside = len(ordered) - 2
    limit = stdtrit(inside, 0.9975) * max(0.5, (squares / inside) ** 0.5)
    return sides if gap > max(limit, 0.1 * fmean(ordered)) else None


def groups_text(groups: tuple[Sequence[float], Sequence[float]]) -> str:
    """Format two groups of scores: "33.6 / 39.5, 40.1"."""
    return " / ".join(", ".join(f"{score:.1f}" for score in group) for group in groups)


def seed_mean(values: Sequence[Any]) -> Any:
    """Average the values of several seeds, or return the common value; None if one is missing."""
    if all(value == values[0] for value in values):
        return values[0]
    return fmean(values) if all(isinstance(value, int | float) for value in values) else None


def describe_seeds(runs: Iterable[tuple[str, int]]) -> str:
    """Format the number of seeds per label: "3 seeds", or "3 to 5 seeds"."""
    counts = Counter(label for label, _ in set(runs)).values()
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return f"{low} to {high} seeds" if low < high else f"{low} seed{'s' if low > 1 else ''}"
