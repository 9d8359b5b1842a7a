"""Translation quality of detokenised text against untouched references; sacrebleu does all of it.

Every score is on a scale of 0 to 100 and travels with sacrebleu's signature.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from data.text.files import ensure_unchanged
from data.text.lines import read_lines

BOOTSTRAP_SEED = "12345"
"""sacrebleu's own default; it stands in the signature beside the number of samples."""


METRICS = ("bleu", "chrf", "ter")
TOKENIZERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none")
"""sacrebleu's without those that fetch a model from the network."""


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Which scores are computed, and what is done to the text first, under sacrebleu's names."""

    metrics: Sequence[str] = ("bleu", "chrf")
    """Some of ``METRICS``."""
    tokenize: str = "13a"
    """One of ``TOKENIZERS``, for BLEU alone: chrF and TER cut text by rules of their own."""
    lowercase: bool = False
    """Lower the case for BLEU, as sacrebleu's option of that name does."""

    def __post_init__(self) -> None:
        """Reject what sacrebleu does not know, or would fetch."""
        for known, names in ((METRICS, self.metrics), (TOKENIZERS, (self.tokenize,))):
            for name in names:
                if name not in known:
                    raise ValueError(f"no {name!r} here: choose from {', '.join(known)}")
        if not self.metrics:
            raise ValueError(f"nothing to compute: choose from {', '.join(METRICS)}")


HEADLINE = ScoringOptions()
"""What this project's tables hold and papers of the field report, but for TER."""
ALL = ScoringOptions(metrics=METRICS)


@dataclass(frozen=True, kw_only=True)
class SystemScores:
    """The scores of one text, 0 to 100 each (TER may pass 100), and how; None where not asked for."""

    bleu: float | None = None
    """Corpus BLEU (Papineni et al. 2002), by default of mteval-13a tokens, cased, as WMT reports it."""
    bleu_ci_low: float | None = None
    bleu_ci_high: float | None = None
    """Ends of the 95% interval around the mean of bootstrap samples (Koehn 2004)."""
    chrf: float | None = None
    """chrF2 (Popović 2015), cased."""
    ter: float | None = None
    """Translation edit rate (Snover et al. 2006), uncased, lower is better."""
    length_ratio: float | None = None
    """BLEU's tokens of the hypotheses over those of the references, of several the nearest in length."""
    bleu_signature: str | None = None
    chrf_signature: str | None = None
    ter_signature: str | None = None

    @property
    def interval(self) -> str:
        """The interval of BLEU to two places: [36.50, 39.75]."""
        return f"[{self.bleu_ci_low:.2f}, {self.bleu_ci_high:.2f}]"

    def __str__(self) -> str:
        """One line a score, its signature at the end; BLEU to the two places that WMT publishes."""
        lines = []
        if self.bleu is not None:
            lines.append(f"BLEU  {self.bleu:5.2f} {self.interval}  {self.bleu_signature}")
        if self.chrf is not None:
            lines.append(f"chrF  {self.chrf:5.2f}  {self.chrf_signature}")
        if self.ter is not None:
            lines.append(f"TER   {self.ter:5.2f}  {self.ter_signature}")
        if self.length_ratio is not None:
            lines.append(f"length ratio {self.length_ratio:.3f}")
        return "\n".join(lines)


def score_texts(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    scoring: ScoringOptions = HEADLINE,
    n_bootstrap: int = 1000,
) -> SystemScores:
    """Score line i of ``hypotheses`` against line i of each of ``references``.

    TER takes longer than all the rest together (6 of 9 seconds for 3,000 lines), so it has to be asked for.

    Raises:
        ValueError: texts of different length or of none, or a tokenizer whose package is not installed.
    """
    _check(hypotheses, references)
    found: dict[str, float | str] = {}
    if "bleu" in scoring.metrics:
        found |= _bleu(hypotheses, references, scoring, n_bootstrap)
    if "chrf" in scoring.metrics:
        from sacrebleu.metrics.chrf import CHRF

        chrf = CHRF()
        found["chrf"] = chrf.corpus_score(hypotheses, references).score
        found["chrf_signature"] = str(chrf.get_signature())
    if "ter" in scoring.metrics:
        from sacrebleu.metrics.ter import TER

        ter = TER()
        found["ter"] = ter.corpus_score(hypotheses, references).score
        found["ter_signature"] = str(ter.get_signature())
    return SystemScores(**found)  # type: ignore[arg-type]  # each under the name of its field


def score_files(
    systems: Sequence[Path], references: Sequence[Path], scoring: ScoringOptions
) -> dict[str, SystemScores]:
    """Score each of the files ``systems`` against all of ``references``; the names are their paths.

    Raises:
        ValueError, OSError: a file that cannot be read, that changes meanwhile, or that does not fit.
    """
    found = {}
    with ensure_unchanged(*systems, *references):
        texts = [read_lines(path) for path in references]
        for path in systems:
            lines = read_lines(path, allow_blank=True)
            for reference, text in zip(references, texts, strict=True):
                if len(lines) != len(text):
                    raise ValueError(
                        f"{path} has {len(lines)} lines but {reference} has {len(text)}: "
                        "line i of one must translate what line i of the other translates"
                    )
            found[str(path)] = score_texts(lines, *texts, scoring=scoring)
    return found


def _bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], scoring: ScoringOptions, n_bootstrap: int
) -> dict[str, float | str]:
    """BLEU with its interval, and the ratio of lengths that it goes by."""
    from sacrebleu.metrics.bleu import BLEU

    if n_bootstrap < 2:
        raise ValueError(f"n_bootstrap is {n_bootstrap}, but an interval takes at least 2 samples")
    try:
        metric = BLEU(tokenize=scoring.tokenize, lowercase=scoring.lowercase)
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"tokenizer {scoring.tokenize} cannot be used: {reason}") from None
    with fixed_seed():
        bleu = metric.corpus_score(hypotheses, references, n_bootstrap=n_bootstrap)
    return {
        "bleu": _on_scale(bleu.score),
        "bleu_ci_low": _on_scale(bleu._mean - bleu._ci),  # sacrebleu reports mean +- half the width
        "bleu_ci_high": _on_scale(bleu._mean + bleu._ci),
        "length_ratio": bleu.ratio,
        "bleu_signature": str(metric.get_signature()),
    }


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The ``bleu`` of ``score_texts`` and nothing else: 0.5 s for 3,000 lines, for use while training."""
    from sacrebleu.metrics.bleu import BLEU

    _check(hypotheses, [references])
    return _on_scale(BLEU().corpus_score(hypotheses, [references]).score)


def _check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse what sacrebleu would cut short in silence or crash on."""
    for lines in references:
        if len(hypotheses) != len(lines):
            raise ValueError(
                f"{len(hypotheses)} lines of hypotheses but {len(lines)} of references: "
                "line i of one must translate what line i of the other translates"
            )
    if not (hypotheses and references):
        raise ValueError("nothing to score: hypotheses or references have no lines")


def _on_scale(value: float) -> float:
    """``value`` without the rounding that makes a perfect score of 100.00000000000004."""
    return min(max(float(value), 0.0), 100.0)


@contextmanager
def fixed_seed() -> Iterator[None]:
    """Keep a SACREBLEU_SEED of the user's shell from changing the interval between two runs."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = BOOTSTRAP_SEED
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
