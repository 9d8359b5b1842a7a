"""Word attention under forced decoding, and its measurement, of models with fixed weights."""

import numpy as np
import pytest
from torch import Tensor, nn

from compare.analysis.alignment import best_choice_rows, measure_alignment
from compare.analysis.gold_alignments import AlignmentCounts, word_pairs
from compare.analysis.word_attention import AttentionHead, attend_words
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
def test_heads_and_means_exclude_end_of_sentence_and_padding(batch_tokens: int):
    """All sentences in one batch, some, or each alone: weights at other positions are never read."""
    heads = {"cross.0": [backwards, forwards], "cross.1": [forwards]}
    pairs = word_pairs(reversed_pairs(SENTENCES))
    attentions = {pair.number: pair for pair in attend_words(fixed_attention(heads, batch_tokens), pairs)}
    assert sorted(attentions) == [0, 1, 2, 3]
    for number, pair in attentions.items():
        n = len(SENTENCES[number].split())
        eye, reversal = np.eye(n), np.eye(n)[::-1]
        expected = [reversal, eye, eye, (reversal + eye) / 2, (reversal + 2 * eye) / 3]
        np.testing.assert_allclose(pair.weights, expected, atol=1e-12)
        assert pair.heads == (
            *(AttentionHead("cross.0", 0), AttentionHead("cross.0", 1), AttentionHead("cross.1", 0)),
            *(AttentionHead("cross.0", None), AttentionHead("cross", None)),
        )
    assert [str(head) for head in attentions[0].heads[2:]] == ["cross.1 head 0", "cross.0 mean", "cross mean"]


def test_one_head_has_no_mean():
    (pair,) = attend_words(fixed_attention({"cross": [forwards]}), word_pairs(reversed_pairs(("a b",))))
    assert pair.heads == (AttentionHead("cross", 0),)


def test_a_model_without_attention_to_the_source_yields_nothing():
    """The self-attention of its encoder does not count."""
    gold = reversed_gold(*SENTENCES)
    assert list(attend_words(fixed_attention({}), gold.pairs)) == []
    assert measure_alignment(fixed_attention({}), gold) is None


class UniformAttention(nn.Module):
    """A model that gives every source piece, including end of sentence, the same weight."""

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        uniform = src_mask / src_mask.sum(1, keepdim=True)
        return {"cross": uniform[:, None, None, :].expand(-1, 1, tgt_in.size(1), -1)}


def test_pieces_of_each_side_are_merged_by_its_own_vocabulary():
    """Source of characters: 'a' has one of 5 positions, 'cd' two, space and end of sentence one each."""
    vocabularies = VocabularyPair(
        build_vocabulary("characters", ["a cd"], size=20), build_vocabulary("words", ["x y z"], size=20)
    )
    translator = Translator(UniformAttention(), vocabularies, DecodeConfig(), CPU)
    (pair,) = attend_words(translator, word_pairs(Pairs(("a cd",), ("x y z",))))
    np.testing.assert_allclose(pair.weights, [[[0.2, 0.4]] * 3], atol=1e-7)


def test_link_counts_of_fixed_attention_by_hand():
    """Backwards is always correct; forwards only in the middle of 3 words and for 1 word: 2 of 10 links."""
    measurement = measure_alignment(
        fixed_attention({"cross": [backwards, forwards]}), reversed_gold(*SENTENCES)
    )
    assert measurement is not None
    assert measurement.link_counts(measurement.best("arg max", [0])) == AlignmentCounts(10, 10, 10, 10)
    assert measurement.link_counts(measurement.best("arg max", [1])) == AlignmentCounts(10, 10, 2, 2)
    assert (
        measurement.best("arg max", [1, 2]).head == 2
    )  # the mean of both: equal weights, the first is often the correct one
    assert measurement.best("intersection", range(3)).head == 0


def test_the_best_head_on_validation_is_reported_on_test():
    """Head 0 is correct for 3 words, as in validation, and attends to the first of 4 words, as in test."""
    heads = {
        "cross": [
            lambda n, t: backwards(n, t) if n == 3 else 0,
            lambda n, t: backwards(n, t) if n == 4 else 0,
        ]
    }
    translator = fixed_attention(heads)
    valid, tested = (
        measure_alignment(translator, reversed_gold(*lines)) for lines in (["a b c"], ["a b c d", "d c b a"])
    )
    rows = list(best_choice_rows(valid, tested))
    assert [(row["read"], row["method"]) for row in rows] == [
        (kind, method) for kind in ("head", "mean") for method in ("arg max", "intersection", "threshold")
    ]
    assert rows[0]["attention"] == "cross head 0"
    assert rows[0]["aer_valid"] == 0
    assert rows[0]["aer"] == pytest.approx(1 - (2 + 2) / (8 + 8))  # one of four words is correct
    assert rows[0]["entropy_nats"] == 0
    assert rows[3]["attention"] == "cross mean"
    assert rows[3]["entropy_nats"] == pytest.approx(
        np.log(2) * 3 / 4
    )  # both heads agree for one of four words


def test_attention_that_is_one_word_early_is_found_by_hand():
    """Each word attends to the one before its own, the last to the first: shifted, 6 of 9 links are right.

    The sentence of one word has no link then, as it leaves the sentence.
    """
    heads = {"cross": [lambda n, t: max(backwards(n, t) - 1, 0), backwards]}
    measurement = measure_alignment(fixed_attention(heads), reversed_gold(*SENTENCES))
    assert measurement is not None
    early, right, _ = measurement.rows("arg max")
    assert early["aer"] == pytest.approx(1 - (4 + 4) / (10 + 10))  # the last word of each sentence
    assert (early["shift"], early["aer_shifted"]) == (1, pytest.approx(1 - (6 + 6) / (9 + 10)))
    assert (right["shift"], right["aer_shifted"]) == (0, 0)
    assert "shift" not in measurement.rows("intersection")[0]
    twice = measurement.plus(measurement).rows("arg max")
    assert [(row["shift"], row["aer_shifted"]) for row in twice[:2]] == [(1, early["aer_shifted"]), (0, 0)]
