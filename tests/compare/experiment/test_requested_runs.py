"""The models that --only names."""

from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.run import resolve_models
from compare.experiment.folder import choose_models

TOML = """
[train]
device = "cpu"
[[models]]
preset = "lstm"
dropout = [0.1, 0.2]
learning_rate = [0.001, 0.002]
[[models]]
preset = "lstm"
label = "lstm-large"
[[models]]
preset = "bahdanau"
{more}
"""


def chosen(folder: Path, *only: str, more: str = "") -> list[str]:
    path = folder / "grid.toml"
    path.write_text(TOML.format(more=more))
    return [run.label for run in choose_models(resolve_models(load_experiment(path)), only)]


def test_the_label_of_a_grid_means_all_its_models(tmp_path: Path):
    grid = [f"lstm-dropout-{p}-learning_rate-{rate}" for p in (0.1, 0.2) for rate in (0.001, 0.002)]
    assert chosen(tmp_path) == [*grid, "lstm-large", "bahdanau"]
    assert chosen(tmp_path, "lstm") == grid
    assert chosen(tmp_path, "bahdanau", "lstm") == [*grid, "bahdanau"]
    assert chosen(tmp_path, "lstm-dropout-0.1") == grid[:2]
    assert chosen(tmp_path, "lstm-*") == [*grid, "lstm-large"]
    for label in ("lst", "l.tm", "lstm-", "bahdanau-dropout"):
        with pytest.raises(ValueError, match="--only: no model is labelled"):
            chosen(tmp_path, label)


def test_a_model_comes_before_a_grid_of_the_same_label(tmp_path: Path):
    assert chosen(tmp_path, "lstm", more='[[models]]\npreset = "luong-general"\nlabel = "lstm"') == ["lstm"]
