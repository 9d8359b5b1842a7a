"""Attention between words: pieces joined to words, links from weights, entropy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from compare.analysis.gold_alignments import AlignmentCounts, count_links
from compare.analysis.word_attention import (
    above_threshold,
    arg_max,
    diagonal,
    entropy,
    merge_pieces,
    mutual_arg_max,
    shared_bytes,
    shift_links,
    sum_entropy,
)
from data.corpus import embedded_corpus
from data.subwords import ESCAPED, SPACE
from data.vocabulary import KINDS, Vocabulary, build_vocabulary, split_words

SIZES = {"words": 400, "characters": 80, "unigram": 500, "bpe": 500}
WORDS = [
    "men",
    "theatre",
    "don't",
    "e-mail",
    "Übel",
    "?!",
    "...",
    "▁",
    "␛0",
    "￭",
    "漢字",
    "😀",
    "e\u0301",
    "<0x41>",
]
TEXTS = st.lists(
    st.sampled_from([*WORDS, " ", " ", "  ", "\t", "\u3000"]) | st.text(max_size=3), max_size=8
).map("".join)


@pytest.fixture(scope="module")
def vocabularies() -> dict[str, Vocabulary]:
    lines = [
        *embedded_corpus(train=150).splits["train"].src,
        *["Really?! The men ? Yes... The theatre ."] * 30,
    ]
    return {kind: build_vocabulary(kind, lines, size=SIZES[kind]) for kind in KINDS}


def encoded_characters(kind: str, text: str) -> list[tuple[bytes, int | None]]:
    """Return the bytes of each character as ``kind`` writes it, and the index of its word or None."""
    numbers = iter([number for number, word in enumerate(split_words(text)) for _ in word])
    characters = [(character, None if character.isspace() else next(numbers)) for character in text]
    if kind in ("unigram", "bpe"):
        space = [(SPACE, None)] * bool(text)
        characters = space + [
            (ESCAPED.get(char, SPACE if char == " " else char), n) for char, n in characters
        ]
    if kind == "words":
        characters = [(char, number) for char, number in characters if number is not None]
    return [(char.encode(), number) for char, number in characters]


def pieces_as_bytes(vocabulary: Vocabulary, text: str) -> list[bytes]:
    if vocabulary.kind == "words":
        return [word.encode() for word in split_words(text)]
    if vocabulary.kind == "characters":
        return [character.encode() for character in text]
    labels = vocabulary.pieces(vocabulary.encode(text))
    one_byte = [label.startswith("<0x") and len(label) == 6 for label in labels]
    return [bytes.fromhex(a[3:5]) if b else a.encode() for a, b in zip(labels, one_byte, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=TEXTS)
def test_shared_bytes_equal_those_of_a_loop(vocabularies: dict[str, Vocabulary], kind: str, text: str):
    """Compare with a loop over the text, byte by byte."""
    characters, pieces, words = (
        encoded_characters(kind, text),
        pieces_as_bytes(vocabularies[kind], text),
        split_words(text),
    )
    assert b"".join(pieces) == b"".join(char for char, _ in characters)
    word_of_byte = iter([number for char, number in characters for _ in char])
    expected = np.zeros((len(pieces), len(words)), dtype=np.int64)
    for index, piece in enumerate(pieces):
        for number in [next(word_of_byte) for _ in piece]:
            if number is not None:
                expected[index, number] += 1
    shared = shared_bytes(vocabularies[kind], text, vocabularies[kind].encode(text), words)
    assert np.array_equal(shared, expected)


def test_words_of_another_tokeniser_are_accepted(vocabularies: dict[str, Vocabulary]):
    """Published gold links have their own tokenisation, with words such as "'s" and "o.k."."""
    text = "it 's o.k. !"
    shared = shared_bytes(vocabularies["words"], text, vocabularies["words"].encode(text), text.split())
    by_hand = [[2, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], *([[0, 0, 1, 0]] * 4), [0, 0, 0, 1]]
    assert shared.tolist() == by_hand  # it ' s o . k . !


def test_a_piece_of_several_punctuation_marks_is_divided(vocabularies: dict[str, Vocabulary]):
    text = "Really?! Yes..."
    ids = vocabularies["bpe"].encode(text)
    labels = vocabularies["bpe"].pieces(ids)
    shared = shared_bytes(vocabularies["bpe"], text, ids, split_words(text))
    assert "?!" in labels
    assert shared[labels.index("?!")].tolist() == [0, 1, 1, 0, 0, 0, 0]


def test_merging_by_hand():
    """Source words of 2 and 1 pieces with a space between; target words of 2 and 1 pieces, likewise."""
    src = np.array([[2, 0], [3, 0], [0, 0], [0, 4]])
    tgt = np.array([[1, 0], [0, 0], [5, 0], [0, 2]])
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [9, 9, 9, 9], [0.5, 0.1, 0.0, 0.4], [0.0, 0.0, 0.6, 0.3]])
    expected = [[(0.3 + 0.6) / 2, (0.4 + 0.4) / 2], [0.0, 0.3]]
    np.testing.assert_allclose(merge_pieces(weights, tgt, src), expected, atol=1e-15)
    both = merge_pieces(np.stack([weights, 2 * weights]), tgt, src)  # any number of heads before T' and S'
    np.testing.assert_allclose(both, [expected, np.multiply(expected, 2)], atol=1e-15)


def test_the_weight_of_a_source_piece_of_two_words_is_divided():
    src, tgt = np.array([[3, 1], [0, 2]]), np.array([[1, 1]])  # a target piece of two words counts for both
    np.testing.assert_allclose(
        merge_pieces(np.array([[0.8, 0.2]]), tgt, src), [[0.6, 0.4], [0.6, 0.4]], atol=1e-15
    )


def test_entropy_by_hand():
    rows = np.array([[1, 1, 1, 1], [0, 3, 0, 0], [0.5, 0.25, 0.25, 0], [0, 0, 0, 0]])
    entropies = entropy(rows)
    np.testing.assert_allclose(entropies[:3], [math.log(4), 0, 1.5 * math.log(2)], atol=1e-15)
    assert math.copysign(1, entropies[1]) == 1  # 0, not -0
    assert math.isnan(entropies[3])


def test_mean_entropy_and_mean_share_of_log_s():
    """Pairs of 4, 2 and 1 source words; a share of log 1 = 0 is undefined."""
    four = sum_entropy(np.array([[[1.0, 1, 1, 1], [0, 0, 0, 0]]]))
    two = sum_entropy(np.array([[[1.0, 0], [1, 1], [1, 0]]]))
    one = sum_entropy(np.array([[[1.0], [1.0]]]))
    nats, share = four.plus(two).plus(one).means()
    np.testing.assert_allclose(nats, (math.log(4) + math.log(2)) / (1 + 3 + 2), atol=1e-15)
    np.testing.assert_allclose(share, (1 + 1) / (1 + 3), atol=1e-15)
    assert np.isnan(one.means()[1]).all()


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


def test_the_diagonal_by_hand():
    assert np.array_equal(diagonal(4, 4), np.eye(4, dtype=bool))
    assert diagonal(2, 4).argmax(axis=1).tolist() == [1, 3]  # middles of the target words: 1/4 and 3/4 of 4
    assert diagonal(4, 2).argmax(axis=1).tolist() == [0, 0, 1, 1]
    assert diagonal(3, 1).sum(axis=1).tolist() == [1, 1, 1]


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
