"""BLEU by sacrebleu, with a bootstrap confidence interval."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from compare.scoring.metrics.base import Metric, MetricOptions, MetricScore

BOOTSTRAP_SEED = "12345"
"""sacrebleu's default; the signature names it beside the number of samples."""


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
        from sacrebleu.metrics.bleu import BLEU

        if options.n_bootstrap < 2:
            raise ValueError(
                f"n_bootstrap is {options.n_bootstrap}, but an interval takes at least 2 samples"
            )
        try:
            metric = BLEU(tokenize=options.tokenize, lowercase=options.lowercase)
        except (ImportError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"tokenizer {options.tokenize} cannot be used: {reason}") from None
        with fixed_seed():
            bleu = metric.corpus_score(hypotheses, references, n_bootstrap=options.n_bootstrap)
        low, high = bleu._mean - bleu._ci, bleu._mean + bleu._ci  # _ci is half the width of the interval
        return MetricScore(
            score=clip(bleu.score),
            signature=str(metric.get_signature()),
            interval=(clip(low), clip(high)),
            details={"length_ratio": bleu.ratio, "brevity_penalty": bleu.bp},
        )


def clip(score: float) -> float:
    """Limit ``score`` to 0..100: rounding makes a perfect BLEU 100.00000000000004."""
    return min(max(float(score), 0.0), 100.0)


@contextmanager
def fixed_seed() -> Iterator[None]:
    """Override SACREBLEU_SEED, so that the user's shell cannot change the interval between two runs."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = BOOTSTRAP_SEED
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
