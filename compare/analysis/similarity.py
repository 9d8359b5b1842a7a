"""Nearest training sentences: a baseline that copies their translations.

A model can score well on a test set because it has seen nearly the same sentences. A corpus on which the
baseline scores high rewards memory.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from compare.analysis.finished_experiment import FinishedExperiment
from compare.results.formatting import Row
from compare.results.store import of_test
from compare.scoring import all_metrics, score_texts

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NEAREST = "nearest-neighbour"
"""Label of the baseline."""
GRAM = 4
"""Length of the character n-grams."""
MOST_SENTENCES = 200_000
"""Upper bound on the training sentences, for the sake of memory."""
BLOCK = 256
"""Test sentences per block; 160,000 training sentences then take some 300 MB."""


class Nearest(NamedTuple):
    """The most similar training sentence of each of N test sentences."""

    sentences: IntArray
    """Numbers from 0, (N,); the first of equally similar ones."""
    similarity: FloatArray
    """Cosine of the two tf-idf vectors, (N,)."""


def find_nearest(train: Sequence[str], test: Sequence[str]) -> Nearest:
    """Find the most similar training sentence of each test sentence.

    The similarity is the cosine of two vectors of character 4-grams, lower-cased. Each is weighted by its
    count and by log(N / n) + 1, where n of the N training sentences have it (Salton and Buckley 1988). A
    4-gram that no training sentence has counts as one that one sentence has.
    """
    train_rows, train_grams = _list_grams(train)
    test_rows, test_grams = _list_grams(test)
    names, columns = np.unique(np.concatenate([train_grams, test_grams]), return_inverse=True)
    split, shape = len(train_grams), len(names)
    stored = _count(train_rows, columns[:split], (len(train), shape))
    asked = _count(test_rows, columns[split:], (len(test), shape))
    weights = np.log(len(train) / np.maximum(1, stored.getnnz(axis=0))) + 1.0
    stored, asked = _normalize(stored, weights).T.tocsr(), _normalize(asked, weights)
    index, similarity = np.zeros(len(test), dtype=np.int64), np.zeros(len(test))
    for start in range(0, len(test), BLOCK):
        cosines = (asked[start : start + BLOCK] @ stored).toarray()
        index[start : start + BLOCK] = cosines.argmax(axis=1)
        similarity[start : start + BLOCK] = cosines.max(axis=1)
    return Nearest(index, np.clip(similarity, 0.0, 1.0))


def nearest(finished: FinishedExperiment, test: str) -> Nearest:
    """Find the nearest of the first ``MOST_SENTENCES`` training sentences, by test sentence."""
    train = tuple(islice(finished.sources("train"), MOST_SENTENCES))
    return _find_once(train, tuple(finished.sources(test)))


@lru_cache(maxsize=4)  # several parts of a report need the same result
def _find_once(train: tuple[str, ...], test: tuple[str, ...]) -> Nearest:
    return find_nearest(train, test)


def copy_nearest(finished: FinishedExperiment, test: str) -> list[str]:
    """Translate a test set by copying from the nearest training sentences."""
    targets = finished.references("train")
    return [targets[number] for number in nearest(finished, test).sentences]


def nearest_row(finished: FinishedExperiment) -> Row:
    """Score the baseline on all test sets, as the row of a result table."""
    row: Row = {"label": NEAREST}
    for number, test in enumerate(finished.corpus.tests):
        scoring = all_metrics(finished.scoring.tokenize)
        scores = score_texts(copy_nearest(finished, test), finished.references(test), scoring=scoring)
        row |= {of_test(name, test if number else ""): value for name, value in scores.columns().items()}
    return row


def _list_grams(lines: Sequence[str]) -> tuple[IntArray, npt.NDArray[np.uint64]]:
    """List the 64-bit hashes of all n-grams, with the number of their line.

    A space at both ends of a line makes its beginning and end count.
    """
    codes = [np.frombuffer(f" {line.lower()} ".encode("utf-32-le"), dtype=np.uint32) for line in lines]
    lengths = np.array([len(line) for line in codes], dtype=np.int64)
    characters = np.concatenate([*codes, np.zeros(GRAM, dtype=np.uint32)]).astype(np.uint64)
    grams = np.zeros(len(characters) - GRAM, dtype=np.uint64)
    for offset in range(GRAM):
        grams = grams * np.uint64(0x9E3779B97F4A7C15) + characters[offset : offset + len(grams)]
    rows = np.repeat(np.arange(len(lines)), lengths)
    ends = np.repeat(np.cumsum(lengths), lengths)
    is_within = np.arange(len(rows)) + GRAM <= ends
    return rows[is_within], grams[is_within]


def _count(rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> Any:
    ones = np.ones(len(rows))
    return sparse.coo_matrix((ones, (rows, columns)), shape=shape).tocsr()  # equal entries are summed


def _normalize(counts: Any, weights: FloatArray) -> Any:
    weighted = counts @ sparse.diags(weights)
    lengths = np.sqrt(weighted.multiply(weighted).sum(axis=1)).A1
    return sparse.diags(1.0 / np.maximum(lengths, 1e-12)) @ weighted
