"""Shorter forms of an experiment: a quick try, and what a number of minutes allows."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.config.sections import QUICK_TRY, SystemConfig
from compare.experiment import shorten
from compare.experiment.shorten import QUICK, fit_minutes, quick_experiment
from compare.results.run_folder import RunFolder


def test_a_quick_try_of_a_grid_is_small_and_marked_but_for_what_the_user_sets():
    settings = ["models.*.dropout=[0.1, 0.3]", "models.lstm.hidden_size=16", "models.lstm.embedding_size=96"]
    quick = quick_experiment(load_experiment("multi30k", [*QUICK, *settings]), settings)
    runs = resolve_models(quick)
    assert len(runs) == 2 * len(load_experiment("multi30k").models)
    for run in runs:
        widths = run.model.widths()
        if run.preset == "lstm":
            assert (widths["hidden_size"], widths["embedding_size"]) == (16, 96)
        elif "d_model" in widths:
            assert max(widths.values()) == 64
        assert QUICK_TRY in run.warnings
    assert quick.data.max_test == 100
    theirs = replace(quick, systems=(SystemConfig(label="theirs", files={"test": "all.de"}),))
    theirs = replace(theirs, data=replace(theirs.data, max_test=0))
    assert quick_experiment(theirs, []).data.max_test == 0


def test_minutes_decide_the_updates_and_what_depends_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """All runs together may train for 0.45 of the time; a second call keeps the updates of the first."""
    experiment = load_experiment("demo")
    estimates = [SimpleNamespace(train_s=60.0)] * 4
    monkeypatch.setattr(shorten, "estimate_experiment", lambda *_, **__: estimates)
    shorter = fit_minutes(experiment, tmp_path, 2)
    assert (shorter.train.max_updates, shorter.train.valid_every) == (135, 45)
    runs = {run.label: run for run in resolve_models(shorter)}
    assert runs["transformer"].model.optim.warmup_updates == 11
    assert runs["bahdanau"].model.settings()["attention_warmup"] == 22
    folder = RunFolder(run=runs["lstm"], folder=tmp_path / "lstm-seed1")
    folder.folder.mkdir()
    folder.config.write_text(folder.run.to_toml())
    estimates[:] = [SimpleNamespace(train_s=600.0)]
    assert fit_minutes(experiment, tmp_path, 2) == shorter
    estimates[:] = [SimpleNamespace(train_s=0.6)]
    assert fit_minutes(experiment, tmp_path / "other", 2, longer=False) == experiment
    estimates[:] = [SimpleNamespace(train_s=None)]
    with pytest.raises(ValueError, match="cannot be measured"):
        fit_minutes(experiment, tmp_path / "other", 2)
    with pytest.raises(ValueError, match="budgets says how long training is: leave --minutes out"):
        fit_minutes(load_experiment("demo", ["train.budgets=[4000]"]), tmp_path, 2)
