"""What is counted over a text: the links that each head makes by each method, and how widely it attends.

Shapes: M methods, C heads and means of heads, T target and S source words of a pair.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from compare.analysis.alignment.aer import AlignmentCounts, CountArray, count_links
from compare.analysis.alignment.entropy import AttentionEntropy, none_if_nan, sum_entropy
from compare.analysis.alignment.gold import Gold, GoldLinks
from compare.analysis.alignment.links import METHODS
from compare.analysis.alignment.word_attention import AttentionHead, WordAttention, attend_words
from compare.analysis.table import Row
from compare.decoding.translator import Translator


class LinkChoice(NamedTuple):
    """A head, and a method of reading links off it."""

    method: int
    """Its place in ``METHODS``."""
    head: int
    """Its place in ``AlignmentMeasurement.heads``."""


@dataclass(frozen=True, kw_only=True)
class AlignmentMeasurement:
    """The links of every head of a model by every method, against gold ones, and its spread."""

    heads: tuple[AttentionHead, ...]
    counts: CountArray
    """(M, C, 4)."""
    spread: AttentionEntropy

    def plus(self, other: "AlignmentMeasurement") -> "AlignmentMeasurement":
        """The sums over the pairs of both, which are of one model."""
        return AlignmentMeasurement(
            heads=self.heads, counts=self.counts + other.counts, spread=self.spread.plus(other.spread)
        )

    def agreement(self, choice: LinkChoice) -> AlignmentCounts:
        """How far the links of one head by one method agree with the gold ones."""
        return AlignmentCounts(*self.counts[choice].tolist())

    def best(self, name: str, heads: Iterable[int]) -> LinkChoice:
        """The choice of least AER among ``heads`` and the methods of that name; of equals the first.

        An AER of None, where there is neither a link proposed nor a sure one, loses to any other.
        """
        methods = [place for place, method in enumerate(METHODS) if method.name == name]
        choices = [LinkChoice(method, head) for head in heads for method in methods]
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
        return [self.row(LinkChoice(names.index(method), head)) for head in range(len(self.heads))]

    def row(self, choice: LinkChoice) -> Row:
        """The figures of one choice, entropy_share as a share of log S; a mean of nothing is None."""
        method, (nats, share) = METHODS[choice.method], self.spread.means()
        return {
            "attention": str(self.heads[choice.head]),
            "method": method.name,
            "threshold": method.threshold,
            **self.agreement(choice).shares(),
            "entropy_nats": none_if_nan(nats[choice.head]),
            "entropy_share": none_if_nan(share[choice.head]),
        }


def measure_alignment(translator: Translator, gold: Gold) -> AlignmentMeasurement | None:
    """Align ``gold`` with every head of a model; None for a model without attention to the source."""
    pairs = (_measure_pair(pair, gold.links[pair.number]) for pair in attend_words(translator, gold.pairs))
    first = next(pairs, None)
    return None if first is None else reduce(AlignmentMeasurement.plus, pairs, first)


def _measure_pair(pair: WordAttention, gold: GoldLinks) -> AlignmentMeasurement:
    counts = [count_links(method.links(pair.weights), gold.sure, gold.possible) for method in METHODS]
    return AlignmentMeasurement(heads=pair.heads, counts=np.stack(counts), spread=sum_entropy(pair.weights))
