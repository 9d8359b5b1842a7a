"""Encoding by words gives the ids of encoding by lines, for any text."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import encode as word_cache
from data.encode import WordCache
from data.symbols import Vocabulary
from data.vocabulary import build_vocabulary
from tests.kits.raw_data import made_up

BOTH_SIDES = [text for pair in made_up(200) for text in pair]
VOCABULARIES = {
    kind: build_vocabulary(kind, BOTH_SIDES, size=size, seed=1)
    for kind, size in (("words", 20), ("characters", 20), ("bpe", 330), ("unigram", 310))
}
ODD = [
    "",
    " ",
    "  a",
    "a  b ",
    "\t",
    "a\u00a0b",
    "▁",
    "␛0 ▁x",
    "Öß ẞ",
    "𝕏 😀",
    "a-b, c!",
    "<unk> <0x0A>",
    "\r",
    "aaa PPP",
]
"""Lines with what is special to one of the tokenisers."""
LINES = st.lists(
    st.one_of(
        st.sampled_from([*ODD, *BOTH_SIDES[:20]]),
        st.text("ab ▁␛.-,\u00a0'’é\t ", max_size=12),
        st.text(max_size=8),
    ),
    max_size=12,
)


def assert_equal(vocabulary: Vocabulary, cache: WordCache, lines: list[str]) -> None:
    found = cache.encode(lines)
    ids = [
        found.flat[begin:end].tolist() for begin, end in zip(found.offsets, found.offsets[1:], strict=False)
    ]
    assert ids == [vocabulary.encode(line) for line in lines]


@pytest.mark.parametrize("kind", VOCABULARIES)
@given(blocks=st.lists(LINES, max_size=4))
@settings(deadline=None, max_examples=60)
def test_any_lines(kind: str, blocks: list[list[str]]) -> None:
    vocabulary = VOCABULARIES[kind]
    cache = WordCache(vocabulary)
    for lines in blocks:
        lines = [line.encode(errors="replace").decode() for line in lines]  # SentencePiece takes UTF-8 alone
        assert_equal(vocabulary, cache, lines)


@pytest.mark.parametrize("kind", ["words", "bpe"])
@pytest.mark.parametrize("limit", [1, 2, 7])
def test_words_beyond_the_limit_are_forgotten(kind: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "MAX_WORDS", limit)
    cache = WordCache(VOCABULARIES[kind])
    for begin in range(0, 60, 12):
        assert_equal(VOCABULARIES[kind], cache, [*BOTH_SIDES[begin : begin + 12], *ODD])
        assert len(cache._numbers) == len(cache._ids.lengths) == len(cache._needs_line) == limit


def test_each_word_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, encoded = VOCABULARIES["bpe"], list[str]()
    encode_words = type(vocabulary).encode_words

    def counting(self: Vocabulary, words: list[str]) -> list[list[int] | None]:
        encoded.extend(words)
        return encode_words(self, words)

    monkeypatch.setattr(type(vocabulary), "encode_words", counting)
    cache = WordCache(vocabulary)
    for _ in range(2):
        cache.encode(["a b a", "b c"])
    assert encoded == ["a", "b", "c"]


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_a_copy_for_another_process_encodes_alike(kind: str) -> None:
    vocabulary = VOCABULARIES[kind]
    first = WordCache(vocabulary)
    first.encode(BOTH_SIDES[:9])
    assert_equal(vocabulary, pickle.loads(pickle.dumps(first)), [*BOTH_SIDES[:9], *ODD])
