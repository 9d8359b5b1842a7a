"""Link counts and attention entropy of every head of a model over a text with gold links.

Shapes: M methods, N shifts, C heads and means of heads, T target and S source words of a pair.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from compare.analysis.alignment.aer import AlignmentCounts, CountArray
from compare.analysis.alignment.entropy import AttentionEntropy, none_if_nan, sum_entropy
from compare.analysis.alignment.gold import Gold, GoldLinks
from compare.analysis.alignment.links import ARG_MAX, METHODS, SHIFTS, arg_max, method_number, shift_links
from compare.analysis.alignment.word_attention import AttentionHead, WordAttention, attend_words
from compare.analysis.table import Row
from compare.decoding.translator import Translator


class LinkChoice(NamedTuple):
    """A method that derives links, and the head whose weights it uses."""

    method: int
    """Index in ``METHODS``."""
    head: int
    """Index in ``AlignmentMeasurement.heads``."""


@dataclass(frozen=True, kw_only=True)
class AlignmentMeasurement:
    """Link counts of every head by every method, and the entropy of every head."""

    heads: tuple[AttentionHead, ...]
    counts: CountArray
    """(M, C, 4)."""
    shifted: CountArray
    """Those of arg max links, moved by ``SHIFTS``: (N, C, 4)."""
    entropy: AttentionEntropy

    def plus(self, other: "AlignmentMeasurement") -> "AlignmentMeasurement":
        """Return the sums over the sentence pairs of both, which must be of the same model."""
        return AlignmentMeasurement(
            heads=self.heads,
            counts=self.counts + other.counts,
            shifted=self.shifted + other.shifted,
            entropy=self.entropy.plus(other.entropy),
        )

    def link_counts(self, choice: LinkChoice) -> AlignmentCounts:
        """Return the counts of one method and head."""
        return AlignmentCounts(*self.counts[choice].tolist())

    def best(self, name: str, heads: Iterable[int]) -> LinkChoice:
        """Choose the method and head with the lowest AER; of equal ones the first.

        An AER of None, where there is neither a proposed nor a sure link, is worse than any other.

        Args:
            name: name of the methods to choose from.
            heads: indices in ``heads`` to choose from.
        """
        methods = [index for index, method in enumerate(METHODS) if method.name == name]
        choices = [LinkChoice(method, head) for head in heads for method in methods]
        return choices[_find_lowest([self.link_counts(choice).aer for choice in choices])]

    def rows(self, method: str) -> list[Row]:
        """Return one table row per head and mean of heads.

        Args:
            method: see ``method_number``, which names the error.
        """
        number = method_number(method)
        rows = [self.row(LinkChoice(number, head)) for head in range(len(self.heads))]
        if method == ARG_MAX:
            rows = [row | self._best_shift(head) for head, row in enumerate(rows)]
        return rows

    def _best_shift(self, head: int) -> Row:
        """Return the shift that gives arg max links the lowest AER, the nearest of equal ones, and that AER.

        Attention can be one word off: Koehn and Knowles 2017, section 3.5.
        """
        errors = [AlignmentCounts(*self.shifted[index, head].tolist()).aer for index in range(len(SHIFTS))]
        best = _find_lowest(errors)
        return {"shift": SHIFTS[best], "aer_shifted": errors[best]}

    def row(self, choice: LinkChoice) -> Row:
        """Return the scores and entropy of one choice as a table row; a missing figure is None."""
        method, (nats, share) = METHODS[choice.method], self.entropy.means()
        return {
            "attention": str(self.heads[choice.head]),
            "method": method.name,
            "threshold": method.threshold,
            **self.link_counts(choice).scores(),
            "entropy_nats": none_if_nan(nats[choice.head]),
            "entropy_share": none_if_nan(share[choice.head]),
        }


def measure_alignment(translator: Translator, gold: Gold) -> AlignmentMeasurement | None:
    """Align the sentence pairs of ``gold`` with every head of a model.

    Args:
        translator: the model, from ``load_model``.
        gold: the pairs and their links, from ``read_gold``.

    Returns:
        The sums over all pairs; ``rows("arg max")`` gives one table row per head. None for a model without
        attention to the source.
    """
    pairs = (_measure_pair(pair, gold.links[pair.number]) for pair in attend_words(translator, gold.pairs))
    first = next(pairs, None)
    return None if first is None else reduce(AlignmentMeasurement.plus, pairs, first)


def _measure_pair(pair: WordAttention, gold: GoldLinks) -> AlignmentMeasurement:
    """Count links and entropy of one sentence pair."""
    counts = [gold.compare(method.links(pair.weights)) for method in METHODS]
    links = arg_max(pair.weights)
    shifted = [gold.compare(shift_links(links, by)) for by in SHIFTS]
    return AlignmentMeasurement(
        heads=pair.heads,
        counts=np.stack(counts),
        shifted=np.stack(shifted),
        entropy=sum_entropy(pair.weights),
    )


def _find_lowest(errors: Sequence[float | None]) -> int:
    """Return the index of the lowest AER, of equal ones the first; None is worse than any other."""
    return int(np.argmin([np.inf if error is None else error for error in errors]))
