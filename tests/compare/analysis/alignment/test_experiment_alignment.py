"""Alignment and entropy of whole experiments, with fixed attention and with trained models."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from compare.analysis import alignment as experiment_alignment
from compare.analysis import alignment as experiment_entropy
from compare.analysis.alignment import align_experiment, attention_spread, median_over_seeds
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, load_finished
from compare.analysis.gold_alignments import word_pairs
from compare.analysis.word_attention import attend_words
from compare.results.store import Result
from compare.results.trained_model import load_model
from data.corpus import Corpus
from data.vocabulary import BOS, EOS
from tests.kits.alignment import (
    SENTENCES,
    backwards,
    fixed_attention,
    forwards,
    reversed_corpus,
    reversed_pairs,
)


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
