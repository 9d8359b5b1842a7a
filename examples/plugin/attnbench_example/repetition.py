"""A metric that needs no reference: how often a translation repeats itself."""

from collections.abc import Sequence
from itertools import pairwise

from compare import Metric, MetricOptions, MetricScore


class Repetition(Metric):
    """Percentage of words that equal the word before."""

    name = "repetition"
    heading = "repeated"
    help = "share of words that equal the word before"
    decimals = 2
    higher_is_better = False

    def compute(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: MetricOptions
    ) -> MetricScore:
        """Score; no option applies."""
        texts = [line.split() for line in hypotheses]
        repeated = sum(first == second for words in texts for first, second in pairwise(words))
        words = sum(map(len, texts))
        return MetricScore(score=100 * repeated / max(words, 1), signature="repetition|unit:word|version:1")
