"""Settings of consistency regularisation: defaults, refusals, and their part in the hash."""

from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.run import Run, resolve_models, settings_hash
from compare.config.sections import RegularizationConfig


def resolve(tiny_toml: Path, *overrides: str) -> Run:
    return resolve_models(load_experiment(tiny_toml, [f"regularization.{each}" for each in overrides]))[0]


def test_defaults_are_those_of_the_method():
    assert RegularizationConfig() == RegularizationConfig(consistency="none")
    assert (RegularizationConfig().weight, RegularizationConfig().cut_probability) == (None, None)
    r_drop = RegularizationConfig(consistency="r-drop")
    assert (r_drop.weight, r_drop.cut_probability) == (2.5, None)
    simcut = RegularizationConfig(consistency="simcut")
    assert (simcut.weight, simcut.cut_probability) == (3.0, 0.05)
    written_out = RegularizationConfig(consistency="simcut", consistency_weight=3.0, cut=0.05)
    assert (written_out, hash(written_out)) == (simcut, hash(simcut))
    assert written_out != RegularizationConfig(consistency="simcut", cut=0.1)
    passes = [RegularizationConfig(consistency=name).passes for name in ("none", "r-drop", "simcut")]
    assert passes == [1, 2, 2]


def test_a_summary_names_method_and_settings():
    assert RegularizationConfig().consistency_summary is None
    assert RegularizationConfig(consistency="r-drop").consistency_summary == "r-drop, weight 2.5"
    simcut = RegularizationConfig(consistency="simcut", consistency_weight=1.0)
    assert simcut.consistency_summary == "simcut, weight 1, cut 0.05"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["consistency=r-drop", "cut=0.1"], 'cut has no effect with consistency = "r-drop": set simcut'),
        (["consistency=simcut", "cut=0"], "cut must be above 0, found 0"),
        (["consistency=simcut", "cut=1"], "cut must be below 1, found 1"),
        (
            ["consistency=r-drop", "consistency_weight=-1"],
            "consistency_weight must be at least 0, found -1",
        ),
    ],
)
def test_what_cannot_be_is_refused(tiny_toml: Path, overrides: list[str], message: str):
    with pytest.raises(ValueError, match=message):
        resolve(tiny_toml, *overrides)


def test_the_hash_is_of_what_the_settings_mean(tiny_toml: Path):
    variants = [
        [],
        ["consistency=r-drop"],
        ["consistency=r-drop", "consistency_weight=5"],
        ["consistency=simcut"],
        ["consistency=simcut", "cut=0.1"],
    ]
    hashes = [settings_hash(resolve(tiny_toml, *overrides)) for overrides in variants]
    assert len(set(hashes)) == len(variants)
    assert hashes[0] == settings_hash(resolve(tiny_toml, "consistency=none"))
    assert hashes[1] == settings_hash(resolve(tiny_toml, "consistency=r-drop", "consistency_weight=2.5"))
    assert hashes[3] == settings_hash(resolve(tiny_toml, "consistency=simcut", "cut=0.05"))


def test_the_method_of_a_resolved_run_can_be_changed(tiny_toml: Path, tmp_path: Path):
    config = tmp_path / "config.toml"
    config.write_text(resolve(tiny_toml, "consistency=r-drop").to_toml())
    assert resolve(config).regularization.weight == 2.5
    assert resolve(config, "consistency=simcut").regularization.weight == 3
    assert resolve(config, "consistency=none").regularization == RegularizationConfig()


def test_models_that_sample_positions_are_refused(tmp_path: Path):
    path = tmp_path / "hard.toml"
    path.write_text(
        '[regularization]\nconsistency = "simcut"\n'
        '[[models]]\npreset = "hard-st"\n[[models]]\npreset = "hard-reinforce"\nlabel = "sampled"\n'
    )
    with pytest.raises(ValueError, match=r'consistency = "simcut" cannot train models.sampled'):
        resolve_models(load_experiment(path), str(path))
    assert len(resolve_models(load_experiment(path, ["regularization.consistency=none"]))) == 2
