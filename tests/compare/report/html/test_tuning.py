"""The section on tuning: the curve, the winners, and what the experiment was run with."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.tuning import tuning_curve
from compare.cli import main
from compare.experiment.tune import TrialResult, write_trials
from compare.report.html import results as significance
from compare.report.html.methods import tuning_section
from compare.report.html.parts import Section
from compare.report.loaded_experiment import load_for_report
from compare.report.plots import tuning_plot
from tests.kits.cli import Refusal
from tests.kits.report import write_experiment

BLEU = {"lstm": [4.0, 10.0, 1.0], "rnn": [20.0, None, 14.0], "transformer": [3.0, 33.0, 30.0]}
"""Validation BLEU of each trial; None: it diverged."""
DROPOUT = (0.3, 0.1, 0.2)


def trials(bleu: dict[str, list[float | None]] = BLEU) -> list[TrialResult]:
    return [
        TrialResult(
            label=label,
            trial=number,
            settings={"dropout": DROPOUT[number - 1]},
            status="diverged" if score is None else "done",
            bleu=score,
            loss=None if score is None else 50 - score,
            best_update=None if score is None else 100,
            updates=100,
            seconds=10.0,
            code_version="test",
            reason="NaN" if score is None else None,
        )
        for label, scores in bleu.items()
        for number, score in enumerate(scores, start=1)
    ]


@pytest.fixture(autouse=True)
def few_shuffles(monkeypatch: pytest.MonkeyPatch):
    """With 10,000 a page takes seconds."""
    monkeypatch.setattr(significance, "TRIALS", 50)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models, run with dropout 0.0, 0.1 and 0.2."""
    return write_experiment(tmp_path_factory.mktemp("report") / "made", seeds=(1,))


@pytest.fixture(scope="module")
def finished(made: Path) -> FinishedExperiment:
    return load_for_report(made).finished


def section(finished: FinishedExperiment, folder: Path, found: list[TrialResult]) -> Section:
    write_trials(folder, found)
    made = tuning_section(finished, folder)
    assert made is not None
    return made


def test_the_winners_and_the_effort(finished: FinishedExperiment, tmp_path: Path):
    winners, curve = section(finished, tmp_path, trials()).grids
    heads = [head.text for head in winners.heads]
    rows = [dict(zip(heads, [cell.text for cell in row], strict=True)) for row in winners.rows]
    assert [(row["label"], row["best trial"], row["dropout"]) for row in rows] == [
        ("lstm", "2", "0.1"),
        ("rnn", "1", "0.3"),
        ("transformer", "2", "0.1"),
    ]
    assert [(row["trials"], row["failed"], row["seconds"]) for row in rows] == [
        ("3", "0", "30"),
        ("3", "1", "30"),
        ("3", "0", "30"),
    ]
    assert len(curve.rows) == 9


def test_the_plot_has_both_estimators():
    rows = tuning_curve(trials()).rows
    figure = tuning_plot(rows)
    for axes, column in zip(figure.axes, ("expected_bleu", "expected_bleu_with_replacement"), strict=True):
        assert len(axes.lines) == 3
        for line, label in zip(axes.lines, BLEU, strict=True):
            expected = [row[column] for row in rows if row["label"] == label]
            assert list(line.get_xdata()) == [1, 2, 3]
            assert list(line.get_ydata()) == expected
    assert figure.axes[0].lines[2].get_ydata()[-1] == pytest.approx(33)


def test_a_run_with_other_settings_than_its_best_trial_is_named(finished: FinishedExperiment, tmp_path: Path):
    notes = section(finished, tmp_path, trials()).notes
    assert "same random draws" in notes[0]
    assert notes[1:] == [
        "lstm was run with other settings than its best trial: dropout 0.0 (best trial: 0.1).",
        "rnn was run with other settings than its best trial: dropout 0.1 (best trial: 0.3).",
        "transformer was run with other settings than its best trial: dropout 0.2 (best trial: 0.1).",
    ]
    as_run = [
        msgspec.structs.replace(each, settings={"dropout": {"lstm": 0.0, "rnn": 0.1}.get(each.label, 0.2)})
        for each in trials()
    ]
    assert len(section(finished, tmp_path, as_run).notes) == 1


@pytest.mark.parametrize("change", [{"settings": {"dropout": 0.7}}, {"updates": 5000}])
def test_other_draws_or_updates_are_no_equal_effort(
    change: dict[str, Any], finished: FinishedExperiment, tmp_path: Path
):
    first, *others = trials()
    notes = section(finished, tmp_path, [msgspec.structs.replace(first, **change), *others]).notes
    assert "different draws or numbers of updates" in notes[0]


def test_unequal_effort_and_untuned_models_are_named(finished: FinishedExperiment, tmp_path: Path):
    notes = section(finished, tmp_path, trials({"lstm": [4.0], "rnn": [None, None]})).notes
    assert "different numbers of trials" in notes[0]
    assert [note.split(":")[0] for note in notes[2:]] == ["rnn", "transformer"]
    assert all("not tuned" in note for note in notes[2:])


def test_the_page_has_the_section_only_with_trials(made: Path, tmp_path: Path, finished: FinishedExperiment):
    """In the experiment's own folder, or in the one that is named."""
    assert tuning_section(finished, None) is None
    folder = Path(shutil.copytree(made, tmp_path / "copy"))
    write_trials(tmp_path / "search", trials())
    assert main(["report", str(folder), "-q", "--tuning", str(tmp_path / "search")]) == 0
    named = (folder / "report.html").read_text()
    write_trials(folder, trials())
    assert main(["report", str(folder), "-q"]) == 0
    assert named == (folder / "report.html").read_text()
    assert "<h2>Tuning</h2>" in named
    assert "transformer 22 to 33" in named  # the mean of 3, 33 and 30, and the best


def test_trials_that_cannot_be_read(made: Path, tmp_path: Path, refusal: Refusal):
    """Named on the command line: refused. Found in the folder: the section says so, the page is made."""
    absent = tmp_path / "absent"
    assert str(absent / "trials.jsonl") in refusal("report", made, "-q", "--tuning", absent)
    write_trials(absent, [])
    assert "holds no trials" in refusal("report", made, "-q", "--tuning", absent)
    folder = Path(shutil.copytree(made, tmp_path / "copy"))
    (folder / "trials.jsonl").write_text(json.dumps({"label": 1}) + "\n")
    assert main(["report", str(folder), "-q"]) == 0
    assert "line 1: not the result of a trial" in (folder / "report.html").read_text()
