"""How widely the models of an experiment attend, which needs no gold links.

Shapes: C heads of a model.
"""

from collections.abc import Sequence

from compare.analysis.alignment.attended import Head, attend
from compare.analysis.alignment.entropy import Spread, known, measure_spread
from compare.analysis.alignment.gold import WordPair, split_of, word_pairs
from compare.analysis.finished import Finished
from compare.analysis.tables import Row
from compare.translate import Translator, load_model


def attention_spread(finished: Finished, *, test: str | None = None, device: str = "cpu") -> list[Row]:
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
    pairs = word_pairs(split_of(finished.corpus, test or finished.corpus.tests[0]))
    rows = []
    for run in finished.runs:
        heads, spread = measure_heads(load_model(run.folder, device), pairs)
        if spread is None:
            continue
        single = [place for place, head in enumerate(heads) if head.number is not None]
        nats, share = (values[single] for values in spread.means())
        rows.append(
            {
                "label": run.result.label,
                "seed": run.result.seed,
                "heads": len(single),
                "entropy_nats": known(nats.mean()),
                "entropy_nats_narrowest": known(nats.min()),
                "entropy_nats_widest": known(nats.max()),
                "entropy_share": known(share.mean()),
            }
        )
    return rows


def measure_heads(
    translator: Translator, pairs: Sequence[WordPair]
) -> tuple[tuple[Head, ...], Spread | None]:
    """The heads of a model and how widely each attends over ``pairs``; None for a model without attention."""
    heads: tuple[Head, ...] = ()
    total: Spread | None = None
    for pair in attend(translator, pairs):
        one = measure_spread(pair.weights)
        heads, total = pair.heads, one if total is None else total.plus(one)
    return heads, total
