"""Statistics of sentences as sacrebleu counts them; the n-grams of the references are counted once."""

from collections.abc import Sequence
from functools import lru_cache

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


def extract_statistics(
    metric: type[BLEU | CHRF], hypotheses: Sequence[str], references: Sequence[str]
) -> list[list[int]]:
    """Return the counts from which sacrebleu computes a corpus score, for each of N sentences.

    Args:
        metric: which score; it is used with its defaults.
        hypotheses: N translations.
        references: their N references.

    Raises:
        ValueError: there are not as many hypotheses as references.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, but {len(references)} references")
    if not hypotheses:
        return []
    counted = _with_references(metric, tuple(references))
    # None: those that were counted when the metric was made.
    rows: list[list[int]] = counted._extract_corpus_statistics(hypotheses, None)
    return rows


@lru_cache(maxsize=4)  # two metrics of two test sets; the runs of a test set are scored one after the other
def _with_references(metric: type[BLEU | CHRF], references: tuple[str, ...]) -> BLEU | CHRF:
    """Return a metric that has counted the n-grams of its references."""
    counted = metric(references=[references])
    counted._force = True  # no warning of text that is tokenised
    return counted
