"""Paired tests between two models: sacrebleu's own for each seed, and what all seeds say together."""

from collections.abc import Sequence
from typing import Literal

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result

from compare.analysis.significance.comparison import seeds_agree
from compare.analysis.significance.scored_tests import ScoredRun
from compare.scoring.metrics.bleu import fixed_seed

Kind = Literal["ar", "bs"]
"""Approximate randomisation (Riezler and Maxwell 2005) or the paired bootstrap (Koehn 2004)."""


def paired_p(first: Sequence[str], second: Sequence[str], metric: BLEU, kind: Kind, samples: int) -> float:
    """The two-sided p of a difference in BLEU between two translations of a test set.

    Args:
        first: a sentence each.
        second: the same sentences; to change places with ``first`` does not change p.
        metric: a ``BLEU(references=[...])`` that holds the references.
        kind: the test.
        samples: shuffles or resamples, about 0.3 ms each for 1,000 sentences.
    """
    systems = [("first", first), ("second", second)]
    with fixed_seed():
        test = PairedTest(systems, {"BLEU": metric}, None, test_type=kind, n_samples=samples)
    _, columns = test()
    result = columns["BLEU"][1]
    assert isinstance(result, Result)
    assert result.p_value is not None  # only the baseline's is
    return result.p_value


def seeds_p(runs: Sequence[tuple[ScoredRun, ScoredRun]], metric: BLEU, kind: Kind, samples: int) -> float:
    """The p of one model being better than another with every seed; ``runs`` are pairs of one seed each.

    The largest p of the seeds counts (intersection-union test, Berger 1982), and where the seeds do not agree
    on which model is better, it is 1.
    """
    if not seeds_agree([first.bleu - second.bleu for first, second in runs]):
        return 1.0
    return max(
        max(paired_p(first.lines, second.lines, metric, kind, samples), _least_p(first, second))
        for first, second in runs
    )


def _least_p(first: ScoredRun, second: ScoredRun) -> float:
    """The smallest p that outputs which differ in d sentences can have, 2 / 2^d.

    sacrebleu counts the shuffles that go past the observed difference and not those that reach it, as two of
    the 2^d always do: those that swap none of these sentences, and all of them. With d = 1 it would find the
    smallest p there is.
    """
    differing = (first.counts != second.counts).any(axis=1)
    return float(0.5 ** (int(differing.sum()) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number: in 1 family of 20 at most is any below .05 by chance (Holm 1979)."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min((len(p_values) - rank) * p_values[index], 1.0))
        corrected[index] = largest
    return corrected
