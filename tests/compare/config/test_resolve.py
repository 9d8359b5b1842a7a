"""Resolved runs: what is decided, what is refused, and the hash of the settings that all rows share."""

from dataclasses import replace
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.resolve import (
    DEFAULTS,
    Run,
    find_difference,
    resolve_models,
    settings_hash,
    shared_settings,
)
from compare.config.sections import SETTINGS, SHARED, DecodeConfig, RegularizationConfig
from compare.experiment.prepare import load_corpus

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
    "scoring": {"tokenize": "char"},
}


@pytest.fixture
def run(tiny_toml: Path) -> Run:
    return resolve_models(load_experiment(tiny_toml))[0]


def hash_with(path: Path, *overrides: str) -> str:
    return settings_hash(resolve_models(load_experiment(path, overrides))[0])


@pytest.mark.parametrize(("section", "key"), [(s, key) for s, keys in OTHER.items() for key in keys])
def test_another_shared_setting_is_another_hash_and_is_named(run: Run, section: str, key: str):
    other = replace(run, **{section: replace(getattr(run, section), **{key: OTHER[section][key]})})
    assert settings_hash(other) != settings_hash(run)
    assert (find_difference(run, other) or "").startswith(f"{section}.{key}: {OTHER[section][key]}, here ")


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
    assert shared_settings(run).keys() == {*SHARED, "task"}
    assert {"data.root", "train.seed", "bench.repeats"} <= SETTINGS.keys() - SHARED.keys()
    assert set(OTHER) == {name.partition(".")[0] for name in shared_settings(run)} - {"task"}


def test_a_setting_that_is_added_with_a_default_changes_no_hash(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A file of before it, which lacks its line, is read as the same run."""
    path = tmp_path / "config.toml"
    path.write_text("\n".join(line for line in run.to_toml().splitlines() if not line.startswith("ema = ")))
    (read,) = resolve_models(load_experiment(path))
    assert read == run
    recorded = settings_hash(run)
    monkeypatch.delitem(DEFAULTS, "train.ema")  # the code of before
    assert settings_hash(run) == recorded


@pytest.mark.parametrize(
    ("target", "tokenizer"),
    [
        ("de", "13a"),
        ("zh", "zh"),
        ("zh-TW", "zh"),
        ("lc.ja", "ja-mecab"),
        ("ko", "ko-mecab"),
        ("bzh", "13a"),
        ("zho_Hans", "zh"),
        ("JA", "ja-mecab"),
    ],
)
def test_the_tokenizer_is_that_of_the_target_language(tiny_toml: Path, target: str, tokenizer: str):
    """A file that writes it out has the same hash, because older files had no such setting."""
    language = f"data.tgt={target}"
    (run, *_) = resolve_models(load_experiment(tiny_toml, [language]))
    assert run.scoring.tokenize == tokenizer
    assert hash_with(tiny_toml, language, f"scoring.tokenize={tokenizer}") == settings_hash(run)
    assert hash_with(tiny_toml, language, "scoring.tokenize=char") != settings_hash(run)


def test_a_start_from_other_weights_is_another_hash_and_is_named(run: Run):
    tuned = replace(run, train=replace(run.train, init_from="/runs/a", init_hash="0"))
    assert settings_hash(tuned) != settings_hash(run)
    assert find_difference(tuned, run) == "train.init_from: nothing, here weights of another run"
    other = replace(tuned, train=replace(tuned.train, init_from="/runs/b", init_hash="1"))
    assert settings_hash(other) == settings_hash(tuned)


def test_a_smaller_corpus_is_another_hash_unless_it_is_the_built_in_one(run: Run):
    sized = {
        (root, size): replace(run, data=replace(run.data, root=root, train_size=size))
        for root in ("", "/a")
        for size in (0, 7, 20_000)
    }
    hashes = {key: settings_hash(sized_run) for key, sized_run in sized.items()}
    assert len({hashes["/a", size] for size in (0, 7, 20_000)}) == 3
    assert hashes["", 0] == hashes["", 20_000] != hashes["", 7]
    seven = load_corpus(replace(run.data, train_size=7)).splits["train"]
    assert seven == tuple(tuple(lines)[:7] for lines in load_corpus(run.data).splits["train"])
    with pytest.raises(ValueError, match=r"has 400 training pairs, fewer than data\.train_size = 401"):
        load_corpus(replace(run.data, train_size=401))


def test_consistency_regularisation_is_completed_by_its_method(tiny_toml: Path):
    assert RegularizationConfig(consistency="r-drop").consistency_weight == 2.5
    simcut = RegularizationConfig(consistency="simcut")
    assert (simcut.consistency_weight, simcut.cut, simcut.passes) == (3.0, 0.05, 2)
    hashes = [
        hash_with(tiny_toml, *(f"regularization.{setting}" for setting in overrides))
        for overrides in (
            [],
            ["consistency=r-drop"],
            ["consistency=r-drop", "consistency_weight=5"],
            ["consistency=simcut"],
            ["consistency=simcut", "cut=0.1"],
        )
    ]
    assert len(set(hashes)) == 5
    written = ("regularization.consistency=simcut", "regularization.consistency_weight=3")
    assert hash_with(tiny_toml, *written, "regularization.cut=0.05") == hashes[3]


def test_models_that_do_not_go_together_are_refused(tmp_path: Path):
    path = tmp_path / "e.toml"
    path.write_text("".join(f'[[models]]\npreset = "{name}"\n' for name in ("hard-st", "hard-reinforce")))
    with pytest.raises(ValueError, match=r'consistency = "simcut" cannot train models.hard-reinforce'):
        resolve_models(load_experiment(path, ["regularization.consistency=simcut"]), str(path))
    path.write_text("".join(f'[[models]]\npreset = "{name}"\n' for name in ("lstm", "lstm-lm")))
    with pytest.raises(ValueError, match=r"models.lstm is for translation and models.lstm-lm for language"):
        resolve_models(load_experiment(path), str(path))


def test_language_models_search_nothing(tmp_path: Path):
    path = tmp_path / "e.toml"
    path.write_text('[[models]]\npreset = "lstm-lm"\n')
    runs = [
        resolve_models(load_experiment(path, ["train.device=cpu", *more]))[0]
        for more in ([], ["decode.beam_size=7"])
    ]
    assert runs[0].decode == DecodeConfig(beam_size=1, length_penalties=(0.0,), batch_tokens=4_096)
    assert runs[0] == runs[1]
