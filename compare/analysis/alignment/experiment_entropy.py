"""How widely the models of an experiment attend, which needs no gold links.

Shapes: C heads of a model.
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
    """The entropy of attention over a test set, one row for each run that attends to the source.

    Each head's is its mean over target words, in nats and as a share of log S; the row holds the mean over
    all heads of all layers, and the head that attends most narrowly and most widely.

    Args:
        finished: the experiment.
        test: name of a test set; None is the first, which gives the headline.
        device: where the models run.

    Raises:
        ValueError: there is no such test set, or a run cannot be loaded.
    """
    pairs = word_pairs(get_split(finished.corpus, test or finished.corpus.tests[0]))
    rows = []
    for run in finished.runs:
        heads, spread = sum_head_entropy(load_model(run.folder, device), pairs)
        if spread is None:
            continue
        single = [place for place, head in enumerate(heads) if head.number is not None]
        nats, share = (values[single] for values in spread.means())
        rows.append(
            {
                "label": run.result.label,
                "seed": run.result.seed,
                "heads": len(single),
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
    """The heads of a model and how widely each attends over ``pairs``; None for a model without attention."""
    heads: tuple[AttentionHead, ...] = ()
    total: AttentionEntropy | None = None
    for pair in attend_words(translator, pairs):
        one = sum_entropy(pair.weights)
        heads, total = pair.heads, one if total is None else total.plus(one)
    return heads, total
