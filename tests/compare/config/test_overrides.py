"""Overrides of models from the command line, and lists that make a grid."""

from itertools import product
from pathlib import Path

import pytest

from compare.config.parse import MAX_MODELS, load_experiment
from compare.config.run import resolve_models

TEXT = """
[[models]]
preset = "lstm"
dropout = 0.2

[[models]]
preset = "transformer"
label = "big.1"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "two.toml").write_text(TEXT)
    return tmp_path / "two.toml"


def settings(path: Path, *overrides: str) -> dict[str, dict[str, object]]:
    runs = resolve_models(load_experiment(path, ["train.device=cpu", *overrides]))
    return {run.label: {"preset": run.preset, **run.model.settings()} for run in runs}


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        resolve_models(load_experiment(path, overrides), str(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def test_one_model_all_models_and_the_last_value_wins(path: Path):
    before = settings(path)
    found = settings(path, "models.*.learning_rate=2e-4", "models.big.1.dropout=0.4", "models.lstm.cell=gru")
    expected = {label: {**model, "learning_rate": 2e-4} for label, model in before.items()}
    expected["big.1"]["dropout"] = 0.4
    expected["lstm"]["cell"] = "gru"
    assert found == expected
    assert settings(path, "models.lstm.dropout=0.4", "models.*.dropout=0.3")["lstm"]["dropout"] == 0.3


def test_a_model_with_another_preset_keeps_its_label(path: Path):
    assert settings(path, "models.lstm.preset=bahdanau")["lstm"]["preset"] == "bahdanau"


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("models.lstn.dropout=0.1", "no model is labelled 'lstn'; did you mean 'lstm'?"),
        ("models.lstm.drpout=0.1", "lstm has no setting 'drpout'; did you mean 'dropout'?"),
        ("models.*.hidden_size=8", "big.1 has no setting 'hidden_size'"),  # a setting of the other model
        ("models.lstm.max_updates=8", "all models share it: --set train.max_updates=VALUE"),
        ("models.lstm.lr=1", "did you mean 'learning_rate'?"),
        ("models.lstm.label=a", "a label names its model"),
        ("models.lstm=3", "must look like section.key=value"),
        ("models.lstm.dropout=x", "models.lstm: dropout must be float, found 'x'"),
        ("models.lstm.dropout=3", "models.lstm: dropout must be"),
        ("models.lstm.preset=lstn", "unknown preset 'lstn'; did you mean 'lstm'?"),
        ("models.lstm.dropout=[]", "at least one"),
        ("train.lr=1e-3", "--set 'models.*.learning_rate=VALUE'"),
        ("train.dropout=0.1", "dropout is a setting of each model"),
        ("modles.lstm.dropout=0.1", "did you mean 'models'?"),
    ],
)
def test_a_mistake_names_the_nearest(path: Path, override: str, part: str):
    message = refusal(path, override)
    assert part in message
    assert f"--set {override}" in message or override.endswith(("=x", "=3", "[]", "=lstn"))


def test_the_hint_stands_in_messages_about_files_too(path: Path):
    path.write_text(f"[train]\nlearning_rate = 1e-3\n{TEXT}")
    assert "unknown key 'train.learning_rate'; learning_rate is a setting of each model" in refusal(path)


def test_lists_make_one_model_per_combination(path: Path):
    path.write_text(TEXT.replace("dropout = 0.2", 'dropout = [0.1, 0.2]\ncell = ["lstm", "gru"]'))
    found = settings(path)
    grid = {
        f"lstm-dropout-{dropout}-cell-{cell}": (dropout, cell)
        for dropout, cell in product((0.1, 0.2), ("lstm", "gru"))
    }
    assert list(found) == [*grid, "big.1"]
    assert {label: (found[label]["dropout"], found[label]["cell"]) for label in grid} == grid
    overridden = settings(path, "models.lstm.cell=gru", "models.*.dropout=[0.3,0.4]")
    assert list(overridden) == [
        f"{label}-dropout-{value}" for label in ("lstm", "big.1") for value in (0.3, 0.4)
    ]


def test_a_grid_is_refused_where_it_is_no_grid(path: Path):
    path.write_text(TEXT.replace("dropout = 0.2", "dropout = [0.1, 0.1]"))
    assert "label 'lstm-dropout-0.1' is given twice" in refusal(path)
    path.write_text(TEXT.replace("dropout = 0.2", "hiden_size = [1, 2]"))
    assert "did you mean 'hidden_size'?" in refusal(path)
    values = list(range(1, 40))
    path.write_text(TEXT.replace("dropout = 0.2", f"num_layers = {values}\nhidden_size = {values}"))
    assert f"make 1,521 models; at most {MAX_MODELS:,}" in refusal(path)
