"""Shorter forms of an experiment: a quick try, and what a number of minutes allows."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.config.sections import QUICK_TRY, SystemConfig
from compare.experiment import shorten
from compare.experiment.shorten import minutes_settings, quick_settings
from compare.results.run_folder import RunFolder


def test_a_quick_try_is_small_and_marked():
    narrow = ["models.lstm.embedding_size=16"]
    experiment = load_experiment("multi30k", narrow)
    quick = load_experiment("multi30k", [*narrow, *quick_settings(experiment)])
    for run in resolve_models(quick):
        assert max(run.model.widths().values()) == 64
        assert min(run.model.widths().values()) == (16 if run.label == "lstm" else 64)
        assert QUICK_TRY in run.warnings
    assert quick.data.max_test == 100
    theirs = replace(experiment, systems=(SystemConfig(label="theirs", files={"test": "all.de"}),))
    assert "data.max_test=100" not in quick_settings(theirs)


def test_minutes_decide_the_updates_and_what_depends_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """All runs together may train for 0.45 of the time; a second call keeps the updates of the first."""
    experiment = load_experiment("demo")
    estimates = [SimpleNamespace(train_s=60.0)] * 4
    monkeypatch.setattr(shorten, "estimate_experiment", lambda *_, **__: estimates)
    shorter = minutes_settings(experiment, tmp_path, 2)
    assert "train.max_updates=135" in shorter
    assert "train.valid_every=45" in shorter
    assert "models.transformer.warmup_updates=11" in shorter
    assert "models.bahdanau.attention_warmup=22" in shorter
    changed = load_experiment("demo", shorter)
    run = RunFolder(run=resolve_models(changed)[0], folder=tmp_path / "lstm-seed1")
    run.folder.mkdir()
    run.config.write_text(run.run.to_toml())
    estimates[:] = [SimpleNamespace(train_s=600.0)]
    assert minutes_settings(experiment, tmp_path, 2) == shorter
    estimates[:] = [SimpleNamespace(train_s=None)]
    with pytest.raises(ValueError, match="cannot be measured"):
        minutes_settings(experiment, tmp_path / "other", 2)
    with pytest.raises(ValueError, match="budgets says how long training is: leave --minutes out"):
        minutes_settings(load_experiment("demo", ["train.budgets=[4000]"]), tmp_path, 2)
