"""Metrics of translation quality on sacreBLEU, their registry, and scores of detokenised text.

Scores are 0 to 100 and always come with the signature of their metric; references are never modified.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from data.files import as_paths, ensure_unchanged
from data.forms import describe_text, describe_translations, distinct_lines, repeats_phrase
from data.text import ensure_parallel, list_lines, read_lines

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU


# Tokenizers of BLEU.


Tokenizer = Literal["auto", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none"]
TOKENIZERS = get_args(Tokenizer)[1:]
"""sacreBLEU's tokenizers, except those that download a model."""
TOKENIZE: Tokenizer = "13a"
"""The default tokenizer; experiments have ``scoring.tokenize``."""
SPACED_TOKENIZERS = ("13a", "intl", "none")
"""Tokenizers to which a sentence without spaces is one word."""
LANGUAGE_TOKENIZERS: dict[str, Tokenizer] = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
"""sacreBLEU's tokenizers by target language; others have ``TOKENIZE``."""
ISO_639_3 = {"zho": "zh", "cmn": "zh", "jpn": "ja", "kor": "ko"}
"""Three-letter codes of these languages."""


def language_tokenizer(language: str) -> Tokenizer:
    """Return sacreBLEU's tokenizer of a target language, also of zh-CN, lc.zh or zho_Hans."""
    code = re.split("[-_]", language.rpartition(".")[2].lower())[0]
    return LANGUAGE_TOKENIZERS.get(ISO_639_3.get(code, code), TOKENIZE)


# Test sets that decide a comparison.


def outcome_tests(outcome: str, tests: Sequence[str]) -> list[str]:
    """Return the test sets whose mean BLEU decides by ``scoring.outcome``; ValueError if none does."""
    choices = {"first": tests[:1], "mean": tests, **{test: [test] for test in tests}}
    if outcome not in choices:
        raise ValueError(f'scoring.outcome = "{outcome}" is no test set; choose one of {", ".join(choices)}')
    return list(choices[outcome])


# Base class of metrics, their options and their scores.


Lines = Sequence[str]
"""Translations or references, one line per sentence."""


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """Options that a metric may use or ignore."""

    tokenize: str = TOKENIZE
    lowercase: bool = False
    n_bootstrap: int = 1000
    """Resampled test sets behind a confidence interval."""


@dataclass(frozen=True, kw_only=True)
class MetricScore:
    """Score of one text by one metric."""

    score: float
    """Score of the whole text, 0 to 100 for most metrics."""
    signature: str
    """Version and settings; scores compare only under the same signature."""
    interval: tuple[float, float] | None = None
    """95% confidence interval, if the metric has one."""
    details: Mapping[str, float] = field(default_factory=dict)
    """Further figures by column name."""

    def columns(self, name: str) -> dict[str, float | str]:
        """List everything by column name: "bleu", "bleu_ci_low" and so on."""
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
    decimals: int = 1
    """Decimal places in tables; ``attnbench score`` prints one more."""
    higher_is_better: bool = True
    on_request: bool = False
    """True if the metric is computed only when asked for by name."""

    @abstractmethod
    def compute(self, hypotheses: Lines, references: Sequence[Lines], options: MetricOptions) -> MetricScore:
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

    def compute(self, hypotheses: Lines, references: Sequence[Lines], options: MetricOptions) -> MetricScore:
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
    """Make sacrebleu's BLEU; ValueError names the extra that the tokenizer lacks."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=tokenize, force=True, **options)  # force: no advice on sacrebleu's options
    except (ImportError, RuntimeError):
        language = tokenize.partition("-")[0]
        raise ValueError(
            f"BLEU's tokenizer {tokenize} is not installed: pip install 'attnbench[{language}]', or choose "
            "another with scoring.tokenize (attnbench score: --tokenize)"
        ) from None


def clip(score: float) -> float:
    """Limit a score to 0..100, which rounding can exceed."""
    return min(max(float(score), 0.0), 100.0)


# chrF and chrF++ by sacrebleu.


class Chrf(Metric):
    """chrF2, cased."""

    name = "chrf"
    heading = "chrF"
    help = "overlap of character 1- to 6-grams (Popović 2015), cased"
    word_order = 0
    """Longest n-grams of words that count too."""

    def compute(self, hypotheses: Lines, references: Sequence[Lines], options: MetricOptions) -> MetricScore:
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
    higher_is_better = False

    def compute(self, hypotheses: Lines, references: Sequence[Lines], options: MetricOptions) -> MetricScore:
        """Score; Chinese and Japanese are cut into characters, else a sentence would be one word."""
        from sacrebleu.metrics.ter import TER

        cut = options.tokenize in ("zh", "ja-mecab")
        return _score(TER(normalized=cut, asian_support=cut), hypotheses, references)


def _score(metric: Any, hypotheses: Lines, references: Sequence[Lines]) -> MetricScore:
    score = metric.corpus_score(hypotheses, references).score
    return MetricScore(score=score, signature=str(metric.get_signature()))


# Registry of metrics.


METRICS: dict[str, Metric] = {metric.name: metric for metric in (Bleu(), Chrf(), ChrfPlusPlus(), Ter())}
"""Every metric by name, in the order of tables."""


def list_metrics() -> list[str]:
    """Return the names of all metrics in the order of tables, registered ones included."""
    return list(METRICS)


def register_metric(metric: Metric) -> None:
    """Add a metric, so that ``score_texts``, results, tables and reports can compute and show it.

    Args:
        metric: an instance of a subclass of ``Metric``; ``metric.name`` is its name in options and columns.

    Raises:
        ValueError: not an instance of such a subclass, or the name is taken, also by a figure of
            ``SystemScores``, or has other characters than lower-case letters, digits and underscores.
    """
    if not isinstance(metric, Metric):
        raise ValueError(f"a metric must be an instance of a subclass of Metric, found {metric!r:.80}")
    if not re.fullmatch("[a-z][a-z0-9_]*", metric.name):
        raise ValueError(f"metric {metric.name!r}: use only lower-case letters, digits and underscores")
    if metric.name in METRICS or metric.name in {item.name for item in fields(SystemScores)}:
        raise ValueError(f"the metric {metric.name!r} exists already: choose another name")
    METRICS[metric.name] = metric


def metric_of(column: str) -> Metric | None:
    """Return the metric of a score column such as "ter_signature_test_long", or None."""
    names = [name for name in METRICS if column == name or column.startswith(f"{name}_")]
    return METRICS[max(names, key=len)] if names else None


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Metrics to compute, and sacrebleu's options under sacrebleu's names."""

    metrics: Sequence[str] = ("bleu", "chrf")
    """Names from ``METRICS``."""
    tokenize: str = TOKENIZE
    """One of ``TOKENIZERS``, for BLEU only: chrF and TER have their own rules."""
    lowercase: bool = False
    """True if BLEU ignores case."""

    def __post_init__(self) -> None:
        """Reject unknown metrics and tokenizers, and an empty list of metrics."""
        for kind, choices, names in (
            ("metric", METRICS, self.metrics),
            ("tokenizer", TOKENIZERS, [self.tokenize]),
        ):
            for name in names:
                if name not in choices:
                    raise ValueError(f"unknown {kind} {name!r}: choose from {', '.join(choices)}")
        if not self.metrics:
            raise ValueError(f"no metrics: choose from {', '.join(METRICS)}")


HEADLINE = ScoringOptions()
"""The metrics that every result has."""


def all_metrics(tokenize: str = TOKENIZE) -> ScoringOptions:
    """Return options with every registered metric except those ``on_request``."""
    names = tuple(name for name, metric in METRICS.items() if not metric.on_request)
    return ScoringOptions(metrics=names, tokenize=tokenize)


@dataclass(frozen=True, kw_only=True)
class SystemScores:
    """Scores of one text; None where a metric was not computed."""

    bleu: float | None = None
    bleu_ci_low: float | None = None
    """Lower end of the 95% bootstrap interval over sentences."""
    bleu_ci_high: float | None = None
    chrf: float | None = None
    ter: float | None = None
    """Percent; lower is better."""
    length_ratio: float | None = None
    """Tokens of the translations over tokens of the references."""
    brevity_penalty: float | None = None
    """Factor of BLEU for translations that are too short."""
    bleu_signature: str | None = None
    chrf_signature: str | None = None
    ter_signature: str | None = None
    distinct_lines: float | None = None
    """Different translations over all."""
    repeats: int | None = None
    """Translations with a phrase three times in a row."""
    warnings: tuple[str, ...] = ()
    """Faults of the translations as a text, such as pieces of words."""
    scores: Mapping[str, float | str | None] = field(default_factory=dict)
    """Columns of other metrics: "<name>", "<name>_signature" and so on."""

    def columns(self) -> dict[str, float | str | None]:
        """List every score, signature and end of an interval by column name."""
        columns: dict[str, float | str | None] = asdict(self)
        del columns["scores"], columns["warnings"]
        return columns | dict(self.scores)

    def external(self) -> dict[str, float]:
        """List the scores of unregistered metrics."""
        columns = self.columns()
        return {
            name: score
            for name, score in columns.items()
            if isinstance(score, float) and f"{name}_signature" in columns and name not in METRICS
        }

    def interval(self, metric: str) -> str:
        """Format the confidence interval of a metric: "[36.50, 39.75]"; empty without one."""
        low, high = (self.columns().get(f"{metric}_ci_{end}") for end in ("low", "high"))
        if low is None or high is None:
            return ""
        places = METRICS[metric].decimals + 1  # WMT publishes BLEU to two places
        return f"[{low:.{places}f}, {high:.{places}f}]"

    def __str__(self) -> str:
        """Format one line per score, its signature at the end."""
        columns = self.columns()
        lines = []
        for name, metric in METRICS.items():
            if (score := columns.get(name)) is not None:
                text = f"{metric.heading:<5} {score:5.{metric.decimals + 1}f} {self.interval(name)}"
                lines.append(f"{text.rstrip()}  {columns[f'{name}_signature']}")
        for name, score in self.external().items():
            lines.append(f"{name:<5} {score:6.2f}  {columns[f'{name}_signature']}")
        lengths = {
            "length ratio": self.length_ratio,
            "brevity penalty": self.brevity_penalty,
            "different lines": self.distinct_lines,
        }
        lines.append(", ".join(f"{name} {value:.3f}" for name, value in lengths.items() if value is not None))
        return "\n".join([*filter(None, lines), *(f"warning: {warning}" for warning in self.warnings)])


def score_texts(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    scoring: ScoringOptions = HEADLINE,
    n_bootstrap: int = 1000,
) -> SystemScores:
    """Score line i of ``hypotheses`` against line i of each of ``references``.

    Args:
        hypotheses: detokenised translations, one string per sentence.
        references: one or more lists of detokenised references, each as long as ``hypotheses``.
        scoring: metrics and their options; by default BLEU and chrF.
        n_bootstrap: resampled test sets behind the confidence interval of BLEU.

    Returns:
        Scores from 0 to 100 with their signatures; ``print`` shows one line per score.

    Raises:
        ValueError: one string instead of a list, texts of different length or without lines, or a
            tokenizer whose package is not installed.
    """
    hypotheses, references = _list_texts(hypotheses, *references)
    options = MetricOptions(tokenize=scoring.tokenize, lowercase=scoring.lowercase, n_bootstrap=n_bootstrap)
    columns: dict[str, float | str] = {}
    for name, metric in METRICS.items():
        if name in scoring.metrics:
            columns |= metric.compute(hypotheses, references, options).columns(name)
    columns |= {"distinct_lines": distinct_lines(hypotheses), "repeats": sum(map(repeats_phrase, hypotheses))}
    names = {item.name for item in fields(SystemScores)}
    scores = {name: columns.pop(name) for name in list(columns) if name not in names}
    unspaced = scoring.tokenize in SPACED_TOKENIZERS
    warnings = describe_translations(hypotheses, *references, unspaced=unspaced)
    return SystemScores(
        **columns,  # type: ignore[arg-type]  # by field
        scores=scores,
        warnings=tuple(f"translations: {warning}" for warning in warnings),
    )


def score_files(
    systems: str | Path | Sequence[str | Path],
    references: str | Path | Sequence[str | Path],
    scoring: ScoringOptions = HEADLINE,
) -> dict[str, SystemScores]:
    """Score each of the files ``systems`` against all of ``references``.

    Args:
        systems: one or more files of translations, one line per sentence, plain or .gz.
        references: one or more files of references, with as many lines.
        scoring: metrics and their options.

    Returns:
        The scores by path, in the order of ``systems``.

    Raises:
        ValueError, OSError: a file that cannot be read, that changes meanwhile, or of another length.
    """
    scores = {}
    paths, reference_paths = as_paths(systems), as_paths(references)
    with ensure_unchanged(*paths, *reference_paths):
        outputs, texts = read_scored(paths, reference_paths)
        warnings = describe_references(reference_paths, texts, scoring)
        for path, lines in zip(paths, outputs, strict=True):
            result = score_texts(lines, *texts, scoring=scoring)
            scores[str(path)] = replace(result, warnings=result.warnings + warnings)
    return scores


def describe_references(
    paths: Sequence[Path], texts: Sequence[Sequence[str]], scoring: ScoringOptions
) -> tuple[str, ...]:
    """List the forms of references that plain text does not have."""
    unspaced = scoring.tokenize in SPACED_TOKENIZERS
    return tuple(
        f"{path}: {finding}"
        for path, text in zip(paths, texts, strict=True)
        for finding in describe_text(text, unspaced=unspaced)
    )


def read_scored(
    systems: Sequence[Path], references: Sequence[Path]
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Read translations and references as sacrebleu does; ValueError if their lengths differ.

    A byte order mark belongs to the first word, and a reference may be blank.
    """
    outputs, texts = (
        [read_lines(path, allow_blank=True, keep_mark=True) for path in paths]
        for paths in (systems, references)
    )
    for path, lines in zip(systems, outputs, strict=True):
        for reference, text in zip(references, texts, strict=True):
            ensure_parallel(path, len(lines), reference, len(text))
    return outputs, texts


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = TOKENIZE) -> float:
    """Compute the ``bleu`` of ``score_texts`` without its interval, fast enough for validation."""
    return bleu_and_length_ratio(hypotheses, references, tokenize)[0]


def bleu_and_length_ratio(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = TOKENIZE
) -> tuple[float, float]:
    """Compute the ``bleu`` and ``length_ratio`` of ``score_texts`` without an interval."""
    score = make_bleu(tokenize).corpus_score(*_list_texts(hypotheses, references))
    return clip(score.score), float(score.ratio)


def _list_texts(*texts: Sequence[str]) -> tuple[list[str], tuple[list[str], ...]]:
    """Return the texts as lists; reject what sacrebleu would cut silently or crash on."""
    hypotheses, *rest = map(list_lines, texts)
    references = tuple(rest)
    for lines in references:
        if len(hypotheses) != len(lines):
            raise ValueError(
                f"{len(hypotheses)} hypotheses, but {len(lines)} references: "
                "line i of both must translate the same sentence"
            )
    if not (hypotheses and references):
        raise ValueError("nothing to score: hypotheses or references are empty")
    return hypotheses, references
