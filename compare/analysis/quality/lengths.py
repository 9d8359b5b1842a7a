"""Quality by source length, and by how far the source length is outside the lengths seen in training."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count, pairwise
from typing import NamedTuple

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.quality.texts import training_pairs, word_counts
from compare.analysis.table import Row, Table

MIN_SENTENCES = 50
"""Minimum number of sentences in a bucket: BLEU of fewer is unreliable."""
MAX_BUCKETS = 10
"""Maximum number of buckets of all lengths."""
MAX_BUCKETS_BEYOND_TRAINING = 5
"""Maximum number of buckets of lengths beyond the longest in training."""


class Bucket(NamedTuple):
    """Lengths from ``low`` to ``high`` words, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}–{self.high}" if self.low < self.high else str(self.low)


def make_buckets(lengths: Iterable[int], *, most: int, least: int = MIN_SENTENCES) -> list[Bucket]:
    """Divide ``lengths`` into consecutive buckets that end at multiples of 1, 2, 5, 10, 20, 50, ...

    The step is the smallest of these that gives at most ``most`` buckets.

    Args:
        lengths: at least one length.
        most: maximum number of buckets.
        least: minimum number of lengths per bucket, unless there are fewer in all.
    """
    counts = Counter(lengths)
    steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
    return next(buckets for step in steps if len(buckets := _divide(counts, step, least)) <= most)


def _divide(counts: Counter[int], step: int, least: int) -> list[Bucket]:
    """End a bucket at each positive multiple of ``step`` with at least ``least`` lengths on both sides."""
    shortest, longest = min(counts), max(counts)
    starts, inside, remaining = [shortest], 0, counts.total()
    for length in range(shortest, longest):
        inside, remaining = inside + counts[length], remaining - counts[length]
        if length and length % step == 0 and inside >= least and remaining >= least:
            starts.append(length + 1)
            inside = 0
    return [Bucket(low, after - 1) for low, after in pairwise([*starts, longest + 1])]


def by_length(finished: FinishedExperiment) -> Table:
    """Score by number of source words: BLEU, chrF and length ratio, one row per run and bucket.

    The sentences of all test sets are pooled, so that a set of long sentences continues one of short ones.
    """
    lengths = word_counts(_sources(finished))
    groups = {str(bucket): _indices(lengths, bucket) for bucket in make_buckets(lengths, most=MAX_BUCKETS)}
    caption = (
        f"Quality by words of the source, {_tests(finished)}; each bucket is scored as a separate corpus "
        "(BLEU 13a cased, chrF2, and tokens of the translations over those of the references)."
    )
    return Table(caption, _score_groups(finished, "source_words", groups))


def by_distance(finished: FinishedExperiment) -> Table:
    """Score by number of source words beyond the longest training sentence, one row per run and bucket."""
    lengths, training_lengths = word_counts(_sources(finished)), word_counts(training_pairs(finished).src)
    trained = Bucket(min(training_lengths), max(training_lengths))
    distances = [length - trained.high for length in lengths]
    groups = {
        f"below {trained.low}": [i for i, length in enumerate(lengths) if length < trained.low],
        f"{trained} (trained)": _indices(lengths, trained),
    }
    if beyond := [distance for distance in distances if distance > 0]:
        buckets = make_buckets(beyond, most=MAX_BUCKETS_BEYOND_TRAINING)
        groups |= {f"{bucket} past": _indices(distances, bucket) for bucket in buckets}
    groups = {name: indices for name, indices in groups.items() if indices}
    caption = (
        f"Quality by distance to the lengths of training ({trained} words of the source): inside of them, "
        f"or so many words past the longest; {_tests(finished)}."
    )
    return Table(caption, _score_groups(finished, "distance_words", groups))


def _sources(finished: FinishedExperiment) -> list[str]:
    return [line for test in finished.corpus.tests for line in finished.corpus.splits[test].src]


def _tests(finished: FinishedExperiment) -> str:
    return f"sentences of {' and '.join(finished.corpus.tests)}"


def _indices(lengths: Sequence[int], bucket: Bucket) -> list[int]:
    """List the indices of the lengths in ``bucket``."""
    return [i for i, length in enumerate(lengths) if bucket.low <= length <= bucket.high]


def _score_groups(
    finished: FinishedExperiment, column: str, groups: Mapping[str, Sequence[int]]
) -> list[Row]:
    """Score groups of sentences, one row per run and group.

    Args:
        finished: the experiment.
        column: column for the name of the group.
        groups: indices of sentences by name of the group; sentences of all test sets are counted together.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    corpus = finished.corpus
    references = [line for test in corpus.tests for line in corpus.splits[test].tgt]
    group_references = {name: [references[i] for i in indices] for name, indices in groups.items()}
    # The metrics cache the n-grams of their references, which all runs share.
    metrics = {
        name: (BLEU(references=[lines]), CHRF(references=[lines])) for name, lines in group_references.items()
    }
    rows = []
    for run in finished.runs:
        outputs = list(chain.from_iterable(run.outputs[test] for test in corpus.tests))
        for name, indices in groups.items():
            bleu, chrf = (
                metric.corpus_score([outputs[i] for i in indices], None) for metric in metrics[name]
            )
            names = {"label": run.result.label, "seed": run.result.seed, column: name}
            scores = {"bleu": min(bleu.score, 100.0), "chrf": chrf.score, "length_ratio": bleu.ratio}
            rows.append({**names, "sentences": len(indices), **scores})
    return rows
