"""What is counted over a text: the links that each head makes by each method, and how widely it attends.

Shapes: M methods, C heads and means of heads, T target and S source words of a pair.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from compare.analysis.alignment.aer import Agreement, Counts, count
from compare.analysis.alignment.attended import Attended, Head, attend
from compare.analysis.alignment.entropy import Spread, known, measure_spread
from compare.analysis.alignment.gold import Gold, GoldLinks
from compare.analysis.alignment.links import METHODS
from compare.analysis.tables import Row
from compare.translate import Translator


class Choice(NamedTuple):
    """A head, and a method of reading links off it."""

    method: int
    """Its place in ``METHODS``."""
    head: int
    """Its place in ``Measured.heads``."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The links of every head of a model by every method, against gold ones, and its spread."""

    heads: tuple[Head, ...]
    counts: Counts
    """(M, C, 4)."""
    spread: Spread

    def plus(self, other: "Measured") -> "Measured":
        """The sums over the pairs of both, which are of one model."""
        return Measured(
            heads=self.heads, counts=self.counts + other.counts, spread=self.spread.plus(other.spread)
        )

    def agreement(self, choice: Choice) -> Agreement:
        """How far the links of one head by one method agree with the gold ones."""
        return Agreement(*self.counts[choice].tolist())

    def best(self, name: str, heads: Iterable[int]) -> Choice:
        """The choice of least AER among ``heads`` and the methods of that name; of equals the first.

        An AER of None, where there is neither a link proposed nor a sure one, loses to any other.
        """
        methods = [place for place, method in enumerate(METHODS) if method.name == name]
        choices = [Choice(method, head) for head in heads for method in methods]
        errors = [self.agreement(choice).aer for choice in choices]
        return choices[int(np.argmin([np.inf if error is None else error for error in errors]))]

    def rows(self, method: str) -> list[Row]:
        """The figures of every head, and mean of heads, by "arg max", "intersection" or a threshold ("0.2").

        Raises:
            ValueError: there is no such method.
        """
        names = [found.name if found.threshold is None else str(found.threshold) for found in METHODS]
        if method not in names:
            raise ValueError(f"no method {method!r} to read links by: choose of {', '.join(names)}")
        return [self.row(Choice(names.index(method), head)) for head in range(len(self.heads))]

    def row(self, choice: Choice) -> Row:
        """The figures of one choice, entropy_share as a share of log S; a mean of nothing is None."""
        method, (nats, share) = METHODS[choice.method], self.spread.means()
        return {
            "attention": str(self.heads[choice.head]),
            "method": method.name,
            "threshold": method.threshold,
            **self.agreement(choice).shares(),
            "entropy_nats": known(nats[choice.head]),
            "entropy_share": known(share[choice.head]),
        }


def measure(translator: Translator, gold: Gold) -> Measured | None:
    """Align ``gold`` with every head of a model; None for a model without attention to the source."""
    pairs = (_measure_pair(pair, gold.links[pair.number]) for pair in attend(translator, gold.pairs))
    first = next(pairs, None)
    return None if first is None else reduce(Measured.plus, pairs, first)


def _measure_pair(pair: Attended, gold: GoldLinks) -> Measured:
    counts = [count(method.links(pair.weights), gold.sure, gold.possible) for method in METHODS]
    return Measured(heads=pair.heads, counts=np.stack(counts), spread=measure_spread(pair.weights))
