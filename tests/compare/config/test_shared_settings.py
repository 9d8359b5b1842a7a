"""The hash of the settings that all rows of a table share."""

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.run import (
    DECIDED_BY_TIME,
    NOT_SHARED,
    Run,
    find_difference,
    resolve_models,
    settings_hash,
    shared_settings,
)
from compare.config.sections import SECTIONS

AVERAGES = ("train.average_every", "train.ema")
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
    expected = {name for name in names if not name.startswith("bench.")} - NOT_SHARED
    assert shared_settings(run).keys() == expected | {"task"}
    assert names >= NOT_SHARED | DECIDED_BY_TIME


@pytest.mark.parametrize(("section", "key"), [(s, key) for s, keys in OTHER.items() for key in keys])
def test_another_shared_setting_is_another_hash_and_is_named(run: Run, section: str, key: str):
    other = replace(run, **{section: replace(getattr(run, section), **{key: OTHER[section][key]})})
    assert settings_hash(other) != settings_hash(run)
    assert (find_difference(run, other) or "").startswith(f"{section}.{key}: {OTHER[section][key]}, here ")


def test_other_averages_are_another_hash_and_none_that_of_before(run: Run):
    even = replace(run, train=replace(run.train, average_every=30))
    assert settings_hash(even) != settings_hash(run)
    assert find_difference(even, run) == "train.average_every: 0, here 30"
    settings = shared_settings(run)
    later = {"task", *AVERAGES, *(name for name in settings if name.startswith("regularization."))}
    before = {name: value for name, value in settings.items() if name not in later}
    content = json.dumps(before, sort_keys=True, ensure_ascii=False)
    assert settings_hash(run) == hashlib.sha256(content.encode()).hexdigest()


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
