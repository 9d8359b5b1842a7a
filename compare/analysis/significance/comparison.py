"""What is known of one model against another, and when one may be said to beat the other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from compare.analysis.significance.intervals import Interval, Intervals
from compare.analysis.table import Row

ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How model ``first`` did against model ``second`` on one test set, over the seeds both have."""

    first: str
    second: str
    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    """BLEU of first minus second, one a seed."""
    intervals: Intervals
    """Of the mean difference."""
    p_randomisation: float
    p_bootstrap: float
    """Over all seeds, not yet corrected: see ``compare.analysis.significance.paired_tests.seeds_p``."""
    p: float
    """``p_randomisation`` by Holm's correction for all comparisons made together with this one.

    The randomisation decides because the bootstrap rejects too readily (Riezler and Maxwell 2005).
    """
    wins: float
    losses: float
    ties: float
    """Sentences in which first has the higher chrF, the lower, the same; means over the seeds."""

    @property
    def difference(self) -> float:
        """The mean of ``differences``."""
        return sum(self.differences) / len(self.differences)

    @property
    def doubt(self) -> str | None:
        """Why neither model can be said to beat the other; None where one does."""
        if self.intervals.seeds is None:
            return "one seed says nothing about others"
        if not same_sign(self.differences):
            return "the seeds do not agree on which is better"
        if not self.p < ALPHA:
            return f"{describe_p(self.p)} is not below {ALPHA}"
        low, high = self.intervals.seeds
        if low <= 0 <= high:
            return f"the interval over seeds, {low:.2f} to {high:.2f}, includes 0"
        return None

    @property
    def beats(self) -> bool:
        """Whether first beats second: corrected p under .05, and the seed interval clear of 0."""
        return self.doubt is None and self.difference > 0

    def swapped(self) -> "Comparison":
        """The same comparison told from the other side."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            differences=tuple(-difference for difference in self.differences),
            intervals=self.intervals.map(lambda each: Interval(-each.high, -each.low)),
            wins=self.losses,
            losses=self.wins,
        )

    @property
    def row(self) -> Row:
        """All of it as one row of a table; ``verdict`` is why nothing can be said, where nothing can."""
        beaten = f"{self.first} beats {self.second}" if self.beats else f"{self.second} beats {self.first}"
        return {
            "model": self.first,
            "against": self.second,
            "seeds": len(self.seeds),
            "bleu_difference": self.difference,
            **self.intervals.columns("bleu_difference"),
            "p_randomisation": self.p_randomisation,
            "p_bootstrap": self.p_bootstrap,
            "p_holm": self.p,
            "sentences_won": self.wins,
            "sentences_lost": self.losses,
            "sentences_tied": self.ties,
            "verdict": self.doubt or beaten,
        }


def same_sign(differences: Sequence[float]) -> bool:
    """Whether all of ``differences`` have the same sign; 0 has none."""
    return all(each > 0 for each in differences) or all(each < 0 for each in differences)


def describe_p(p: float) -> str:
    """A p-value as it is quoted, to two digits: p = 0.0031."""
    return f"p = {p:.2g}" if p >= 0.0001 else "p < 0.0001"


def comparison_matrix(comparisons: Iterable[Comparison]) -> dict[str, dict[str, Comparison]]:
    """Every comparison by first label, then second, from both sides."""
    found: dict[str, dict[str, Comparison]] = {}
    for comparison in comparisons:
        for side in (comparison, comparison.swapped()):
            found.setdefault(side.first, {})[side.second] = side
    return found
