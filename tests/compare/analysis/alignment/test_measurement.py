"""Attention under forced decoding and what is measured of it, from models whose weights are known by hand."""

import numpy as np
import pytest
from torch import Tensor, nn

from compare.analysis.alignment.aer import AlignmentCounts
from compare.analysis.alignment.experiment_alignment import best_choice_rows
from compare.analysis.alignment.gold import word_pairs
from compare.analysis.alignment.measurement import measure_alignment
from compare.analysis.alignment.word_attention import AttentionHead, attend_words
from compare.config.sections import DecodeConfig
from compare.decoding.translator import Translator
from data.corpus import Pairs
from data.vocabulary import VocabularyPair, build_vocabulary
from tests.kits.alignment import (
    CPU,
    SENTENCES,
    backwards,
    fixed_attention,
    forwards,
    reversed_gold,
    reversed_pairs,
)


@pytest.mark.parametrize("batch_tokens", [1, 9, 100])
def test_heads_and_means_without_ends_and_padding(batch_tokens: int):
    """All sentences in one batch, some, or each alone: the junk around them is never seen."""
    looks = {"cross.0": [backwards, forwards], "cross.1": [forwards]}
    pairs = word_pairs(reversed_pairs(SENTENCES))
    found = {pair.number: pair for pair in attend_words(fixed_attention(looks, batch_tokens), pairs)}
    assert sorted(found) == [0, 1, 2, 3]
    for number, pair in found.items():
        n = len(SENTENCES[number].split())
        eye, turned = np.eye(n), np.eye(n)[::-1]
        expected = [turned, eye, eye, (turned + eye) / 2, (turned + 2 * eye) / 3]
        np.testing.assert_allclose(pair.weights, expected, atol=1e-12)
        assert pair.heads == (
            *(AttentionHead("cross.0", 0), AttentionHead("cross.0", 1), AttentionHead("cross.1", 0)),
            *(AttentionHead("cross.0", None), AttentionHead("cross", None)),
        )
    assert [str(head) for head in found[0].heads[2:]] == ["cross.1 head 0", "cross.0 mean", "cross mean"]


def test_one_head_has_no_mean():
    (pair,) = attend_words(fixed_attention({"cross": [forwards]}), word_pairs(reversed_pairs(("a b",))))
    assert pair.heads == (AttentionHead("cross", 0),)


def test_a_model_without_attention_to_the_source_yields_nothing():
    """Its encoder may well attend to itself."""
    gold = reversed_gold(*SENTENCES)
    assert list(attend_words(fixed_attention({}), gold.pairs)) == []
    assert measure_alignment(fixed_attention({}), gold) is None


class Even(nn.Module):
    """Gives every source piece, the end of sentence too, the same weight."""

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        even = src_mask / src_mask.sum(1, keepdim=True)
        return {"cross": even[:, None, None, :].expand(-1, 1, tgt_in.size(1), -1)}


def test_pieces_of_each_side_are_merged_by_its_own_vocabulary():
    """Characters to words: of 1 + 1 + 2 + 1 places (the last is the end), 'a' has one and 'cd' two."""
    vocabularies = VocabularyPair(
        build_vocabulary("characters", ["a cd"], size=20), build_vocabulary("words", ["x y z"], size=20)
    )
    translator = Translator(Even(), vocabularies, DecodeConfig(), CPU)
    (pair,) = attend_words(translator, word_pairs(Pairs(("a cd",), ("x y z",))))
    np.testing.assert_allclose(pair.weights, [[[0.2, 0.4]] * 3], atol=1e-7)


def test_agreement_of_an_oracle_by_hand():
    """Backwards is all right; forwards only in the middle of 3 words and for 1: 2 of 10 links."""
    found = measure_alignment(fixed_attention({"cross": [backwards, forwards]}), reversed_gold(*SENTENCES))
    assert found is not None
    assert found.link_counts(found.best("arg max", [0])) == AlignmentCounts(10, 10, 10, 10)
    assert found.link_counts(found.best("arg max", [1])) == AlignmentCounts(10, 10, 2, 2)
    assert found.best("arg max", [1, 2]).head == 2  # the mean of both: of equals the first, often backwards
    assert found.best("intersection", range(3)).head == 0


def test_what_is_best_on_validation_is_reported_on_test():
    """Head 0 is right for 3 words, which validation has, and looks at the first of the 4 of the test."""
    looks = {
        "cross": [
            lambda n, t: backwards(n, t) if n == 3 else 0,
            lambda n, t: backwards(n, t) if n == 4 else 0,
        ]
    }
    translator = fixed_attention(looks)
    valid, tested = (
        measure_alignment(translator, reversed_gold(*lines)) for lines in (["a b c"], ["a b c d", "d c b a"])
    )
    rows = list(best_choice_rows(valid, tested))
    assert [(row["read"], row["method"]) for row in rows] == [
        (read, method) for read in ("head", "mean") for method in ("arg max", "intersection", "threshold")
    ]
    assert rows[0]["attention"] == "cross head 0"
    assert rows[0]["aer_valid"] == 0
    assert rows[0]["aer"] == pytest.approx(1 - (2 + 2) / (8 + 8))  # one of four words is right
    assert rows[0]["entropy_nats"] == 0
    assert rows[3]["attention"] == "cross mean"
    assert rows[3]["entropy_nats"] == pytest.approx(np.log(2) * 3 / 4)  # in one row of four both agree
