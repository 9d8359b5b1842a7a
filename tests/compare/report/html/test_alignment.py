"""The alignment part of the report, on models that were trained for a moment."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.gold_alignments import word_pairs
from compare.analysis.word_attention import AttentionHead, attend_words
from compare.attention.viewer import AttendedModel
from compare.report.html import sentences as viewer_module
from compare.report.html.analyses import alignment
from compare.report.html.parts import Section
from compare.report.html.sentences import attention_viewer
from compare.results.trained_model import load_model
from data.corpus import Pairs

NUMBERS = [0, 3, 5]


@pytest.fixture(scope="module")
def experiment(finished: Path) -> FinishedExperiment:
    """Two models of one seed; a corpus without gold links."""
    return load_finished(finished)


@pytest.fixture(scope="module")
def with_gold(experiment: FinishedExperiment) -> FinishedExperiment:
    """The same with the links of a language that is read back to front."""
    splits = {
        name: Pairs(pairs.src, pairs.tgt, links(pairs)) for name, pairs in experiment.corpus.splits.items()
    }
    return replace(experiment, corpus=replace(experiment.corpus, splits=splits))


def links(pairs: Pairs) -> tuple[str, ...]:
    lengths = (len(line.split()) for line in pairs.src)
    return tuple(" ".join(f"{i}-{n - 1 - i}" for i in range(n)) for n in lengths)


@pytest.fixture(scope="module")
def aligned(with_gold: FinishedExperiment) -> tuple[Section, dict[tuple[str, int], AttentionHead]]:
    return alignment(with_gold)


def test_the_viewer_holds_every_head_in_hundredths(experiment: FinishedExperiment):
    found = attention_viewer(experiment, NUMBERS, {})
    assert [model.name for model in found.models] == ["luong, seed 1", "transformer, seed 1"]
    assert found.models[0].heads == ["cross head 0"]
    assert len(found.models[1].heads) == 3  # two heads and their mean
    assert found.models[1].chosen == 2
    pairs = word_pairs(experiment.corpus.splits["test"])
    for place, run in enumerate(experiment.runs):
        for one in attend_words(load_model(run.folder), [pairs[number] for number in NUMBERS]):
            shown = np.array(found.sentences[one.number].weights[place])
            assert np.abs(shown.reshape(one.weights.shape) / 100 - one.weights).max() <= 0.005
    assert [sentence.number for sentence in found.sentences] == [1, 4, 6]
    assert [sentence.tgt for sentence in found.sentences] == [pairs[number].tgt_words for number in NUMBERS]
    assert found.sentences[0].links == []


def test_gold_links_and_the_best_head_are_shown_first(with_gold: FinishedExperiment, aligned):
    _, chosen = aligned
    found = attention_viewer(with_gold, NUMBERS, chosen)
    for sentence in found.sentences:
        n = len(sentence.src)
        assert sentence.links == [[j, n - 1 - j] for j in range(n)]
    heads = {f"{label}, seed {seed}": str(head) for (label, seed), head in chosen.items()}
    assert {model.name: model.heads[model.chosen] for model in found.models} == heads
    first = attention_viewer(with_gold, NUMBERS, {("transformer", 1): AttentionHead("cross.0", 0)})
    assert first.models[1].chosen == 0


def test_sentences_are_left_out_until_the_weights_fit(experiment: FinishedExperiment, monkeypatch):
    whole = attention_viewer(experiment, NUMBERS, {})
    sizes = [len(json.dumps(sentence.weights, separators=(",", ":"))) for sentence in whole.sentences]
    monkeypatch.setattr(viewer_module, "MOST_BYTES", sizes[0] + sizes[1])
    assert attention_viewer(experiment, NUMBERS, {}).sentences == whole.sentences[:2]
    monkeypatch.setattr(viewer_module, "MOST_BYTES", 0)
    assert attention_viewer(experiment, NUMBERS, {}).sentences == whole.sentences[:1]


def test_a_model_that_cannot_be_loaded_is_named(copy: Path):
    (copy / "luong-seed1" / "checkpoints" / "final.safetensors").unlink()
    found = attention_viewer(load_finished(copy), NUMBERS, {})
    lost, kept = found.models
    assert isinstance(lost, AttendedModel)
    assert "final.safetensors" in lost.trouble
    assert [len(sentence.weights[0]) for sentence in found.sentences] == [0, 0, 0]
    assert kept.trouble == ""
    assert len(kept.heads) == 3


def test_errors_stand_beside_the_diagonal(aligned):
    section, chosen = aligned
    assert set(chosen) == {("luong", 1), ("transformer", 1)}
    assert section.notes == []
    errors, heads, entropy = section.grids
    assert [row[0].text for row in errors.rows].count("diagonal") == 1
    assert (
        {row[0].text for row in heads.rows}
        == {row[0].text for row in entropy.rows}
        == {"luong", "transformer"}
    )
    assert "diagonal" in section.drawings[0].description


def test_without_gold_links_entropies_remain(experiment: FinishedExperiment):
    section, chosen = alignment(experiment)
    assert chosen == {}
    assert section.drawings == []
    assert [grid.title for grid in section.grids] == ["Entropy of attention"]
    assert "no gold links" in section.notes[0]
