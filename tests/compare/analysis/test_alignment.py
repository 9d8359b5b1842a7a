"""Attention as word alignment: with fixed attention by hand, and with trained models."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from compare.analysis import alignment as experiment_alignment
from compare.analysis import alignment as experiment_entropy
from compare.analysis.alignment import (
    align_experiment,
    attention_spread,
    best_choice_rows,
    measure_alignment,
    median_over_seeds,
)
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, load_finished
from compare.analysis.gold_alignments import AlignmentCounts, word_pairs
from compare.analysis.word_attention import AttentionHead, attend_words
from compare.config.sections import DecodeConfig
from compare.decoding.translator import Translator
from compare.results.run_folder import load_model
from compare.results.store import Result
from data.corpus import Corpus, Pairs
from data.vocabulary import BOS, EOS, VocabularyPair, build_vocabulary
from tests.kits.alignment import (
    CPU,
    SENTENCES,
    backwards,
    fixed_attention,
    forwards,
    reversed_corpus,
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


def finished_of(labels: list[tuple[str, int]], corpus: Corpus) -> FinishedExperiment:
    runs = [
        FinishedRun(
            result=Result(label=label, preset="lstm", seed=seed, status="done"),
            folder=Path(f"{label}-seed{seed}"),
            run=None,
            outputs={},
        )
        for label, seed in labels
    ]
    results = tuple(run.result for run in runs)
    return FinishedExperiment(folder=Path("runs"), corpus=corpus, runs=tuple(runs), results=results)


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> FinishedExperiment:
    """Two seeds of a good model, a model without attention, and one whose attention is monotonic."""
    models = {
        "good-seed1": fixed_attention({"cross": [backwards]}),
        "good-seed2": fixed_attention({"cross": [forwards, backwards]}),
        "plain-seed1": fixed_attention({}),
        "deep-seed1": fixed_attention({"cross.0": [forwards], "cross.1": [forwards]}),
    }
    for module in (experiment_alignment, experiment_entropy):
        monkeypatch.setattr(module, "load_model", lambda folder, device: models[folder.name])
    labels = [("good", 1), ("good", 2), ("plain", 1), ("deep", 1)]
    return finished_of(labels, reversed_corpus(SENTENCES, ("a b c d", "e f")))


def test_rows_of_an_experiment(experiment: FinishedExperiment, caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", logger="compare"):
        alignments = align_experiment(experiment)
    assert caplog.messages == [f"aligning test: {run.folder.name}" for run in experiment.runs]
    diagonal, *rows = alignments.rows
    assert (diagonal["label"], diagonal["seed"], diagonal["aer"]) == ("diagonal", None, 1.0)
    assert {(row["label"], row["seed"]) for row in rows} == {("good", 1), ("good", 2), ("deep", 1)}
    by_run = {(row["label"], row["seed"], row["read"]): row for row in rows if row["method"] == "arg max"}
    assert {key: row["aer"] for key, row in by_run.items() if key[2] == "head"} == {
        ("good", 1, "head"): 0.0,
        ("good", 2, "head"): 0.0,
        ("deep", 1, "head"): 1.0,  # no word of "a b c d" and "e f" is in the middle
    }
    assert by_run["good", 2, "head"]["attention"] == "cross head 1"
    assert by_run["deep", 1, "mean"]["attention"] == "cross mean"
    assert alignments.chosen == {
        ("good", 1): ("cross", 0),
        ("good", 2): ("cross", 1),
        ("deep", 1): ("cross.0", 0),
    }
    heads = [(row["label"], row["seed"], row["attention"], row["aer"]) for row in alignments.heads]
    assert heads[:3] == [
        ("good", 1, "cross head 0", 0.0),
        ("good", 2, "cross head 0", pytest.approx(0.8)),  # on validation: 2 of 10
        ("good", 2, "cross head 1", 0.0),
    ]
    for function in (align_experiment, attention_spread):
        with pytest.raises(ValueError, match="corpus made has no split 'tets': choose one of valid, test"):
            function(experiment, test="tets")
    assert align_experiment(experiment, test="test_b").rows[0]["recall"] == 0


def test_seeds_are_summarised_by_their_median():
    rows = [
        {
            "label": "a",
            "seed": seed,
            "read": read,
            "method": "arg max",
            "aer": aer,
            "precision": p,
            "recall": aer,
        }
        for seed, read, aer, p in [
            (1, "head", 0.3, None),
            (2, "head", 0.1, 0.5),
            (3, "head", 0.2, 0.75),
            (1, "mean", 0.9, 1),
        ]
    ]
    head, mean = median_over_seeds(rows)
    assert head == {
        "label": "a",
        "read": "head",
        "method": "arg max",
        "seeds": 3,
        "aer_median": 0.2,
        "aer_lowest": 0.1,
        "aer_highest": 0.3,
        "precision_median": 0.625,
        "recall_median": 0.2,
    }
    assert (mean["seeds"], mean["aer_median"]) == (1, 0.9)


def test_entropy_needs_no_gold(monkeypatch: pytest.MonkeyPatch):
    """Uniform weights over n words have entropy log n, weights on one word 0."""
    corpus = reversed_corpus(("a",), ("a b c d", "e f"))
    models = {"plain-seed1": fixed_attention({}), "two-seed1": fixed_attention({"cross": [forwards, None]})}
    monkeypatch.setattr(experiment_entropy, "load_model", lambda folder, device: models[folder.name])
    (row,) = attention_spread(finished_of([("plain", 1), ("two", 1)], corpus))
    uniform = (4 * np.log(4) + 2 * np.log(2)) / 6
    assert row == {
        "label": "two",
        "seed": 1,
        "heads": 2,
        "entropy_nats": pytest.approx(uniform / 2),
        "entropy_nats_narrowest": 0,
        "entropy_nats_widest": pytest.approx(uniform),
        "entropy_share": pytest.approx(1 / 2),
    }


@pytest.fixture(scope="module")
def trained(finished: Path) -> FinishedExperiment:
    """The tiny experiment, whose German is its English word for word in reversed order."""
    loaded = load_finished(finished)
    splits = {name: reversed_pairs(pairs.src) for name, pairs in loaded.corpus.splits.items()}
    for name, pairs in loaded.corpus.splits.items():
        splits[name] = splits[name]._replace(tgt=pairs.tgt)
    return dataclasses.replace(loaded, corpus=dataclasses.replace(loaded.corpus, splits=splits))


def test_batched_attention_of_a_trained_model_equals_that_of_single_pairs(trained: FinishedExperiment):
    """Compare with one pair at a time, without padding; a model in training mode applies no dropout."""
    pairs = word_pairs(trained.corpus.splits["test"])
    for run in trained.runs:
        translator = load_model(run.folder)
        translator.model.train()
        vocabularies = translator.vocabularies
        batched = list(attend_words(translator, pairs))
        assert sorted(attention.number for attention in batched) == list(range(len(pairs)))
        for attention in batched:
            pair = pairs[attention.number]
            src = torch.tensor([[*vocabularies.src.encode(pair.src), EOS]])
            tgt_in = torch.tensor([[BOS, *vocabularies.tgt.encode(pair.tgt)]])
            with torch.inference_mode():
                single = translator.model.attention(src, torch.ones_like(src, dtype=torch.bool), tgt_in)
            cross = torch.cat([weights[0] for name, weights in single.items() if "cross" in name])[
                :, :-1, :-1
            ]
            np.testing.assert_allclose(attention.weights[: len(cross)], cross.numpy(), atol=1e-5)


def test_a_trained_experiment_is_aligned_as_by_the_formula(trained: FinishedExperiment):
    """Compute the AER of one model from the weights of each pair."""
    alignments = align_experiment(trained)
    run = trained.labels["luong"][0]
    pairs, correct, links = word_pairs(trained.corpus.splits["test"]), 0, 0
    for pair in attend_words(load_model(run.folder), pairs):
        n = len(pairs[pair.number].src_words)
        correct += sum(int(pair.weights[0, t].argmax()) == n - 1 - t for t in range(n))
        links += n
    (row,) = [row for row in alignments.rows if row["label"] == "luong" and row["method"] == "arg max"]
    assert row["aer"] == pytest.approx(1 - 2 * correct / (2 * links))
    (entropy,) = [row for row in attention_spread(trained) if row["label"] == "luong"]
    assert row["entropy_nats"] == pytest.approx(entropy["entropy_nats"])
    assert 0 < row["entropy_share"] < 1
    heads = [row["attention"] for row in alignments.heads if row["label"] == "transformer"]
    assert heads == ["cross.0 head 0", "cross.0 head 1", "cross.0 mean"]
