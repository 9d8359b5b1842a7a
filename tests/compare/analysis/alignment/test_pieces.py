"""From pieces to words, for every kind of vocabulary and any text, and the entropy of what results."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from compare.analysis.alignment.entropy import entropy, sum_entropy
from compare.analysis.alignment.pieces import merge_pieces, shared_bytes
from data.corpus import embedded_corpus
from data.subwords import ESCAPED, SPACE
from data.vocabulary import KINDS, Vocabulary, build_vocabulary
from data.words import split_words

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
def built() -> dict[str, Vocabulary]:
    lines = [
        *embedded_corpus(train=150).splits["train"].src,
        *["Really?! The men ? Yes... The theatre ."] * 30,
    ]
    return {kind: build_vocabulary(kind, lines, size=SIZES[kind]) for kind in KINDS}


def written(kind: str, text: str) -> list[tuple[bytes, int | None]]:
    """The bytes of each character as ``kind`` writes it, and the number of its word."""
    numbers = iter([number for number, word in enumerate(split_words(text)) for _ in word])
    found = [(character, None if character.isspace() else next(numbers)) for character in text]
    if kind in ("unigram", "bpe"):
        space = [(SPACE, None)] * bool(text)
        found = space + [(ESCAPED.get(sign, SPACE if sign == " " else sign), n) for sign, n in found]
    if kind == "words":
        found = [(sign, number) for sign, number in found if number is not None]
    return [(sign.encode(), number) for sign, number in found]


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
def test_pieces_share_the_bytes_they_write(built: dict[str, Vocabulary], kind: str, text: str):
    """Against a walk over the text, byte by byte."""
    signs, pieces, words = written(kind, text), pieces_as_bytes(built[kind], text), split_words(text)
    assert b"".join(pieces) == b"".join(sign for sign, _ in signs)
    owners = iter([number for sign, number in signs for _ in sign])
    expected = np.zeros((len(pieces), len(words)), dtype=np.int64)
    for place, piece in enumerate(pieces):
        for number in [next(owners) for _ in piece]:
            if number is not None:
                expected[place, number] += 1
    found = shared_bytes(built[kind], text, built[kind].encode(text), words)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(
    sentence=st.lists(st.sampled_from(["men", "The", "theatre", "?", ".", "Really"]), min_size=1, max_size=6)
)
def test_the_pieces_of_a_word_decode_to_it(built: dict[str, Vocabulary], kind: str, sentence: list[str]):
    text = " ".join(sentence)
    ids = built[kind].encode(text)
    shared = shared_bytes(built[kind], text, ids, sentence)
    for number, word in enumerate(sentence):
        own = [index for index, count in zip(ids, shared[:, number], strict=True) if count]
        assert built[kind].decode(own).strip() == word


def test_words_need_not_be_those_of_a_word_vocabulary(built: dict[str, Vocabulary]):
    """Gold of others is tokenised as others do: "'s" and "o.k." are words of it."""
    text = "it 's o.k. !"
    shared = shared_bytes(built["words"], text, built["words"].encode(text), text.split())
    by_hand = [[2, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], *([[0, 0, 1, 0]] * 4), [0, 0, 0, 1]]
    assert shared.tolist() == by_hand  # it ' s o . k . !


def test_a_piece_of_several_signs_is_cut_at_its_bytes(built: dict[str, Vocabulary]):
    text = "Really?! Yes..."
    ids = built["bpe"].encode(text)
    labels = built["bpe"].pieces(ids)
    shared = shared_bytes(built["bpe"], text, ids, split_words(text))
    assert "?!" in labels
    assert shared[labels.index("?!")].tolist() == [0, 1, 1, 0, 0, 0, 0]


def test_merging_by_hand():
    """Two source words of pieces (2, 1), one space, a target of one word of two pieces and one of one."""
    src = np.array([[2, 0], [3, 0], [0, 0], [0, 4]])
    tgt = np.array([[1, 0], [0, 0], [5, 0], [0, 2]])
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [9, 9, 9, 9], [0.5, 0.1, 0.0, 0.4], [0.0, 0.0, 0.6, 0.3]])
    expected = [[(0.3 + 0.6) / 2, (0.4 + 0.4) / 2], [0.0, 0.3]]
    np.testing.assert_allclose(merge_pieces(weights, tgt, src), expected, atol=1e-15)
    both = merge_pieces(np.stack([weights, 2 * weights]), tgt, src)  # any number of heads before T' and S'
    np.testing.assert_allclose(both, [expected, np.multiply(expected, 2)], atol=1e-15)


def test_a_source_piece_of_two_words_parts_its_weight():
    src, tgt = np.array([[3, 1], [0, 2]]), np.array([[1, 1]])  # and a target piece of two words serves both
    np.testing.assert_allclose(
        merge_pieces(np.array([[0.8, 0.2]]), tgt, src), [[0.6, 0.4], [0.6, 0.4]], atol=1e-15
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(text=TEXTS.filter(split_words), data=st.data())
def test_merging_keeps_what_words_get(
    built: dict[str, Vocabulary], kind: str, text: str, data: st.DataObject
):
    """No weight is made or lost, but that of pieces that write no word."""
    shared = shared_bytes(built[kind], text, built[kind].encode(text), split_words(text))
    weights = data.draw(arrays(np.float64, (3, len(shared)), elements=st.floats(0, 1)))
    merged = merge_pieces(weights, np.eye(3, dtype=np.int64), shared)
    assert merged.shape == (3, len(split_words(text)))
    np.testing.assert_allclose(merged.sum(axis=1), weights[:, shared.any(axis=1)].sum(axis=1), atol=1e-12)
    if kind == "words":
        np.testing.assert_allclose(merged, weights, atol=1e-15)


def test_entropy_by_hand():
    rows = np.array([[1, 1, 1, 1], [0, 3, 0, 0], [0.5, 0.25, 0.25, 0], [0, 0, 0, 0]])
    found = entropy(rows)
    np.testing.assert_allclose(found[:3], [math.log(4), 0, 1.5 * math.log(2)], atol=1e-15)
    assert math.copysign(1, found[1]) == 1  # 0, not -0
    assert math.isnan(found[3])


def test_entropy_is_a_mean_over_words_and_their_share_of_log_s():
    """Pairs of 4, 2 and 1 source words; the last one can have no spread, and no share of it."""
    four = sum_entropy(np.array([[[1.0, 1, 1, 1], [0, 0, 0, 0]]]))
    two = sum_entropy(np.array([[[1.0, 0], [1, 1], [1, 0]]]))
    one = sum_entropy(np.array([[[1.0], [1.0]]]))
    nats, share = four.plus(two).plus(one).means()
    np.testing.assert_allclose(nats, (math.log(4) + math.log(2)) / (1 + 3 + 2), atol=1e-15)
    np.testing.assert_allclose(share, (1 + 1) / (1 + 3), atol=1e-15)
    assert np.isnan(one.means()[1]).all()


@settings(deadline=None)
@given(arrays(np.float64, (4, 3, 5), elements=st.floats(0.01, 1)))
def test_a_mean_of_heads_attends_no_more_narrowly_than_they(weights: np.ndarray):
    """Entropy is concave, and at most log S."""
    weights = weights / weights.sum(axis=-1, keepdims=True)
    together = entropy(weights.mean(axis=0))
    assert (together >= entropy(weights).mean(axis=0) - 1e-12).all()
    assert (together <= math.log(5) + 1e-12).all()
