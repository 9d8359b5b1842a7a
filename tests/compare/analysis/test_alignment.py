"""Attention between words as alignment: pieces joined, links, entropy; by hand."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from compare.analysis import alignment as module
from compare.analysis.alignment import (
    above_threshold,
    align_experiment,
    arg_max,
    attend_words,
    best_choice_rows,
    diagonal,
    entropy,
    measure_alignment,
    mutual_arg_max,
    shared_bytes,
    sum_entropy,
)
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.word_links import AlignmentCounts, Gold, corpus_gold, word_pairs
from compare.attention.weights import merge_pieces
from compare.config.sections import DecodeConfig, VocabularyConfig
from compare.decoding.translator import Translator
from compare.results.store import Result
from data.corpus import Corpus, Pairs, embedded_corpus
from data.vocabulary import BOS, EOS, Vocabulary, VocabularyPair, build_vocabulary, split_words

# Pieces and words.

SIZES = {"words": 400, "characters": 80, "given": 400, "unigram": 500, "bpe": 500}
WORDS = ["men", "theatre", "don't", "Übel", "?!", "▁", "␛0", "￭", "漢字", "😀", "e\u0301", "<0x41>"]
TEXTS = st.lists(
    st.sampled_from([*WORDS, " ", " ", "  ", "\t", "\u3000"]) | st.text(max_size=3), max_size=8
).map("".join)


@pytest.fixture(scope="module")
def vocabularies() -> dict[str, Vocabulary]:
    lines = [
        *embedded_corpus(train=150).splits["train"].src,
        *["Really?! The men ? Yes... The theatre ."] * 30,
    ]
    return {kind: build_vocabulary(kind, lines, size=SIZES[kind]) for kind in SIZES}


@pytest.mark.parametrize("kind", SIZES)
@settings(deadline=None)
@given(text=TEXTS)
def test_every_byte_of_a_word_is_in_one_piece(vocabularies: dict[str, Vocabulary], kind: str, text: str):
    """Pieces and words are in the order of the text."""
    vocabulary, words = vocabularies[kind], text.split() if kind == "given" else split_words(text)
    shared = shared_bytes(vocabulary, text, vocabulary.encode(text), words)
    assert shared.shape == (len(vocabulary.encode(text)), len(words))
    if kind in ("words", "characters", "given"):  # these write no escapes
        assert shared.sum(axis=0).tolist() == [len(word.encode()) for word in words]
    assert (shared.sum(axis=0) > 0).all()
    pieces, numbers = shared.nonzero()
    assert (np.diff(numbers[np.argsort(pieces, kind="stable")]) >= 0).all()


def test_bytes_by_hand(vocabularies: dict[str, Vocabulary]):
    """A rare sign in three bytes, each a piece; two marks that one piece holds; an escape of two signs."""
    text, vocabulary = "men € ?! ▁", vocabularies["unigram"]
    ids, words = vocabulary.encode(text), split_words(text)
    shared = shared_bytes(vocabulary, text, ids, words)
    single = [index for index, label in enumerate(vocabulary.pieces(ids)) if label.startswith("<0x")]
    assert shared[single[:3], words.index("€")].tolist() == [1, 1, 1]
    assert shared[:, 0].sum() == 3
    assert shared[:, -1].sum() == len("␛0".encode())


def test_words_of_another_tokeniser_are_accepted(vocabularies: dict[str, Vocabulary]):
    """Published gold links have their own tokenisation, with words such as "'s" and "o.k."."""
    text = "it 's o.k. !"
    shared = shared_bytes(vocabularies["words"], text, vocabularies["words"].encode(text), text.split())
    by_hand = [[2, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], *([[0, 0, 1, 0]] * 4), [0, 0, 0, 1]]
    assert shared.tolist() == by_hand  # it ' s o . k . !


def test_merging_by_hand():
    """Source words of 2 and 1 pieces with a space between; target words of 2 and 1 pieces, likewise."""
    src = np.array([[2, 0], [3, 0], [0, 0], [0, 4]])
    tgt = np.array([[1, 0], [0, 0], [5, 0], [0, 2]])
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [9, 9, 9, 9], [0.5, 0.1, 0.0, 0.4], [0.0, 0.0, 0.6, 0.3]])
    expected = [[(0.3 + 0.6) / 2, (0.4 + 0.4) / 2], [0.0, 0.3]]
    both = merge_pieces(np.stack([weights, 2 * weights]), tgt, src)  # any number of heads before T' and S'
    np.testing.assert_allclose(both, [expected, np.multiply(expected, 2)], atol=1e-15)
    # A source piece of two words is divided by bytes; a target piece of two words counts for both.
    src, tgt = np.array([[3, 1], [0, 2]]), np.array([[1, 1]])
    shared = merge_pieces(np.array([[0.8, 0.2]]), tgt, src)
    np.testing.assert_allclose(shared, [[0.6, 0.4]] * 2, atol=1e-15)


# Links and entropy.


def test_entropy_by_hand():
    """Pairs of 4, 2 and 1 source words; a share of log 1 = 0 is undefined."""
    rows = np.array([[1, 1, 1, 1], [0, 3, 0, 0], [0.5, 0.25, 0.25, 0], [0, 0, 0, 0]])
    entropies = entropy(rows)
    np.testing.assert_allclose(entropies[:3], [math.log(4), 0, 1.5 * math.log(2)], atol=1e-15)
    assert math.copysign(1, entropies[1]) == 1  # 0, not -0
    assert math.isnan(entropies[3])
    pairs = ([[1.0, 1, 1, 1], [0, 0, 0, 0]], [[1.0, 0], [1, 1], [1, 0]], [[1.0], [1.0]])
    total = sum(sum_entropy(np.array([weights])) for weights in pairs)
    assert total[:, 0] == pytest.approx([math.log(4) + math.log(2), 1 + 3 + 2, 1 + 1, 1 + 3])


def test_links_by_hand():
    weights = np.array([[0.6, 0.3, 0.1], [0.5, 0.2, 0.2], [0.0, 0.3, 0.3], [0.0, 0.0, 0.0]])
    assert np.argwhere(arg_max(weights)).tolist() == [[0, 0], [1, 0], [2, 1]]
    # Source 1 has two equal maxima, of which target 0 is the first.
    assert np.argwhere(mutual_arg_max(weights)).tolist() == [[0, 0]]
    assert np.argwhere(above_threshold(weights, 0.3)).tolist() == [[0, 0], [0, 1], [1, 0], [2, 1], [2, 2]]
    assert diagonal(2, 4).argmax(axis=1).tolist() == [1, 3]  # middles of the target words: 1/4 and 3/4 of 4
    assert diagonal(4, 2).argmax(axis=1).tolist() == [0, 0, 1, 1]


# Models with given attention weights, and corpora of reversed sentences with gold links.

JUNK = 77.0
"""Weight at padding and end-of-sentence positions, which must never be read."""
SENTENCES = ("a b c", "d e", "f a b d", "c")
SourceIndex = Callable[[int, int], int]
"""Returns the source word that target word t attends to in a sentence of n words, called as f(n, t)."""
Heads = Mapping[str, Sequence[SourceIndex | None]]
"""The heads of each layer by its name; a head that is None gives all words the same weight."""


class FixedAttention(nn.Module):
    """A model in evaluation that attends as given by ``heads``; targets are reversed sources."""

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.heads = heads

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        layers = {"encoder.0": torch.full((len(src), 1, src.size(1), src.size(1)), JUNK)}
        for layer, heads in self.heads.items():
            weights = torch.full((len(src), len(heads), tgt_in.size(1), src.size(1)), JUNK)
            for row, n in enumerate((src_mask.sum(1) - 1).tolist()):
                assert tgt_in[row, : n + 1].tolist() == [BOS, *src[row, :n].flip(0).tolist()]
                assert (src[row, n], self.training) == (EOS, False)
                for head, source_index in enumerate(heads):
                    weights[row, head, :n, :n] = 1 / n if source_index is None else 0
                    for t in range(n if source_index else 0):
                        weights[row, head, t, source_index(n, t)] = 1
            layers[layer] = weights
        return layers


def backwards(n: int, t: int) -> int:
    return n - 1 - t


def forwards(n: int, t: int) -> int:
    return t


def fixed_attention(heads: Heads, batch_tokens: int = 100) -> Translator:
    """Return a translator whose model is ``FixedAttention(heads)``."""
    vocabulary = build_vocabulary("words", SENTENCES, size=20)
    config = DecodeConfig(batch_tokens=batch_tokens)
    pair = VocabularyPair(vocabulary, vocabulary)
    return Translator(FixedAttention(heads), pair, config, torch.device("cpu"))


def reversed_pairs(lines: tuple[str, ...]) -> Pairs:
    """Return pairs whose target is the reversed source, with their gold links."""
    sentences = [line.split() for line in lines]
    links = tuple(" ".join(f"{i}-{len(words) - 1 - i}" for i in range(len(words))) for words in sentences)
    return Pairs(lines, tuple(" ".join(reversed(words)) for words in sentences), links)


def reversed_corpus(valid: tuple[str, ...], test: tuple[str, ...]) -> Corpus:
    splits = {"valid": valid, "test": test, "test_b": test[:1]}
    pairs = {name: reversed_pairs(lines) for name, lines in splits.items()}
    return Corpus(name="made", src_lang="en", tgt_lang="de", splits=pairs)


def reversed_gold(*lines: str) -> Gold:
    return corpus_gold(reversed_corpus(("a",), lines), "test")


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
    assert [str(head) for head in attentions[0].heads[2:]] == [
        "layer 2, head 1",
        "layer 1, mean",
        "mean of all heads",
    ]


def test_a_model_without_attention_to_the_source_yields_nothing():
    """The self-attention of its encoder does not count."""
    gold = reversed_gold(*SENTENCES)
    assert list(attend_words(fixed_attention({}), gold.pairs)) == []
    assert measure_alignment(fixed_attention({}), gold) is None


def test_pieces_of_each_side_are_merged_by_its_own_vocabulary():
    """Source of characters: 'a' has one of 5 positions, 'cd' two, space and end of sentence one each."""

    class UniformAttention(nn.Module):
        def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
            uniform = src_mask / src_mask.sum(1, keepdim=True)
            return {"cross": uniform[:, None, None, :].expand(-1, 1, tgt_in.size(1), -1)}

    pair = VocabularyPair(
        build_vocabulary("characters", ["a cd"], size=20), build_vocabulary("words", ["x y z"], size=20)
    )
    translator = Translator(UniformAttention(), pair, DecodeConfig(), torch.device("cpu"))
    (measured,) = attend_words(translator, word_pairs(Pairs(("a cd",), ("x y z",))))
    np.testing.assert_allclose(measured.weights, [[[0.2, 0.4]] * 3], atol=1e-7)


def test_link_counts_of_fixed_attention_by_hand():
    """Backwards is always correct; forwards only in the middle of 3 words and for 1 word: 2 of 10 links."""
    measured = measure_alignment(fixed_attention({"cross": [backwards, forwards]}), reversed_gold(*SENTENCES))
    assert measured.link_counts(measured.best("arg max", [0])) == AlignmentCounts(10, 10, 10, 10)
    assert measured.link_counts(measured.best("arg max", [1])) == AlignmentCounts(10, 10, 2, 2)
    # The mean of both has equal weights, of which the first is often the correct one.
    assert measured.best("arg max", [1, 2]).head == 2


def test_the_best_head_on_validation_is_reported_on_test():
    """Head 0 is correct for 3 words, as in validation, and attends to the first of 4 words, as in test."""
    heads = [lambda n, t, right=right: backwards(n, t) if n == right else 0 for right in (3, 4)]
    translator = fixed_attention({"cross": heads})
    valid, tested = (
        measure_alignment(translator, reversed_gold(*lines)) for lines in (["a b c"], ["a b c d", "d c b a"])
    )
    rows = list(best_choice_rows(valid, tested))
    assert [(row["read"], row["method"]) for row in rows] == [
        (kind, method) for kind in ("head", "mean") for method in ("arg max", "intersection", "threshold")
    ]
    assert (rows[0]["attention"], rows[0]["aer_valid"], rows[0]["entropy_nats"]) == ("head 1", 0, 0)
    assert rows[0]["aer"] == pytest.approx(1 - (2 + 2) / (8 + 8))  # one of four words is correct
    assert rows[3]["entropy_nats"] == pytest.approx(np.log(2) * 3 / 4)  # both agree for one of four words


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> FinishedExperiment:
    """Two seeds of a good model, a model without attention, and one whose attention is monotonic."""
    models = {
        ("good", 1): fixed_attention({"cross": [backwards]}),
        ("good", 2): fixed_attention({"cross": [forwards, backwards]}),
        ("plain", 1): fixed_attention({}),
        ("deep", 1): fixed_attention({"cross.0": [forwards], "cross.1": [None]}),
    }
    runs = tuple(
        FinishedRun(
            result=Result(label=label, preset="lstm", seed=seed, status="done"),
            folder=Path(f"{label}-seed{seed}"),
            run=SimpleNamespace(vocabulary=VocabularyConfig()),
            outputs={},
        )
        for label, seed in models
    )
    by_folder = {run.folder: model for run, model in zip(runs, models.values(), strict=True)}
    monkeypatch.setattr(module, "load_model", by_folder.__getitem__)
    corpus = reversed_corpus(SENTENCES, ("a b c d", "e f"))
    results = tuple(run.result for run in runs)
    return FinishedExperiment(folder=Path("runs"), corpus=corpus, runs=runs, results=results)


def test_rows_of_an_experiment(experiment: FinishedExperiment):
    alignments = align_experiment(experiment)
    first, *rows = alignments.rows
    assert (first["label"], first["seed"], first["aer"]) == ("diagonal", None, 1.0)
    by_run = {(row["label"], row["seed"], row["read"]): row for row in rows if row["method"] == "arg max"}
    assert {key: row["aer"] for key, row in by_run.items() if key[2] == "head"} == {
        ("good", 1, "head"): 0.0,
        ("good", 2, "head"): 0.0,
        ("deep", 1, "head"): pytest.approx(2 / 3),  # equal weights: the first is that of the last word
    }
    assert by_run["good", 2, "head"]["attention"] == "head 2"
    assert by_run["deep", 1, "mean"]["attention"] == "mean of all heads"
    assert alignments.chosen["good", 2] == ("cross", 1)
    heads = [(row["label"], row["seed"], row["attention"], row["aer"]) for row in alignments.heads]
    assert heads[:3] == [
        ("good", 1, "head 1", 0.0),
        ("good", 2, "head 1", pytest.approx(0.8)),  # on validation: 2 of 10
        ("good", 2, "head 2", 0.0),
    ]
    spread = {(row["label"], row["seed"]): row for row in alignments.spread}
    uniform = (4 * np.log(4) + 2 * np.log(2)) / 6  # over n words log n, on one word 0
    assert list(spread["deep", 1].values())[2:] == [
        *[2, pytest.approx(uniform / 2), 0, pytest.approx(uniform), pytest.approx(1 / 2)]
    ]
    splits = {name: pairs._replace(links=()) for name, pairs in experiment.corpus.splits.items()}
    without = align_experiment(replace(experiment, corpus=replace(experiment.corpus, splits=splits)))
    assert without == ([], [], {}, alignments.spread)
