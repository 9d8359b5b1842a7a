"""Result of comparing two models, and the rule by which one beats the other."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from compare.analysis.significance.intervals import Interval, Intervals
from compare.analysis.table import Row

ALPHA = 0.05
"""Significance level of the corrected p-value."""
ONE_SEED = "significant on this test set, with one seed"
"""Verdict on a difference that may be one of these seeds only."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of model ``first`` with model ``second`` on one test set by one metric.

    One model beats the other if ``p`` is below ``ALPHA`` and the combined interval excludes 0. Neither alone
    suffices: the p-value ignores how much seeds differ, and the interval is not corrected for the number of
    comparisons. Where a run of either model failed, none beats the other: the seeds that are left are not
    any seeds, but those with which training went well.
    """

    test: str
    metric: str
    """One of ``COMPARED_METRICS``; for all of them, higher is better."""
    first: str
    second: str
    seeds: tuple[int, ...]
    """The seeds that both models have."""
    differences: tuple[float, ...]
    """Score of first minus score of second, one per seed."""
    intervals: Intervals
    """95% confidence intervals of the mean difference."""
    p_randomisation: float
    """p-value of approximate randomisation over all seeds together, uncorrected."""
    p_bootstrap: float
    """p-value of the paired bootstrap over all seeds together, uncorrected."""
    p: float
    """``p_randomisation`` with Holm's correction for all comparisons made together with this one.

    Randomisation decides because the bootstrap rejects the null hypothesis too often (Riezler and Maxwell
    2005).
    """
    wins: float
    """Sentences in which first has the higher chrF, mean over seeds."""
    losses: float
    """Sentences in which second has the higher chrF, mean over seeds."""
    ties: float
    """Sentences in which both have the same chrF, mean over seeds."""
    failed: tuple[str, ...] = ()
    """Runs of either model that failed, as "label seed 2"; they have no translations to compare."""

    @property
    def difference(self) -> float:
        """The mean of ``differences``."""
        return sum(self.differences) / len(self.differences)

    @property
    def significant(self) -> bool:
        """Whether ``p`` is below ``ALPHA``: the difference is not an accident of the test set."""
        return self.p < ALPHA

    @property
    def inconclusive_reason(self) -> str | None:
        """Reason why neither model beats the other; None if one does."""
        if not self.significant:
            return f"{describe_p(self.p)} is not below {ALPHA}"
        if self.failed:
            return f"failed, and so left out: {', '.join(self.failed)}"
        if self.intervals.combined is None:
            return ONE_SEED
        low, high = self.intervals.combined
        if low <= 0 <= high:
            return f"the combined interval, {low:.2f} to {high:.2f}, includes 0"
        return None

    @property
    def beats(self) -> bool:
        """Whether first beats second."""
        return self.inconclusive_reason is None and self.difference > 0

    def swapped(self) -> "Comparison":
        """Return the same comparison with first and second exchanged."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            differences=tuple(-difference for difference in self.differences),
            intervals=self.intervals.map(lambda interval: Interval(-interval.high, -interval.low)),
            wins=self.losses,
            losses=self.wins,
        )

    @property
    def row(self) -> Row:
        """The comparison as a table row; ``verdict`` names the winner, or the reason why there is none."""
        winner = f"{self.first} beats {self.second}" if self.beats else f"{self.second} beats {self.first}"
        return {
            "test": self.test,
            "metric": self.metric,
            "model": self.first,
            "against": self.second,
            "seeds": len(self.seeds),
            "difference": self.difference,
            **self.intervals.columns("difference"),
            "p_randomisation": self.p_randomisation,
            "p_bootstrap": self.p_bootstrap,
            "p_holm": self.p,
            "sentences_won": self.wins,
            "sentences_lost": self.losses,
            "sentences_tied": self.ties,
            "verdict": self.inconclusive_reason or winner,
        }


def describe_p(p: float) -> str:
    """Format a p-value with two digits, as in "p = 0.0031"; below 0.0001 as "p < 0.0001"."""
    return f"p = {p:.2g}" if p >= 0.0001 else "p < 0.0001"


def comparison_matrix(comparisons: Iterable[Comparison]) -> dict[str, dict[str, Comparison]]:
    """Index the comparisons on one test set by one metric by first label, then second label.

    Each appears in both directions.
    """
    matrix: dict[str, dict[str, Comparison]] = {}
    for comparison in comparisons:
        for direction in (comparison, comparison.swapped()):
            matrix.setdefault(direction.first, {})[direction.second] = direction
    return matrix
