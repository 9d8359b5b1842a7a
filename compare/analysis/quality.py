"""Translation quality by length, similarity to the training text and word frequency, and faults.

References:
- Malaviya et al. 2018, Sparse and Constrained Attention for Neural Machine Translation. ACL.
- Neubig et al. 2019, compare-mt: A Tool for Holistic Comparison of Language Generation Systems. NAACL
  Demonstrations.
"""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, pairwise
from typing import Any, NamedTuple

import numpy as np

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.similarity import GRAM, MOST_SENTENCES, NEAREST, copy_nearest, nearest
from compare.analysis.statistics import bleu, sentence_counts
from compare.results.formatting import Row, Table
from data.text import UNSPACED
from data.vocabulary import TOKEN, split_words

# Words of a text.


NUMBER = rf"\d+(?:[.,:/]\d+)*[^\W{UNSPACED}]*"
"""A number with inner punctuation, as one word: 1,000 and 3.5 and 10:30 and 3rd."""
NUMBER_OR_TOKEN = re.compile(f"{NUMBER}|{TOKEN.pattern}")


def extract_words(text: str) -> list[str]:
    """Return words without punctuation: "At 10:30, you left." gives At 10:30 you left."""
    return [token for token in NUMBER_OR_TOKEN.findall(text) if any(map(str.isalnum, token))]


def word_counts(lines: Sequence[str]) -> list[int]:
    """Count the words of each line."""
    return [len(extract_words(line)) for line in lines]


# Quality by source length.


MIN_SENTENCES = 50
"""Sentences per bucket: BLEU of fewer is unreliable."""
MAX_BUCKETS = 10


class Bucket(NamedTuple):
    """Lengths from ``low`` to ``high`` words, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}–{self.high}" if self.low < self.high else str(self.low)


def make_buckets(lengths: Iterable[int], *, most: int, least: int = MIN_SENTENCES) -> list[Bucket]:
    """Divide lengths into at most ``most`` buckets that end at multiples of 1, 2, 5, 10, ...

    Each has at least ``least`` lengths, unless there are fewer in all.
    """
    counts = Counter(lengths)
    steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
    return next(buckets for step in steps if len(buckets := _divide(counts, step, least)) <= most)


def _divide(counts: Counter[int], step: int, least: int) -> list[Bucket]:
    shortest, longest = min(counts), max(counts)
    starts, inside, remaining = [shortest], 0, counts.total()
    for length in range(shortest, longest):
        inside, remaining = inside + counts[length], remaining - counts[length]
        if length and length % step == 0 and inside >= least and remaining >= least:
            starts.append(length + 1)
            inside = 0
    return [Bucket(low, after - 1) for low, after in pairwise([*starts, longest + 1])]


def by_length(finished: FinishedExperiment, *, most: int = MAX_BUCKETS) -> Table:
    """Score by number of source words, one row per run and bucket, over all test sets together."""
    tests = finished.corpus.tests
    lengths = np.array(word_counts([line for test in tests for line in finished.sources(test)]))
    buckets = make_buckets(lengths.tolist(), most=most)
    groups = {str(bucket): (bucket.low <= lengths) & (lengths <= bucket.high) for bucket in buckets}
    rows = [
        row
        for run in finished.runs
        for row in _group_rows(finished, run.names, run.outputs, groups, "source_words")
    ]
    caption = (
        f"Quality by words of the source, on {' and '.join(tests)}. Each bucket is scored as a separate "
        "corpus. The length ratio is tokens of the translations over those of the references."
    )
    return Table(caption, rows, "BLEU by length of the source")


def _group_rows(
    finished: FinishedExperiment,
    names: Row,
    outputs: Mapping[str, Sequence[str]],
    groups: Mapping[str, Any],
    column: str,
) -> Iterator[Row]:
    """Score the translations of each group of sentences, a mask (N,), as a corpus of its own."""
    counts = np.concatenate(
        [
            sentence_counts(outputs[test], finished.references(test), finished.scoring.tokenize)
            for test in finished.corpus.tests
        ]
    )
    for group, inside in groups.items():
        sums = counts[inside].sum(axis=0)
        hyp_len, ref_len = sums[:2].tolist()
        scores = {"bleu": float(bleu(sums)), "length_ratio": hyp_len / ref_len}
        yield {**names, column: group, "sentences": int(inside.sum()), **scores}


# Quality by similarity to the training text.


def by_similarity(finished: FinishedExperiment) -> Table:
    """Score by similarity to the nearest training sentence, one row per run and quarter.

    The last model is the baseline, which copies the translation of that sentence.
    """
    tests = finished.corpus.tests
    similarity = np.concatenate([nearest(finished, test).similarity for test in tests])
    ends = np.unique(np.quantile(similarity, [0, 0.25, 0.5, 0.75, 1]))
    quarters = np.maximum(1, np.searchsorted(ends, similarity))
    groups = {
        f"{ends[number - 1]:.2f}–{ends[number]:.2f}": quarters == number for number in np.unique(quarters)
    }
    copies = {test: copy_nearest(finished, test) for test in tests}
    systems = [(run.names, run.outputs) for run in finished.runs]
    rows = [
        row
        for names, outputs in [*systems, ({"label": NEAREST, "seed": 1}, copies)]
        for row in _group_rows(finished, names, outputs, groups, "similarity")
    ]
    caption = (
        "Quality by similarity of the source to the most similar of the training sentences, at most the "
        f"first {MOST_SENTENCES:,}. Similarity is the cosine of tf-idf vectors of character {GRAM}-grams. "
        f"Each quarter of the sentences of {' and '.join(tests)} is scored as a separate corpus. {NEAREST} "
        "copies the translation of that training sentence."
    )
    return Table(caption, rows, "BLEU by similarity to the training text")


# Word accuracy by how often a word occurs in training.
#
# A word is correct as often as it occurs in both translation and reference of a sentence, in any position
# (clipped counts), as in the word accuracy of compare-mt (Neubig et al. 2019). Words are cased.


BUCKET_STARTS = (0, 1, 5, 20, 100, 1_000)
"""Lowest training count of each bucket."""
BUCKET_NAMES = (*(str(Bucket(low, after - 1)) for low, after in pairwise(BUCKET_STARTS)), "1000+")

Words = Sequence[str]


def count_matches(
    hypotheses: Iterable[Words], references: Iterable[Words], kind_of: Callable[[str], str]
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Count, by kind of word, matches within sentences, reference words and translated words."""
    both, ref, hyp = Counter[str](), Counter[str](), Counter[str]()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        hyp_counts, ref_counts = Counter(hypothesis), Counter(reference)
        for total, counts in ((both, hyp_counts & ref_counts), (ref, ref_counts), (hyp, hyp_counts)):
            for word, times in counts.items():
                total[kind_of(word)] += times
    return both, ref, hyp


def rare_words(finished: FinishedExperiment) -> Table:
    """Measure recall, precision and F1 of words of the first test set by training count."""
    test = finished.corpus.tests[0]
    training_counts = Counter(word for line in finished.references("train") for word in extract_words(line))
    references = [extract_words(line) for line in finished.references(test)]
    rows = []
    for run in finished.runs:
        outputs = [extract_words(line) for line in run.outputs[test]]
        by_kind = count_matches(outputs, references, lambda word: _bucket_name(training_counts[word]))
        for bucket in BUCKET_NAMES:
            both, ref, hyp = (counts[bucket] for counts in by_kind)
            rows.append(
                run.names
                | {"training_count": bucket, "ref_words": ref, "hyp_words": hyp}
                | {"recall_percent": _percent(both, ref), "precision_percent": _percent(both, hyp)}
                | {"f1_percent": _percent(2 * both, ref + hyp)}
            )
    caption = (
        f"Words of {test} by their count in the target text of training. Recall: how many words of the "
        "reference occur in its translation. Precision: how many words of the translation occur in the "
        "reference. Counts are clipped as in compare-mt (Neubig et al. 2019)."
    )
    return Table(caption, rows, "Words by training count")


def _bucket_name(count: int) -> str:
    return BUCKET_NAMES[bisect(BUCKET_STARTS, count) - 1]


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


# Rates of faults that a score may hide: output that is too short, repetitive or empty.


FAULTS_CAPTION = (
    "Length ratio: tokens of the translations over those of the references. REP score: words that a "
    "translation repeats more often than its reference, per 100 words of it (Malaviya et al. 2018). "
    "Repeating: translations with such words. Empty: only white space."
)


def faults(finished: FinishedExperiment) -> Table:
    """Measure the rate of each fault, one row per run and test set."""
    rows = []
    for run in finished.runs:
        for test in finished.corpus.tests:
            outputs, result = run.outputs[test], run.result
            references = list(map(split_words, finished.references(test)))
            penalties = [
                repetition_penalty(split_words(line), reference)
                for line, reference in zip(outputs, references, strict=True)
            ]
            figures = result.tests.get(test, {"length_ratio": result.length_ratio})
            rates = {
                "length_ratio": figures["length_ratio"],
                "rep_score": 100 * sum(penalties) / sum(map(len, references)),
                "repeating_percent": _percent(sum(penalty > 0 for penalty in penalties), len(outputs)),
                "empty_percent": _percent(sum(not line.strip() for line in outputs), len(outputs)),
            }
            rows.append({**run.names, "test": test, **rates})
    return Table(FAULTS_CAPTION, rows, "Faults of the translations")


def repetition_penalty(hypothesis: Words, reference: Words) -> int:
    """Compute the penalty of the REP score for one sentence (Malaviya et al. 2018; lambda 1 and 2, n = 2).

    A bigram that occurs more than once in the hypothesis counts as often as it exceeds its count in the
    reference. A bigram of twice the same word counts twice its excess, even if it occurs only once.
    """
    hyp_bigrams, ref_bigrams = Counter(pairwise(hypothesis)), Counter(pairwise(reference))
    excess = hyp_bigrams - ref_bigrams
    repeated = sum(times for bigram, times in excess.items() if hyp_bigrams[bigram] > 1)
    doubled = sum(times for (first, second), times in excess.items() if first == second)
    return repeated + 2 * doubled
