"""A whole experiment aligned: rows, choices, heat maps and spread, of made models and of trained ones."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from compare.analysis.alignment import experiment_alignment, experiment_entropy
from compare.analysis.alignment.experiment_alignment import align_experiment, median_over_seeds
from compare.analysis.alignment.experiment_entropy import attention_spread
from compare.analysis.alignment.gold import word_pairs
from compare.analysis.alignment.word_attention import attend_words
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, load_finished
from compare.results.store import Result
from compare.results.trained_model import load_model
from data.corpus import Corpus
from data.vocabulary import BOS, EOS
from tests.kits.alignment import SENTENCES, backwards, corpus_of, forwards, oracle, reversed_pairs


def finished_of(labels: list[tuple[str, int]], corpus: Corpus) -> FinishedExperiment:
    runs = [
        FinishedRun(
            result=Result(label=label, preset="lstm", seed=seed, status="done"),
            folder=Path(f"{label}-seed{seed}"),
            experiment=None,
            outputs={},
        )
        for label, seed in labels
    ]
    return FinishedExperiment(folder=Path("runs"), corpus=corpus, runs=tuple(runs))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> FinishedExperiment:
    """Two seeds of a good model, one without attention, and one that sees the source in order."""
    models = {
        "good-seed1": oracle({"cross": [backwards]}),
        "good-seed2": oracle({"cross": [forwards, backwards]}),
        "plain-seed1": oracle({}),
        "deep-seed1": oracle({"cross.0": [forwards], "cross.1": [forwards]}),
    }
    for module in (experiment_alignment, experiment_entropy):
        monkeypatch.setattr(module, "load_model", lambda folder, device: models[folder.name])
    labels = [("good", 1), ("good", 2), ("plain", 1), ("deep", 1)]
    return finished_of(labels, corpus_of(SENTENCES, ("a b c d", "e f")))


def test_rows_of_an_experiment(made: FinishedExperiment, caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", logger="compare"):
        found = align_experiment(made)
    assert caplog.messages == [f"aligning test: {run.folder.name}" for run in made.runs]
    diagonal, *rows = found.rows
    assert (diagonal["label"], diagonal["seed"], diagonal["aer"]) == ("diagonal", None, 1.0)
    assert {(row["label"], row["seed"]) for row in rows} == {("good", 1), ("good", 2), ("deep", 1)}
    by_run = {(row["label"], row["seed"], row["read"]): row for row in rows if row["method"] == "arg max"}
    assert {key: row["aer"] for key, row in by_run.items() if key[2] == "head"} == {
        ("good", 1, "head"): 0.0,
        ("good", 2, "head"): 0.0,
        ("deep", 1, "head"): 1.0,  # a b c d and e f have no word in the middle
    }
    assert by_run["good", 2, "head"]["attention"] == "cross head 1"
    assert by_run["deep", 1, "mean"]["attention"] == "cross mean"
    assert found.chosen == {("good", 1): ("cross", 0), ("good", 2): ("cross", 1), ("deep", 1): ("cross.0", 0)}
    heads = [(row["label"], row["seed"], row["attention"], row["aer"]) for row in found.heads]
    assert heads[:3] == [
        ("good", 1, "cross head 0", 0.0),
        ("good", 2, "cross head 0", pytest.approx(0.8)),  # on validation: 2 of 10
        ("good", 2, "cross head 1", 0.0),
    ]
    for function in (align_experiment, attention_spread):
        with pytest.raises(ValueError, match="corpus made has no split 'tets': choose one of valid, test"):
            function(made, test="tets")
    assert align_experiment(made, test="test_b").rows[0]["recall"] == 0


def test_seeds_are_put_together_by_their_median():
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


def test_spread_needs_no_gold(monkeypatch: pytest.MonkeyPatch):
    """Even weights over n words: log n each; one that looks at one place: 0."""
    corpus = corpus_of(("a",), ("a b c d", "e f"))
    models = {"plain-seed1": oracle({}), "two-seed1": oracle({"cross": [forwards, None]})}
    monkeypatch.setattr(experiment_entropy, "load_model", lambda folder, device: models[folder.name])
    (row,) = attention_spread(finished_of([("plain", 1), ("two", 1)], corpus))
    wide = (4 * np.log(4) + 2 * np.log(2)) / 6
    assert row == {
        "label": "two",
        "seed": 1,
        "heads": 2,
        "entropy_nats": pytest.approx(wide / 2),
        "entropy_nats_narrowest": 0,
        "entropy_nats_widest": pytest.approx(wide),
        "entropy_share": pytest.approx(1 / 2),
    }


@pytest.fixture(scope="module")
def trained(finished: Path) -> FinishedExperiment:
    """The tiny experiment, whose German is its English word for word and back to front."""
    loaded = load_finished(finished)
    splits = {name: reversed_pairs(pairs.src) for name, pairs in loaded.corpus.splits.items()}
    for name, pairs in loaded.corpus.splits.items():
        splits[name] = splits[name]._replace(tgt=pairs.tgt)
    return dataclasses.replace(loaded, corpus=dataclasses.replace(loaded.corpus, splits=splits))


def test_a_trained_model_is_read_as_it_attends_to_each_pair_alone(trained: FinishedExperiment):
    """Against one pair at a time, without padding; a model left in training mode draws no dropout."""
    pairs = word_pairs(trained.corpus.splits["test"])
    for run in trained.runs:
        translator = load_model(run.folder)
        translator.model.train()
        vocabularies = translator.vocabularies
        attended = list(attend_words(translator, pairs))
        assert sorted(found.number for found in attended) == list(range(len(pairs)))
        for found in attended:
            pair = pairs[found.number]
            src = torch.tensor([[*vocabularies.src.encode(pair.src), EOS]])
            tgt_in = torch.tensor([[BOS, *vocabularies.tgt.encode(pair.tgt)]])
            with torch.inference_mode():
                alone = translator.model.attention(src, torch.ones_like(src, dtype=torch.bool), tgt_in)
            cross = torch.cat([weights[0] for name, weights in alone.items() if "cross" in name])[:, :-1, :-1]
            np.testing.assert_allclose(found.weights[: len(cross)], cross.numpy(), atol=1e-5)


def test_a_trained_experiment_is_aligned_as_by_hand(trained: FinishedExperiment):
    """AER of one model by its formula over sets, from the weights of each pair."""
    found = align_experiment(trained)
    run = trained.labels["luong"][0]
    pairs, right, links = word_pairs(trained.corpus.splits["test"]), 0, 0
    for pair in attend_words(load_model(run.folder), pairs):
        n = len(pairs[pair.number].src_words)
        right += sum(int(pair.weights[0, t].argmax()) == n - 1 - t for t in range(n))
        links += n
    (row,) = [row for row in found.rows if row["label"] == "luong" and row["method"] == "arg max"]
    assert row["aer"] == pytest.approx(1 - 2 * right / (2 * links))
    (wide,) = [row for row in attention_spread(trained) if row["label"] == "luong"]
    assert row["entropy_nats"] == pytest.approx(wide["entropy_nats"])
    assert 0 < row["entropy_share"] < 1
    heads = [row["attention"] for row in found.heads if row["label"] == "transformer"]
    assert heads == ["cross.0 head 0", "cross.0 head 1", "cross.0 mean"]
