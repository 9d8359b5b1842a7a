"""Attention entropy of the models of an experiment; this needs no gold links.

Shapes: C heads and means of heads of a model.
"""

from collections.abc import Sequence

from compare.analysis.alignment.entropy import AttentionEntropy, none_if_nan, sum_entropy
from compare.analysis.alignment.gold import WordPair, get_split, word_pairs
from compare.analysis.alignment.word_attention import AttentionHead, attend_words
from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.table import Row
from compare.decoding.translator import Translator
from compare.results.trained_model import load_model


def attention_spread(
    finished: FinishedExperiment, *, test: str | None = None, device: str = "cpu"
) -> list[Row]:
    """Measure the entropy of attention over a test set.

    The entropy of a head is its mean over target words, in nats and as a share of log S.

    Args:
        finished: the experiment.
        test: name of a test set; None is the first, which gives the headline.
        device: the torch device on which the models run.

    Returns:
        One row per run with attention to the source: the mean over all heads of all layers, and the entropies
        of the head with the lowest and of the head with the highest.

    Raises:
        ValueError: the test set does not exist, or a run cannot be loaded.
    """
    pairs = word_pairs(get_split(finished.corpus, test or finished.corpus.tests[0]))
    rows = []
    for run in finished.runs:
        heads, sums = sum_head_entropy(load_model(run.folder, device), pairs)
        if sums is None:
            continue
        single_heads = [index for index, head in enumerate(heads) if head.number is not None]
        nats, share = (values[single_heads] for values in sums.means())
        rows.append(
            {
                "label": run.result.label,
                "seed": run.result.seed,
                "heads": len(single_heads),
                "entropy_nats": none_if_nan(nats.mean()),
                "entropy_nats_narrowest": none_if_nan(nats.min()),
                "entropy_nats_widest": none_if_nan(nats.max()),
                "entropy_share": none_if_nan(share.mean()),
            }
        )
    return rows


def sum_head_entropy(
    translator: Translator, pairs: Sequence[WordPair]
) -> tuple[tuple[AttentionHead, ...], AttentionEntropy | None]:
    """Sum the attention entropy of each head over ``pairs``.

    Returns:
        The C heads and means of heads, and their sums; no heads and None for a model without attention to
        the source.
    """
    heads: tuple[AttentionHead, ...] = ()
    total: AttentionEntropy | None = None
    for pair in attend_words(translator, pairs):
        sums = sum_entropy(pair.weights)
        heads, total = pair.heads, sums if total is None else total.plus(sums)
    return heads, total
