"""Metrics on sacreBLEU, one class each, and their registry."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compare.system.plugins import track_registry

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

# Base class of metrics, their options and their scores.


TOKENIZE = "13a"
"""sacrebleu's tokenizer of BLEU where no other is asked for; experiments have ``scoring.tokenize``."""


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """Options that a metric may use; one that has no use for an option ignores it."""

    tokenize: str = TOKENIZE
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

    A new metric is a subclass and a call of ``register_metric``; inside attnbench, a class here and an entry
    of ``METRICS``. Slow packages are imported inside ``compute``.
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


# BLEU by sacrebleu, with a bootstrap confidence interval.


BOOTSTRAP_SEED = 12345
"""sacrebleu's default, for other resampling too; its signature names it beside the number of samples."""


class Bleu(Metric):
    """Corpus BLEU, by default of mteval-13a tokens, cased, as WMT reports it."""

    name = "bleu"
    heading = "BLEU"
    help = "overlap of 1- to 4-grams (Papineni et al. 2002), cased"

    def compute(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: MetricOptions
    ) -> MetricScore:
        """Score, with the interval around the mean of bootstrap samples (Koehn 2004) and the length ratio.

        ``length_ratio`` is the number of hypothesis tokens over that of reference tokens; of several
        references the one nearest in length counts. ``brevity_penalty`` is exp(1 - 1 / length_ratio), at most
        1, a factor of the score.
        """
        metric = make_bleu(options.tokenize, lowercase=options.lowercase)
        bleu = metric.corpus_score(hypotheses, references, n_bootstrap=options.n_bootstrap)
        low, high = bleu._mean - bleu._ci, bleu._mean + bleu._ci  # _ci is half the width of the interval
        return MetricScore(
            score=clip(bleu.score),
            signature=str(metric.get_signature()),
            interval=(clip(low), clip(high)),
            details={"length_ratio": bleu.ratio, "brevity_penalty": bleu.bp},
        )


def make_bleu(tokenize: str, **options: Any) -> "BLEU":
    """Make sacrebleu's BLEU; ValueError names the extra that the tokenizer lacks.

    Args:
        tokenize: name of the tokenizer.
        options: others of sacrebleu.
    """
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=tokenize, force=True, **options)  # no advice on options of sacrebleu's
    except (ImportError, RuntimeError):
        language = tokenize.partition("-")[0]
        raise ValueError(
            f"BLEU's tokenizer {tokenize} is not installed: pip install 'attnbench[{language}]', or choose "
            "another by scoring.tokenize (of attnbench score: --tokenize)"
        ) from None


def clip(score: float) -> float:
    """Limit ``score`` to 0..100: rounding makes a perfect BLEU 100.00000000000004."""
    return min(max(float(score), 0.0), 100.0)


# chrF and chrF++ by sacrebleu.


class Chrf(Metric):
    """chrF2, cased."""

    name = "chrf"
    heading = "chrF"
    help = "overlap of character 1- to 6-grams (Popović 2015), cased"
    word_order = 0
    """Longest n-grams of words that count too."""

    def compute(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: MetricOptions
    ) -> MetricScore:
        """Score; no option applies, chrF cuts text by its own rules."""
        from sacrebleu.metrics.chrf import CHRF

        return _score(CHRF(word_order=self.word_order), hypotheses, references)


class ChrfPlusPlus(Chrf):
    """chrF2 with words and pairs of words, cased."""

    name = "chrf++"
    heading = "chrF++"
    help = "overlap of character 1- to 6-grams, words and pairs of words (Popović 2017), cased"
    on_request = True
    word_order = 2


# TER by sacrebleu.


class Ter(Metric):
    """Translation edit rate, uncased; it may exceed 100.

    It takes longer than BLEU with its interval and chrF together: 6 of 9 seconds for 3,000 lines.
    """

    name = "ter"
    heading = "TER"
    help = "edits per reference word (Snover et al. 2006), uncased"
    note = "slow"
    higher_is_better = False

    def compute(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], options: MetricOptions
    ) -> MetricScore:
        """Score; no option applies, TER cuts text by its own rules."""
        from sacrebleu.metrics.ter import TER

        return _score(TER(), hypotheses, references)


def _score(metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> MetricScore:
    """Score by one of sacrebleu's metrics."""
    score = metric.corpus_score(hypotheses, references).score
    return MetricScore(score=score, signature=str(metric.get_signature()))


# Registry of metrics.


METRICS: dict[str, Metric] = {metric.name: metric for metric in (Bleu(), Chrf(), ChrfPlusPlus(), Ter())}
"""Every metric by name, in the order of tables."""
track_registry("metric", METRICS)


def list_metrics() -> list[str]:
    """Return the names of all metrics in the order of tables, registered ones included."""
    return list(METRICS)


def register_metric(metric: Metric) -> None:
    """Add a metric, so that ``score_texts``, results, tables and reports can compute and show it.

    Args:
        metric: an instance of a subclass of ``Metric``; ``metric.name`` is its name in options and columns.

    Raises:
        ValueError: not an instance of such a subclass, or the name is taken or has other characters than
            lower-case letters, digits and underscores.
    """
    if not isinstance(metric, Metric):
        raise ValueError(f"a metric must be an instance of a subclass of Metric, found {metric!r:.80}")
    if not re.fullmatch("[a-z][a-z0-9_]*", metric.name):
        raise ValueError(f"metric {metric.name!r}: use lower-case letters, digits and underscores alone")
    if metric.name in METRICS:
        raise ValueError(f"the metric {metric.name!r} exists already: choose another name")
    METRICS[metric.name] = metric


def metric_of(column: str) -> Metric | None:
    """Return the metric of a score column such as "ter_signature_test_long"; None for other columns."""
    names = [name for name in METRICS if column == name or column.startswith(f"{name}_")]
    return METRICS[max(names, key=len)] if names else None
