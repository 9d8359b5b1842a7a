"""Translation quality of detokenised text against unmodified references.

Scores are 0 to 100 and always come with the signature of their metric.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path

from compare.config.sections import TOKENIZERS
from compare.scoring.metrics import METRICS, TOKENIZE, MetricOptions, clip, make_bleu
from data.files import as_paths, ensure_unchanged
from data.marks import describe_text
from data.text import read_lines


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Metrics to compute, and sacrebleu's options under sacrebleu's names."""

    metrics: Sequence[str] = ("bleu", "chrf")
    """Names from ``METRICS``."""
    tokenize: str = TOKENIZE
    """One of ``TOKENIZERS``, for BLEU only: chrF and TER cut text by their own rules."""
    lowercase: bool = False
    """Whether BLEU ignores case, as sacrebleu's option of that name."""

    def __post_init__(self) -> None:
        """Reject unknown metrics and tokenizers, and an empty list of metrics."""
        for choices, names in ((METRICS, self.metrics), (TOKENIZERS, (self.tokenize,))):
            for name in names:
                if name not in choices:
                    raise ValueError(f"no {name!r} here: choose from {', '.join(choices)}")
        if not self.metrics:
            raise ValueError(f"nothing to compute: choose from {', '.join(METRICS)}")


HEADLINE = ScoringOptions()
"""The metrics that papers of the field report; every result has them."""


def all_metrics(tokenize: str = TOKENIZE) -> ScoringOptions:
    """Return options that compute every registered metric but those ``on_request``."""
    names = tuple(name for name, metric in METRICS.items() if not metric.on_request)
    return ScoringOptions(metrics=names, tokenize=tokenize)


@dataclass(frozen=True, kw_only=True)
class SystemScores:
    """Scores of one text; None where a metric was not computed."""

    bleu: float | None = None
    """BLEU, 0 to 100."""
    bleu_ci_low: float | None = None
    """Lower end of its 95% bootstrap interval over sentences."""
    bleu_ci_high: float | None = None
    """Upper end of that interval."""
    chrf: float | None = None
    """chrF2, 0 to 100."""
    ter: float | None = None
    """TER in percent; lower is better."""
    length_ratio: float | None = None
    """Tokens of the translations over tokens of the references."""
    brevity_penalty: float | None = None
    """Factor of BLEU, up to 1, by which it punishes translations shorter than the references."""
    bleu_signature: str | None = None
    """sacrebleu's version and settings of BLEU."""
    chrf_signature: str | None = None
    """Signature of chrF."""
    ter_signature: str | None = None
    """Signature of TER."""
    warnings: tuple[str, ...] = ()
    """Marks of text that is not plain, such as translations in pieces."""
    scores: Mapping[str, float | str | None] = field(default_factory=dict)
    """Columns of metrics that have no field here: "<name>", "<name>_signature" and so on."""

    def columns(self) -> dict[str, float | str | None]:
        """List every score, signature and end of an interval by column name."""
        columns: dict[str, float | str | None] = asdict(self)
        del columns["scores"], columns["warnings"]
        return columns | dict(self.scores)

    def external(self) -> dict[str, float]:
        """List the scores of metrics from outside, by name: those of no registered metric."""
        columns = self.columns()
        return {
            name: score
            for name, score in columns.items()
            if isinstance(score, float) and f"{name}_signature" in columns and name not in METRICS
        }

    def interval(self, metric: str) -> str:
        """Format the confidence interval of a metric: "[36.50, 39.75]"; empty where it has none.

        Args:
            metric: its name, such as "bleu".
        """
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
        lengths = {"length ratio": self.length_ratio, "brevity penalty": self.brevity_penalty}
        known = [f"{name} {value:.3f}" for name, value in lengths.items() if value is not None]
        lines += [", ".join(known)] if known else []
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])


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
    _check_lengths(hypotheses, references)
    options = MetricOptions(tokenize=scoring.tokenize, lowercase=scoring.lowercase, n_bootstrap=n_bootstrap)
    columns: dict[str, float | str] = {}
    for name, metric in METRICS.items():
        if name in scoring.metrics:
            columns |= metric.compute(hypotheses, references, options).columns(name)
    names = {item.name for item in fields(SystemScores)}
    scores = {name: columns.pop(name) for name in list(columns) if name not in names}
    marks = describe_text(hypotheses, tokenize=scoring.tokenize)
    warnings = tuple(f"translations: {each}" for each in marks)
    return SystemScores(**columns, scores=scores, warnings=warnings)  # type: ignore[arg-type]  # by field


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
        # As sacrebleu reads them: a byte order mark belongs to the first word, a reference may be blank.
        read = partial(read_lines, allow_blank=True, keep_mark=True)
        texts = list(map(read, reference_paths))
        warnings = tuple(
            f"{path}: {each}"
            for path, text in zip(reference_paths, texts, strict=True)
            for each in describe_text(text, tokenize=scoring.tokenize)
        )
        for path, lines in zip(paths, map(read, paths), strict=True):
            for reference, text in zip(reference_paths, texts, strict=True):
                if len(lines) != len(text):
                    raise ValueError(
                        f"{path} has {len(lines)} lines but {reference} has {len(text)}: "
                        "line i of one must translate what line i of the other translates"
                    )
            found = score_texts(lines, *texts, scoring=scoring)
            scores[str(path)] = replace(found, warnings=found.warnings + warnings)
    return scores


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = TOKENIZE) -> float:
    """Compute the ``bleu`` of ``score_texts`` without its interval, fast enough to validate in training."""
    return bleu_and_length_ratio(hypotheses, references, tokenize)[0]


def bleu_and_length_ratio(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = TOKENIZE
) -> tuple[float, float]:
    """Compute the ``bleu`` and ``length_ratio`` of ``score_texts`` without an interval."""
    _check_lengths(hypotheses, [references])
    found = make_bleu(tokenize).corpus_score(hypotheses, [references])
    return clip(found.score), float(found.ratio)


def _check_lengths(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Reject texts that sacrebleu would truncate silently or crash on."""
    for text in (hypotheses, *references):
        if isinstance(text, str):
            raise ValueError(f"expected a list of lines, found one string: {text!r:.60}")
    for lines in references:
        if len(hypotheses) != len(lines):
            raise ValueError(
                f"{len(hypotheses)} lines of hypotheses but {len(lines)} of references: "
                "line i of one must translate what line i of the other translates"
            )
    if not (hypotheses and references):
        raise ValueError("nothing to score: hypotheses or references have no lines")
