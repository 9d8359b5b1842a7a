"""Links derived from weights, and their alignment error rate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from compare.analysis.gold_alignments import AlignmentCounts, count_links
from compare.analysis.word_attention import (
    METHODS,
    above_threshold,
    arg_max,
    diagonal,
    mutual_arg_max,
    shift_links,
)


def test_scores_by_hand():
    """S = {a, b}, P = {a, b, c, d}, A = {a, c, e}: |A ∩ S| = 1, |A ∩ P| = 2."""
    sure = np.array([[1, 0, 0], [0, 1, 0]], dtype=bool)
    possible = np.array([[1, 1, 0], [0, 1, 1]], dtype=bool)
    proposed = np.array([[1, 1, 0], [1, 0, 0]], dtype=bool)
    counts = AlignmentCounts(*count_links(proposed, sure, possible).tolist())
    assert counts == AlignmentCounts(proposed=3, sure=2, sure_matches=1, possible_matches=2)
    assert counts.precision == pytest.approx(2 / 3)
    assert counts.recall == pytest.approx(1 / 2)
    assert counts.aer == pytest.approx(1 - 3 / 5)
    assert counts.f1 == pytest.approx(4 / 7)
    assert counts.scores() == {
        "aer": counts.aer,
        "precision": counts.precision,
        "recall": counts.recall,
        "f1": counts.f1,
    }


def test_a_score_without_denominator_is_none():
    assert AlignmentCounts(0, 0, 0, 0).scores() == {
        "aer": None,
        "precision": None,
        "recall": None,
        "f1": None,
    }
    assert AlignmentCounts(0, 5, 0, 0).scores() == {"aer": 1, "precision": None, "recall": 0, "f1": None}
    assert AlignmentCounts(2, 5, 0, 0).scores() == {"aer": 1, "precision": 0, "recall": 0, "f1": 0}
    assert AlignmentCounts(2, 0, 0, 1).scores() == {"aer": 0.5, "precision": 0.5, "recall": None, "f1": None}


@settings(deadline=None)
@given(arrays(np.bool_, (3, 2, 4, 3)), arrays(np.bool_, (2, 4, 3)), arrays(np.bool_, (2, 4, 3)))
def test_scores_equal_the_formulas_over_sets(proposed: np.ndarray, sure: np.ndarray, also: np.ndarray):
    """Two sentences and three heads at once, compared with the formulas over sets of links."""
    possible = sure | also
    counts_of_heads = sum(count_links(proposed[:, n], sure[n], possible[n]) for n in range(2))
    s, p = ({tuple(link) for link in np.argwhere(part)} for part in (sure, possible))
    for head in range(3):
        a = {tuple(link) for link in np.argwhere(proposed[head])}
        counts = AlignmentCounts(*counts_of_heads[head].tolist())
        assert counts == (len(a), len(s), len(a & s), len(a & p))
        if a or s:
            assert counts.aer == pytest.approx(1 - (len(a & s) + len(a & p)) / (len(a) + len(s)))
        if a and s and not (also & ~sure).any():
            assert counts.f1 == pytest.approx(1 - counts.aer)


def test_links_by_hand():
    weights = np.array([[0.6, 0.3, 0.1], [0.5, 0.2, 0.2], [0.0, 0.3, 0.3], [0.0, 0.0, 0.0]])
    assert np.argwhere(arg_max(weights)).tolist() == [[0, 0], [1, 0], [2, 1]]
    # Source 1 has two equal maxima, of which target 0 is the first.
    assert np.argwhere(mutual_arg_max(weights)).tolist() == [[0, 0]]
    assert np.argwhere(above_threshold(weights, 0.3)).tolist() == [[0, 0], [0, 1], [1, 0], [2, 1], [2, 2]]


@settings(deadline=None)
@given(arrays(np.float64, (2, 3, 5), elements=st.floats(0, 1).map(lambda x: round(x, 1))))
def test_links_equal_those_of_a_loop(weights: np.ndarray):
    for head, matrix in enumerate(weights):
        rows = {
            (j, max(range(5), key=lambda i, j=j: (matrix[j, i], -i))) for j in range(3) if matrix[j].any()
        }
        columns = {
            (max(range(3), key=lambda j, i=i: (matrix[j, i], -j)), i) for i in range(5) if matrix[:, i].any()
        }
        assert {tuple(link) for link in np.argwhere(arg_max(weights)[head])} == rows
        assert {tuple(link) for link in np.argwhere(mutual_arg_max(weights)[head])} == rows & columns


def test_the_diagonal_by_hand():
    assert np.array_equal(diagonal(4, 4), np.eye(4, dtype=bool))
    assert diagonal(2, 4).argmax(axis=1).tolist() == [1, 3]  # middles of the target words: 1/4 and 3/4 of 4
    assert diagonal(4, 2).argmax(axis=1).tolist() == [0, 0, 1, 1]
    assert diagonal(3, 1).sum(axis=1).tolist() == [1, 1, 1]


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 40))
def test_the_diagonal_links_each_target_word_to_the_word_at_its_middle(tgt: int, src: int):
    positions = diagonal(tgt, src).argmax(axis=1)
    middles = (np.arange(tgt) + 0.5) / tgt
    assert (np.abs((positions + 0.5) / src - middles) <= 0.5 / src + 1e-12).all()
    assert (diagonal(tgt, src).sum(axis=1) == 1).all()


def test_all_thresholds_are_methods_of_one_name():
    weights = np.full((1, 2, 4), 0.25)
    by_threshold = {
        method.threshold: int(method.links(weights).sum()) for method in METHODS if method.name == "threshold"
    }
    assert by_threshold == {value: 8 if value <= 0.25 else 0 for value in by_threshold}
    assert len(by_threshold) > 3
    assert [method.name for method in METHODS][:2] == ["arg max", "intersection"]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (0, [[1, 0, 1], [0, 1, 0]]),
        (1, [[0, 1, 0], [0, 0, 1]]),
        (-1, [[0, 1, 0], [1, 0, 0]]),
        (3, [[0] * 3] * 2),
    ],
)
def test_shifted_links_leave_the_sentence_and_do_not_come_back(by: int, expected: list[list[int]]):
    links = np.array([[1, 0, 1], [0, 1, 0]], dtype=bool)
    np.testing.assert_array_equal(shift_links(links, by), np.array(expected, dtype=bool))
    np.testing.assert_array_equal(shift_links(np.stack([links] * 2), by)[1], np.array(expected, dtype=bool))
    assert links.tolist() == [[True, False, True], [False, True, False]]
