"""Pieces are joined to the words that they write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.attention.layers import group_pieces
from data.corpus import Pairs
from data.symbols import EOS, SPECIALS
from data.vocabulary import build_pair, split_words

LINES = ("Don't stop, she said.", "Zwei Kühe schlafen!", "a well-known cat (and a dog)")


@pytest.mark.parametrize(
    ("pieces", "words", "group"),
    [
        (["▁The", "▁cat", "s", ".", "<eos>"], ["The", "cats", ".", "<eos>"], [0, 1, 1, 2, 3]),
        (["▁", "Kü", "he"], ["Kühe"], [0, 0, 0]),
        (["▁don", "'", "t"], ["don't"], [0, 0, 0]),
        (["▁a", "?!", "▁b"], ["a", "?!", "b"], [0, 1, 2]),  # a piece of two marks is not divided
        (["▁<", "0x41", ">"], ["<", "0x41", ">"], [0, 1, 2]),
        (["▁5", "<0xE2>", "<0x82>", "<0xAC>", "▁x"], ["5", "€", "x"], [0, 1, 1, 1, 2]),
        (["▁x", "<0xE2>", "▁y"], ["x", "\ufffd", "y"], [0, 1, 2]),  # a broken character
        (["<unk>", "<unk>", "<eos>"], ["<unk>", "<unk>", "<eos>"], [0, 1, 2]),
        (["▁a", "<eos>", "▁b"], ["a", "<eos>", "b"], [0, 1, 2]),
        (["▁a", "▁"], ["a"], [0, 0]),
        (["▁", "<eos>"], ["▁", "<eos>"], [0, 1]),  # nothing but a space stays visible
        ([], [], []),
    ],
)
def test_subwords_are_joined(pieces: list[str], words: list[str], group: list[int]):
    assert group_pieces("unigram", pieces) == (words, group)


def test_the_tokens_of_a_word_vocabulary_are_words():
    assert group_pieces("words", ["a", "b", "<eos>"]) == (["a", "b", "<eos>"], [0, 1, 2])


@pytest.mark.parametrize("kind", ["words", "characters", "unigram", "bpe"])
def test_the_words_are_those_of_the_text(kind: str):
    size = {"unigram": 320, "bpe": 320}.get(kind, 100)
    vocabulary = build_pair(Pairs(LINES, LINES), kind=kind, size=size).src
    for text in (*LINES, "Unseen: 5 €, don't – ok?"):
        labels = vocabulary.labels(text)
        assert len(labels) == len(vocabulary.encode(text))
        words, group = group_pieces(kind, [*labels, SPECIALS[EOS]])
        assert words == [*split_words(text), "<eos>"]  # the user's words, never <unk>
        assert group == sorted(group)


LABELS = ["▁a", "b", "▁", ".", "'", "<unk>", "<eos>", "<0xC3>", "<0xBC>", "?!", "é", "␛1"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(LABELS)))
def test_every_piece_belongs_to_one_word(pieces: list[str]):
    words, group = group_pieces("unigram", pieces)
    assert len(group) == len(pieces)
    assert sorted(set(group)) == list(range(len(words)))
    assert group == sorted(group)
    assert all(words)
