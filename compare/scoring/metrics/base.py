"""Base class of metrics, their options and their scores."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """Options that a metric may use; one that has no use for an option ignores it."""

    tokenize: str = "13a"
    """sacrebleu's tokenizer of BLEU."""
    lowercase: bool = False
    """Whether BLEU ignores case."""
    n_bootstrap: int = 1000
    """Resampled test sets behind a confidence interval."""


@dataclass(frozen=True, kw_only=True)
class MetricScore:
    """Score of one text by one metric."""

    score: float
    """Score of the whole text, 0 to 100 for most metrics."""
    signature: str
    """Version and settings of the metric; scores compare only under the same signature."""
    interval: tuple[float, float] | None = None
    """Ends of the 95% confidence interval; None where the metric has none."""
    details: Mapping[str, float] = field(default_factory=dict)
    """Further figures of the metric by column name."""

    def columns(self, name: str) -> dict[str, float | str]:
        """List everything by column name: "bleu", "bleu_ci_low" and so on.

        Args:
            name: name of the metric.
        """
        columns: dict[str, float | str] = {name: self.score, f"{name}_signature": self.signature}
        if self.interval is not None:
            columns[f"{name}_ci_low"], columns[f"{name}_ci_high"] = self.interval
        return columns | dict(self.details)


class Metric(ABC):
    """A translation metric over a whole test set.

    A new metric is a subclass and a call of ``register_metric``; inside attnbench, a file of its own and one
    line in ``METRICS``. Listing the metrics imports that file, so it imports slow packages only inside
    ``compute``.
    """

    name: str
    """Name in options, result files and columns: lower-case letters, digits and underscores."""
    heading: str
    """Name in tables and reports."""
    help: str
    """Explanation of the score with its source, as a phrase for tooltips."""
    note: str = ""
    """Remark behind its name in the help of ``--metrics``, such as "slow"."""
    decimals: int = 1
    """Decimal places in tables; ``attnbench score`` prints one more."""
    higher_is_better: bool = True
    """Whether a higher score is a better translation."""
    on_request: bool = False
    """Whether it is computed only where it is asked for by name, not for every result."""

    @abstractmethod
    def compute(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: MetricOptions
    ) -> MetricScore:
        """Score detokenised text.

        Args:
            hypotheses: translations, one line per sentence.
            references: one or more reference translations, each as long as ``hypotheses``.
            options: settings that the metric may use.

        Returns:
            The score with its signature.

        Raises:
            ValueError: an option that the metric cannot work with.
        """
