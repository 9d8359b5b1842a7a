"""The winning experiment file: the given one with tuned values, whatever form it has."""

from dataclasses import replace
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.experiment.tune.best_config import best_config, best_experiment
from compare.experiment.tune.candidates import Candidate
from compare.experiment.tune.trial_log import TrialResult

TOML = """# What this is for.
[data]
root = "corpus"  # beside this file

[train]
max_updates = 30

[[models]]
preset = "luong-general"
label = "luong"
learning_rate = 1e-2  # by hand
hidden_size = 16

# The other family.
[[models]]
preset = "transformer"
d_model = 16
"""
INLINE = """data.root = "corpus"
models = [{preset = "luong-general", label = "luong"}, {preset = "transformer", dropout = 0.5}]
"""
DOTTED = """[models]
[data]
[[ models ]]
preset = "lstm"
"""


def trial(label: str, number: int, rate: float) -> TrialResult:
    return TrialResult(
        label=label,
        trial=number,
        settings={"learning_rate": rate, "dropout": 0.2},
        status="done",
        bleu=12.345,
        loss=1.5,
        best_update=20,
        updates=30,
        seconds=1.0,
        code_version="test",
    )


WINNERS = {
    "luong": Candidate([trial("luong", 3, 0.004)]),
    "transformer": Candidate([trial("transformer", 7, 2.5e-4)]),
}


@pytest.mark.parametrize("text", [TOML, INLINE, TOML.replace("\n", "\r\n")])
@pytest.mark.parametrize(
    "overrides", [[], ["train.max_updates=60", "decode.beam_size=3", "data.src=de", "data.tgt=en"]]
)
def test_it_reads_back_as_the_experiment_with_the_winners(text: str, overrides: list[str], tmp_path: Path):
    (tmp_path / "given.toml").write_text(text, newline="")
    experiment = load_experiment(tmp_path / "given.toml", overrides)
    written = best_config(text, experiment, WINNERS, "About\nit")
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "elsewhere" / "given.toml"
    path.write_text(written)
    best = load_experiment(path)
    assert best == best_experiment(experiment, WINNERS)
    assert best.models[0].overrides == {**experiment.models[0].overrides, **WINNERS["luong"].settings}
    assert best.models[1].overrides["learning_rate"] == 2.5e-4
    assert best.data.root == str(tmp_path / "corpus")
    assert written.startswith("# About\n# it\n\n")


def test_comments_and_order_stay(tmp_path: Path):
    (tmp_path / "given.toml").write_text(TOML)
    written = best_config(TOML, load_experiment(tmp_path / "given.toml"), WINNERS, "About")
    expected = (
        TOML.replace('root = "corpus"  # beside this file', f'root = "{tmp_path.as_posix()}/corpus"')
        .replace(
            "learning_rate = 1e-2  # by hand",
            "learning_rate = 0.004  # trial 3: validation BLEU 12.35, loss 1.500",
        )
        .replace(
            "hidden_size = 16",
            "hidden_size = 16\ndropout = 0.2  # trial 3: validation BLEU 12.35, loss 1.500",
        )
        .replace(
            "d_model = 16",
            "d_model = 16\nlearning_rate = 0.00025  # trial 7: validation BLEU 12.35, loss 1.500\n"
            "dropout = 0.2  # trial 7: validation BLEU 12.35, loss 1.500",
        )
    )
    assert written == f"# About\n\n{expected}"


def test_several_seeds_are_named_in_the_comment(tmp_path: Path):
    (tmp_path / "given.toml").write_text(TOML)
    lower = replace(trial("luong", 3, 0.004), seed=2, bleu=10.345, loss=2.0)
    winners = {"luong": Candidate([trial("luong", 3, 0.004), lower])}
    written = best_config(TOML, load_experiment(tmp_path / "given.toml"), winners, "About")
    comment = "# trial 3: validation BLEU 11.35, loss 1.750, means of 2 seeds, lowest BLEU 10.35"
    assert f"learning_rate = 0.004  {comment}\n" in written
