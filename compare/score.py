"""Translation quality of detokenised text against untouched references; sacrebleu does all of it.

Every score is on a scale of 0 to 100 and travels with sacrebleu's signature.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

BOOTSTRAP_SEED = "12345"
"""sacrebleu's own default; it stands in the signature beside the number of samples."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """The scores of one text, 0 to 100 each (TER may pass 100), and how they were computed."""

    bleu: float
    """Corpus BLEU (Papineni et al. 2002), mteval-13a tokens, cased, as WMT reports it."""
    bleu_ci_low: float
    bleu_ci_high: float
    """Ends of the 95% interval around the mean of bootstrap samples (Koehn 2004)."""
    chrf: float
    """chrF2 (Popović 2015)."""
    ter: float | None
    """Translation edit rate (Snover et al. 2006), uncased, lower is better; None where not asked for."""
    length_ratio: float
    """Tokens of the hypotheses over tokens of the references."""
    bleu_signature: str
    chrf_signature: str
    ter_signature: str | None

    def __str__(self) -> str:
        """One line a score, its signature at the end; BLEU to the two places that WMT publishes."""
        interval = f"[{self.bleu_ci_low:.2f}, {self.bleu_ci_high:.2f}]"
        lines = [
            f"BLEU  {self.bleu:5.2f} {interval}  {self.bleu_signature}",
            f"chrF  {self.chrf:5.2f}  {self.chrf_signature}",
        ]
        if self.ter is not None:
            lines.append(f"TER   {self.ter:5.2f}  {self.ter_signature}")
        return "\n".join([*lines, f"length ratio {self.length_ratio:.3f}"])


def score(
    hypotheses: Sequence[str], references: Sequence[str], *, n_bootstrap: int = 1000, ter: bool = False
) -> Score:
    """Score line i of ``hypotheses`` against line i of ``references``.

    TER takes longer than all the rest together (6 of 9 seconds for 3,000 lines), so it has to be asked for.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    _check(hypotheses, references)
    if n_bootstrap < 2:
        raise ValueError(f"n_bootstrap is {n_bootstrap}, but an interval takes at least 2 samples")
    bleu_metric, chrf_metric, ter_metric = BLEU(), CHRF(), TER()
    with fixed_seed():
        bleu = bleu_metric.corpus_score(hypotheses, [references], n_bootstrap=n_bootstrap)
    chrf = chrf_metric.corpus_score(hypotheses, [references])
    edits = ter_metric.corpus_score(hypotheses, [references]) if ter else None
    return Score(
        bleu=_on_scale(bleu.score),
        bleu_ci_low=_on_scale(bleu._mean - bleu._ci),  # sacrebleu reports mean +- half the width
        bleu_ci_high=_on_scale(bleu._mean + bleu._ci),
        chrf=chrf.score,
        ter=edits.score if edits else None,
        length_ratio=bleu.ratio,
        bleu_signature=str(bleu_metric.get_signature()),
        chrf_signature=str(chrf_metric.get_signature()),
        ter_signature=str(ter_metric.get_signature()) if edits else None,
    )


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The ``bleu`` of ``score`` and nothing else: 0.5 s for 3,000 lines, for use while training."""
    from sacrebleu.metrics.bleu import BLEU

    _check(hypotheses, references)
    return _on_scale(BLEU().corpus_score(hypotheses, [references]).score)


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Refuse what sacrebleu would cut short in silence or crash on."""
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} lines of hypotheses but {len(references)} of references: "
            "line i of one must translate what line i of the other translates"
        )
    if not references:
        raise ValueError("nothing to score: both hypotheses and references have no lines")


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
