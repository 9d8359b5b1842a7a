"""The hash of the settings that all rows of a table share."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.run import (
    DECIDED_BY_TIME,
    DEFAULTS,
    Run,
    find_difference,
    resolve_models,
    settings_hash,
    shared_settings,
)
from compare.config.sections import SECTIONS, DataConfig, TrainConfig, is_shared

OTHER = {
    "data": {"src": "fr", "tgt": "it", "max_tokens": 7, "max_test": 3, "train_size": 77, "seed": 9},
    "vocabulary": {"kind": "bpe", "size": 777, "joint": False, "min_count": 3},
    "train": {
        "precision": "bf16",
        "batch_tokens": 99,
        "max_updates": 20,
        "label_smoothing": 0.25,
        "clip_norm": 5.0,
        "valid_every": 3,
        "patience": 2,
        "average": 7,
        "average_every": 30,
        "ema": 0.875,
    },
    "regularization": {"consistency": "r-drop", "subword_sampling": 0.1},
    "decode": {
        "beam_size": 4,
        "max_ratio": 1.25,
        "length_penalties": (0.25, 0.75),
        "length_normalization": "both",
    },
    "budget": {"match": "flops"},
}


@pytest.fixture
def run(tiny_toml: Path) -> Run:
    return resolve_models(load_experiment(tiny_toml))[0]


def test_every_setting_is_shared_or_said_not_to_be(run: Run):
    names = {f"{section}.{field.name}" for section, kind in SECTIONS.items() for field in fields(kind)}
    assert shared_settings(run).keys() == {name for name in names if is_shared(name)} | {"task"}
    assert names >= DECIDED_BY_TIME


@pytest.mark.parametrize(("section", "key"), [(s, key) for s, keys in OTHER.items() for key in keys])
def test_another_shared_setting_is_another_hash_and_is_named(run: Run, section: str, key: str):
    other = replace(run, **{section: replace(getattr(run, section), **{key: OTHER[section][key]})})
    assert settings_hash(other) != settings_hash(run)
    assert (find_difference(run, other) or "").startswith(f"{section}.{key}: {OTHER[section][key]}, here ")


@pytest.mark.parametrize("name", sorted(DEFAULTS.keys() - {"task"}))
def test_a_setting_that_is_added_with_a_default_changes_nothing(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A file of before it, which lacks its line, is read as the same run, and has the same hash."""
    section, _, key = name.partition(".")
    path = tmp_path / "config.toml"
    plain = replace(run, **{each: kind() for each, kind in SECTIONS.items() if each not in ("data", "train")})
    plain = replace(plain, data=DataConfig(root="/c"), train=TrainConfig(device="cpu", precision="fp32"))
    lines = [line for line in plain.to_toml().splitlines() if not line.startswith(f"{key} = ")]
    path.write_text("\n".join(lines))
    read = load_experiment(path)
    assert getattr(read, section) == replace(getattr(plain, section), **{key: DEFAULTS[name]})
    now = replace(plain, **{section: getattr(read, section)})
    known = settings_hash(now)
    monkeypatch.delitem(DEFAULTS, name)  # the code of before
    assert settings_hash(now) == known


def test_a_start_from_other_weights_is_another_hash_and_is_named(run: Run):
    tuned = replace(run, train=replace(run.train, init_from="/runs/a", init_hash="0"))
    assert settings_hash(tuned) != settings_hash(run)
    assert find_difference(tuned, run) == "train.init_from: nothing, here /runs/a"
    other = replace(tuned, train=replace(tuned.train, init_from="/runs/b", init_hash="1"))
    assert settings_hash(other) == settings_hash(tuned)


def test_models_seeds_and_places_may_differ(tiny_toml: Path, run: Run):
    second = resolve_models(load_experiment(tiny_toml))[1].with_seed(5)
    moved = replace(
        second,
        data=replace(second.data, root="/elsewhere"),
        bench=replace(second.bench, repeats=9),
        train=replace(second.train, log_every=3, checkpoint_every=4),
        decode=replace(second.decode, batch_tokens=50),
    )
    assert settings_hash(moved) == settings_hash(run)
    assert find_difference(moved, run) is None


def test_a_budget_of_time_decides_updates(run: Run):
    timed = replace(run, budget=replace(run.budget, match="time", amount=3.0))
    longer = replace(timed, train=replace(timed.train, max_updates=999, valid_every=333))
    assert settings_hash(longer) == settings_hash(timed) != settings_hash(run)
