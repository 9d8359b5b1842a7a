"""The choice of a length penalty in a run: what it searches, what it keeps, and who uses it."""

import dataclasses
import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.decoding.length_penalty import LengthPenalty, length_penalties
from compare.experiment import evaluation
from compare.experiment.prepare import load_corpus
from compare.experiment.run import run_experiment
from compare.results.records import choose, read_selection
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import read_result
from compare.scoring.score import score_texts
from compare.system.log import Reporter
from compare.system.signals import Interrupted
from tests.kits.runs import ROWS


def test_every_run_chooses_from_the_same_grid_by_the_same_rule(finished: Path):
    for name in ROWS:
        folder = RunFolder.read(finished / name)
        penalties = length_penalties(folder.run.decode)
        assert len(penalties) > 4
        selection = read_selection(folder.selection, penalties)
        assert selection.chosen == choose(selection.grid)
        result = read_result(finished / name)
        assert LengthPenalty(result.length_penalty, result.length_normalization) == selection.penalty
        assert result.files["selection.json"]
        assert selection.weights == result.files["checkpoints/final.safetensors"]
        assert load_model(finished / name).penalty == selection.penalty == folder.penalty()


@pytest.mark.parametrize("name", ROWS)
def test_the_scores_of_a_grid_are_those_of_plain_searches(name: str, finished: Path):
    translator = load_model(finished / name)
    folder = RunFolder.read(finished / name)
    valid = load_corpus(folder.run.data).splits["valid"]
    penalties = length_penalties(folder.run.decode)
    for point in read_selection(folder.selection, penalties).grid:
        translator.penalty = point.penalty
        scores = score_texts(translator.translate(valid.src), valid.tgt, n_bootstrap=2)
        assert (point.bleu, point.length_ratio) == (scores.bleu, scores.length_ratio)


def test_one_value_is_taken_without_a_search(run_tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluation, "bleu_and_length_ratio", lambda *_: pytest.fail("a search"))
    settings = ["decode.length_penalties=0.7", "decode.length_normalization=length", "train.max_updates=2"]
    folder = run_tiny(tmp_path / "run", *settings)
    for name in ROWS:
        result = read_result(folder / name)
        assert (result.length_penalty, result.length_normalization) == (0.7, "length")
        assert not (folder / name / "selection.json").exists()
        assert "selection.json" not in result.files
        assert load_model(folder / name).penalty == LengthPenalty(0.7, "length")
    assert main(["check", str(folder), "-q"]) == 0


@pytest.mark.parametrize("best", [0, 2])
def test_a_choice_at_the_upper_edge_is_warned_of(
    best: int, copy: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    folder = RunFolder.read(copy / ROWS[0])
    scores = [(30.0 if index == best else 20.0, 1.0) for index in range(3)]
    monkeypatch.setattr(evaluation, "bleu_and_length_ratio", Mock(side_effect=scores))
    decode = dataclasses.replace(folder.run.decode, length_penalties=(0.0, 0.5, 4.0))
    folder = dataclasses.replace(folder, run=dataclasses.replace(folder.run, decode=decode))
    translator = load_model(copy / ROWS[0])
    folder.selection.unlink()
    valid = load_corpus(folder.run.data).splits["valid"]
    with caplog.at_level("WARNING"):
        chosen = evaluation.select_penalty(folder, translator, valid)
    assert chosen == LengthPenalty((0.0, 0.5, 4.0)[best], "wu")
    assert ("the largest length penalty of the grid" in caplog.text) == (best == 2)


@pytest.mark.parametrize("place", ["write_atomically", "write_record"])
def test_a_stopped_run_keeps_its_choice_or_makes_it_again(
    place: str, copy: Path, tiny_toml: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
):
    """Stopped after the choice is written, and just before."""
    for name in ROWS:
        (copy / name / "result.json").unlink()
        (copy / name / "selection.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, place, Mock(side_effect=Interrupted(15, "stopped")))
        with pytest.raises(Interrupted):
            run_experiment(load_experiment(tiny_toml), copy, Reporter(quiet=True))
    chosen = copy / ROWS[0] / "selection.json"
    assert chosen.exists() == (place == "write_atomically")
    searches = Mock(wraps=evaluation.bleu_and_length_ratio)
    monkeypatch.setattr(evaluation, "bleu_and_length_ratio", searches)
    run_experiment(load_experiment(tiny_toml), copy, Reporter(quiet=True))
    points = [len(json.loads((copy / name / "selection.json").read_text())["grid"]) for name in ROWS]
    assert searches.call_count == sum(points[1:] if place == "write_atomically" else points)
    for name in ROWS:
        for file in ("selection.json", "test.hyp"):
            assert (copy / name / file).read_bytes() == (finished / name / file).read_bytes()


def test_a_choice_for_other_weights_is_made_again(copy: Path, tiny_toml: Path, finished: Path):
    path = copy / ROWS[0] / "selection.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "weights": "0" * 64}))
    (copy / ROWS[0] / "result.json").unlink()
    run_experiment(load_experiment(tiny_toml), copy, Reporter(quiet=True))
    assert path.read_bytes() == (finished / ROWS[0] / "selection.json").read_bytes()


def test_a_damaged_choice_is_found(copy: Path, capsys: pytest.CaptureFixture[str]):
    path = copy / ROWS[0] / "selection.json"
    path.write_text(path.read_text()[:-20])
    assert main(["check", str(copy), "-q"]) == 1
    assert f"found {path}: " in capsys.readouterr().out


def test_a_row_with_another_penalty_than_the_file_is_found(copy: Path, capsys: pytest.CaptureFixture[str]):
    path = copy / ROWS[0] / "result.json"
    result = json.loads(path.read_text())
    other = next(value for value in (0.0, 0.2) if value != result["length_penalty"])
    changes = {"length_penalty": other, "length_normalization": "length", "brevity_penalty": 0.5}
    path.write_text(json.dumps({**result, **changes}))
    assert main(["check", str(copy), "-q"]) == 1
    printed = capsys.readouterr().out
    for name in changes:
        assert f"{ROWS[0]}: {name}: recorded " in printed
