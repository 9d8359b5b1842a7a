"""Quality by the length of the source, and by its distance to the lengths seen in training."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count, pairwise
from typing import NamedTuple

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.quality.texts import training_pairs, word_counts
from compare.analysis.table import Row, Table

MIN_SENTENCES = 50
"""Sentences of a bucket, at the least: BLEU of fewer says little."""
MOST, MOST_PAST = 10, 5
"""Buckets at the most, of all lengths and of those past training."""


class Bucket(NamedTuple):
    """Lengths from ``low`` to ``high`` words, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}–{self.high}" if self.low < self.high else str(self.low)


def make_buckets(lengths: Iterable[int], *, most: int, least: int = MIN_SENTENCES) -> list[Bucket]:
    """Part ``lengths``, one or more, into buckets that end at multiples of 1, 2, 5, 10, 20, 50, ...

    The least of these steps that makes at most ``most`` buckets is taken. Each bucket has at least
    ``least`` members, unless there are fewer in all.
    """
    sizes = Counter(lengths)
    steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
    return next(found for step in steps if len(found := _cut(sizes, step, least)) <= most)


def _cut(sizes: Counter[int], step: int, least: int) -> list[Bucket]:
    """End a bucket at each multiple of ``step``, 0 not counted, that leaves enough on both of its sides."""
    shortest, longest = min(sizes), max(sizes)
    starts, inside, left = [shortest], 0, sizes.total()
    for length in range(shortest, longest):
        inside, left = inside + sizes[length], left - sizes[length]
        if length and length % step == 0 and inside >= least and left >= least:
            starts.append(length + 1)
            inside = 0
    return [Bucket(low, after - 1) for low, after in pairwise([*starts, longest + 1])]


def by_length(finished: FinishedExperiment) -> Table:
    """BLEU, chrF and length ratio by words of the source, one row a run and bucket.

    The sentences of all test sets are taken together, so that a set of long ones goes on where another ends.
    """
    lengths = word_counts(_sources(finished))
    groups = {str(bucket): _members(lengths, bucket) for bucket in make_buckets(lengths, most=MOST)}
    caption = (
        f"Quality by words of the source, {_tests(finished)}; each bucket is scored as a corpus of its own "
        "(BLEU 13a cased, chrF2, and tokens of the translations over those of the references)."
    )
    return Table(caption, _scored(finished, "source_words", groups))


def by_distance(finished: FinishedExperiment) -> Table:
    """The same by how many words the source is longer than the longest seen in training."""
    lengths, trained = word_counts(_sources(finished)), word_counts(training_pairs(finished).src)
    inside = Bucket(min(trained), max(trained))
    past = [length - inside.high for length in lengths]
    groups = {
        f"below {inside.low}": [i for i, length in enumerate(lengths) if length < inside.low],
        f"{inside} (trained)": _members(lengths, inside),
    }
    if beyond := [words for words in past if words > 0]:
        groups |= {
            f"{bucket} past": _members(past, bucket) for bucket in make_buckets(beyond, most=MOST_PAST)
        }
    groups = {name: members for name, members in groups.items() if members}
    caption = (
        f"Quality by distance to the lengths of training ({inside} words of the source): inside of them, "
        f"or so many words past the longest; {_tests(finished)}."
    )
    return Table(caption, _scored(finished, "distance_words", groups))


def _sources(finished: FinishedExperiment) -> list[str]:
    return [line for test in finished.corpus.tests for line in finished.corpus.splits[test].src]


def _tests(finished: FinishedExperiment) -> str:
    return f"sentences of {' and '.join(finished.corpus.tests)}"


def _members(lengths: Sequence[int], bucket: Bucket) -> list[int]:
    """The places of the lengths in ``bucket``."""
    return [i for i, length in enumerate(lengths) if bucket.low <= length <= bucket.high]


def _scored(finished: FinishedExperiment, column: str, groups: Mapping[str, Sequence[int]]) -> list[Row]:
    """One row a run and group of sentences, the group's name in ``column``."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    corpus = finished.corpus
    references = [line for test in corpus.tests for line in corpus.splits[test].tgt]
    own = {name: [references[i] for i in members] for name, members in groups.items()}
    # The references of a group are taken apart once, not again for every run.
    metrics = {name: (BLEU(references=[lines]), CHRF(references=[lines])) for name, lines in own.items()}
    rows = []
    for run in finished.runs:
        outputs = list(chain.from_iterable(run.outputs[test] for test in corpus.tests))
        for name, members in groups.items():
            bleu, chrf = (
                metric.corpus_score([outputs[i] for i in members], None) for metric in metrics[name]
            )
            about = {"label": run.result.label, "seed": run.result.seed, column: name}
            scores = {"bleu": min(bleu.score, 100.0), "chrf": chrf.score, "length_ratio": bleu.ratio}
            rows.append({**about, "sentences": len(members), **scores})
    return rows
