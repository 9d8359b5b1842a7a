"""An experiment with subword sampling, from the file to the checks."""

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare.check.recompute import check_experiment
from compare.config.parse import load_experiment
from compare.config.run import resolve_models, settings_hash
from compare.experiment.compute_result import training_figures
from compare.experiment.prepare import prepare_data
from compare.experiment.trainers import Announcement, build_trainer
from compare.report.conditions import list_conditions
from compare.results.run_folder import RunFolder
from compare.results.store import read_results
from compare.training.checkpoints import Validation
from compare.training.serialization import FINAL
from data.sampling import SampledSplit, Sides
from tests.kits.forgery import renew_views
from tests.kits.runs import first_run
from tests.kits.training import ROWS, metrics, same_weights

PLAIN = (
    "vocabulary.kind=bpe",
    "vocabulary.size=290",
    "data.train_size=100",
    "train.batch_tokens=200",
    "train.max_updates=18",
    "train.valid_every=14",
    "decode.beam_size=1",
    "decode.length_penalties=0",
)
SAMPLED = (*PLAIN, "regularization.subword_sampling=0.3")


@pytest.fixture(scope="module")
def sampled(run_tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny experiment with BPE-dropout, which ends in the second epoch."""
    folder = run_tiny(tmp_path_factory.mktemp("sampled") / "run", *SAMPLED)
    renew_views(folder)
    return folder


def test_all_models_see_the_same_samples_and_check_draws_them_again(sampled: Path, tiny_toml: Path):
    results = read_results(sampled)
    assert {result.status for result in results} == {"done"}
    assert len({result.batch_hash for result in results}) == 1
    assert {result.subword_sampling for result in results} == {"bpe 0.3"}
    assert all(result.epochs is not None and 1 < result.epochs < 2 for result in results)
    plain = prepare_data(first_run(tiny_toml, PLAIN), sampled / "encoded")
    assert plain.batch_hash != results[0].batch_hash
    rows = [{"subword_sampling": result.subword_sampling} for result in results]
    assert ("Training", "subword sampling bpe 0.3") in list_conditions(rows)
    assert check_experiment(sampled).differences == []


def test_check_finds_another_probability(sampled: Path, tmp_path: Path):
    """A config that was edited after the run describes other batches, and other counts of tokens."""
    copy = shutil.copytree(sampled, tmp_path / "run")
    config = copy / ROWS[0] / "config.toml"
    config.write_text(config.read_text().replace("subword_sampling = 0.3", "subword_sampling = 0.2"))
    names = {each.name for each in check_experiment(copy).differences}
    assert {"batch_hash", "subword_sampling", "settings_hash"} <= names
    assert any(name.startswith("metrics.jsonl: src_tokens of update") for name in names)


def test_a_start_draws_nothing_for_a_kept_hash_and_check_draws_each_epoch_once(
    sampled: Path, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch
):
    drawn = []
    draw = SampledSplit._draw

    def recorded(split: SampledSplit, epoch: int) -> list[Sides]:
        drawn.append(epoch)
        return draw(split, epoch)

    monkeypatch.setattr(SampledSplit, "_draw", recorded)
    settings = first_run(tiny_toml, SAMPLED)
    prepare_data(settings, sampled / "encoded").keep_hash()
    drawn.clear()
    prepare_data(settings, sampled / "encoded")
    assert drawn == []
    assert check_experiment(sampled).differences == []
    assert sorted(drawn) == [1, 2]


def test_epochs_that_are_drawn_again_for_their_number_are_announced(
    tiny_toml: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    lines = [
        {"kind": "train", "updates": 18, "src_tokens": 1, "tgt_tokens": 1, "data_s": 0, "train_s": 0},
        {"kind": "final", "update": 18, "best_update": 1, "loss": 1, "validation_s": 0, "checkpoint_s": 0},
    ]
    stream = prepare_data(first_run(tiny_toml, SAMPLED), tmp_path).stream
    for messages in (1, 0):
        caplog.clear()
        assert 1 < training_figures(lines, stream)["epochs"] < 2
        assert caplog.text.count("draws the samples of earlier epochs again") == messages


def test_validation_is_not_sampled(tiny_toml: Path, tmp_path: Path):
    prepared, plain = (prepare_data(first_run(tiny_toml, each), tmp_path) for each in (SAMPLED, PLAIN))
    for split in ("train", "valid"):
        assert getattr(prepared, split).content_hash == getattr(plain, split).content_hash
    assert prepared.stream.split(1).src_lengths.sum() > 1.1 * plain.train.src_lengths.sum()


def train(toml: Path, folder: Path, changes: Sequence[str], stop_at: int | None = None) -> Path:
    """Train the first model, or go on with it, up to an update from which nothing is saved."""
    folder.mkdir(exist_ok=True)
    run = resolve_models(load_experiment(toml, [*SAMPLED, *changes]))[0]
    prepared = prepare_data(run, folder / "encoded")

    def stop(line: dict[str, Any]) -> None:
        if (line["kind"], line["update"]) == ("train", stop_at):
            raise InterruptedError

    trainer, _ = build_trainer(RunFolder(run=run, folder=folder), prepared, stop)
    trainer.validate = lambda: Validation(loss=1.0, bleu=0.0)
    trainer.run()
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("vocabulary.kind=unigram", "regularization.subword_sampling=0.5"),
        ("regularization.consistency=simcut",),
        ("regularization.consistency=r-drop",),
    ],
    ids=["bpe", "unigram", "simcut", "r-drop"],
)
def test_a_run_stopped_in_an_epoch_ends_with_the_same_weights(
    tiny_toml: Path, tmp_path: Path, changes: Sequence[str]
):
    """It stops in the second epoch, after the last saved state; the next start draws that epoch again."""
    whole = train(tiny_toml, tmp_path / "whole", changes)
    with pytest.raises(InterruptedError):
        train(tiny_toml, tmp_path / "stopped", changes, stop_at=16)
    again = train(tiny_toml, tmp_path / "stopped", changes)
    assert same_weights(*(folder / "checkpoints" / FINAL for folder in (whole, again)))
    lines = metrics(whole)
    assert {line["epoch"] for line in lines if line["update"] in (14, 17)} == {2}
    for line, other in zip(metrics(again), lines, strict=True):
        for name in ("update", "epoch", "src_tokens", "tgt_tokens", "loss"):
            assert line.get(name) == other.get(name)


def test_several_processes_draw_the_same_samples(sampled: Path, tiny_toml: Path):
    prepared = prepare_data(first_run(tiny_toml, SAMPLED), sampled / "encoded")
    assert prepared.train.folder is not None
    assert prepared.valid.folder is not None
    opened = Announcement(
        folder=RunFolder.read(sampled / ROWS[0]),
        vocabularies=prepared.vocabularies,
        train=prepared.train.folder,
        valid=prepared.valid.folder,
        batch_hash=prepared.batch_hash,
    ).open_data()
    assert opened.stream.stream_hash() == prepared.batch_hash
    assert opened.stream.stream_hash(2) == prepared.stream.stream_hash(2) != prepared.batch_hash


def test_the_setting_is_shared_and_off_by_default(tiny_toml: Path):
    run, plain = (resolve_models(load_experiment(tiny_toml, each))[0] for each in (SAMPLED, PLAIN))
    assert plain.regularization.subword_sampling == 0
    assert settings_hash(run) != settings_hash(plain)
    assert settings_hash(replace(run, regularization=plain.regularization)) == settings_hash(plain)


def test_an_experiment_in_python_is_checked_too(tiny_toml: Path):
    experiment = load_experiment(tiny_toml, SAMPLED)
    with pytest.raises(ValueError, match=r'^regularization.subword_sampling needs .* found "words"'):
        replace(experiment, vocabulary=replace(experiment.vocabulary, kind="words"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], 'set vocabulary.kind to unigram or bpe, found "words"'),
        (["vocabulary.kind=characters"], 'set vocabulary.kind to unigram or bpe, found "characters"'),
        (["vocabulary.kind=bpe", "regularization.subword_sampling=1"], r"must be below 1, found 1"),
        (["vocabulary.kind=bpe", "regularization.subword_sampling=-0.1"], r"must be at least 0, found -0.1"),
        (["models.luong.subword_sampling=0.1"], "subword_sampling"),
    ],
)
def test_what_cannot_be_sampled_is_refused(tiny_toml: Path, overrides: list[str], message: str):
    settings = ["regularization.subword_sampling=0.1", *overrides]
    with pytest.raises(ValueError, match=message):
        resolve_models(load_experiment(tiny_toml, settings))
