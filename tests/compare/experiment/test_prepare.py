"""Data that all models share: hashes of batches, sampled subwords, and weights to start from."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from compare.check import check_experiment
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.experiment.compute_result import quality_figures
from compare.experiment.open_runs import choose_models
from compare.experiment.prepare import prepare_data
from compare.experiment.run import run_experiment
from compare.experiment.run_model import build_trainer
from compare.experiment.start import with_initial_weights
from compare.report.conditions import list_conditions
from compare.report.publish import published_run
from compare.results.run_folder import RunFolder
from compare.results.store import read_results
from compare.training.checkpoints import load_weights
from data.files import hash_file
from tests.kits.common import ROWS, Refusal, first_run
from tests.kits.experiments import renew_views
from tests.kits.texts import two_files


def test_data_for_another_seed_have_its_batches(tiny_toml: Path, tmp_path: Path):
    first = prepare_data(first_run(tiny_toml), tmp_path)
    other = first.for_seed(7)
    assert (first.batch_hash, other.batch_hash) == (first.stream.stream_hash(1), other.stream.stream_hash(1))
    assert first.batch_hash != other.batch_hash
    assert first.for_seed(first.stream.seed) is first


def test_another_seed_has_other_initial_weights(tiny_toml: Path, tmp_path: Path):
    weights = []
    for seed in (1, 2, 1):
        run = first_run(tiny_toml, [f"train.seed={seed}"])
        folder = RunFolder(run=run, folder=tmp_path / str(seed))
        trainer, _ = build_trainer(folder, prepare_data(run, tmp_path / "encoded"), lambda _: None)
        weights.append(next(trainer.model.parameters()).detach())
    assert torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[0], weights[1])


@pytest.mark.parametrize(
    ("target", "settings", "expected"),
    [
        ("s{n} ist gut", [], []),
        (
            "这是第{n}个句子",
            ["scoring.tokenize=13a"],
            [f"{split}, de: text without spaces in" for split in ("train", "valid", "test")],
        ),
        ("这是第{n}个句子", ["scoring.tokenize=zh"], []),
        (
            "s{n} ist gut &amp; alt",
            [],
            [f"{split}, de: HTML entities in" for split in ("train", "valid", "test")],
        ),
        ("s{n} i@@ st g@@ ut", ["vocabulary.kind=given"], []),
        ("s{n} ist gut", ["data.max_tokens=3"], ["1 of 60 training pairs are dropped"]),
        (
            "s{n} ist gut",
            ["vocabulary.size=6"],
            [f"{split}, {side}: " for split in ("valid", "test") for side in ("en", "de")],
        ),
        ("s{n} ist gut", ["vocabulary.kind=bpe", "vocabulary.size=999"], ["the text yields only"]),
    ],
)
def test_results_are_told_what_the_data_are(
    tiny_toml: Path, tmp_path: Path, target: str, settings: list[str], expected: list[str]
):
    for split, number in (("train", 60), ("valid", 8), ("test", 8)):
        source = {"train": "this is {n}", "valid": "is this {n}", "test": "{n} is this"}[split]
        sources = [source.format(n=n % 7) + " now" * (n == 59) for n in range(number)]
        targets = [target.format(n=n % 7) for n in range(number)]
        two_files(tmp_path, list(zip(sources, targets, strict=True)), split)
    settings = [f"data.root={tmp_path.as_posix()}", *settings]
    warnings = prepare_data(first_run(tiny_toml, settings), tmp_path / "encoded").warnings
    assert all(any(part in text for text in warnings) for part in expected)
    assert len(warnings) == len(expected)


@pytest.mark.parametrize("target", ["ein M@@ ann", "▁ein ▁M ann"])
def test_a_corpus_in_pieces_is_refused_but_as_given(tiny_toml: Path, tmp_path: Path, target: str):
    for split in ("train", "valid", "test"):
        two_files(tmp_path, [("a man", target)] * 9, split)
    settings = [f"data.root={tmp_path.as_posix()}"]
    with pytest.raises(ValueError, match=r"9 of 9 lines of train: set vocabulary\.kind = .given."):
        prepare_data(first_run(tiny_toml, settings), tmp_path / "encoded")
    pieces = ("vocabulary.kind=given", "decode.length_penalties=0")
    run = first_run(tiny_toml, [*settings, *pieces])
    prepared = prepare_data(run, tmp_path / "given")
    assert prepared.vocabularies.tgt.labels(target) == target.split()
    (tmp_path / "test.hyp").write_text("ein Mann\n" * 9)  # joined words
    assert quality_figures(RunFolder(run=run, folder=tmp_path), prepared.corpus)["chrf"] == 100


# Subword sampling.
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


def test_all_models_see_the_same_samples_and_check_draws_them_again(
    run_tiny: Callable[..., Path], tiny_toml: Path, tmp_path: Path
):
    """BPE-dropout; training ends in the second epoch."""
    folder = run_tiny(tmp_path / "run", *SAMPLED)
    renew_views(folder)
    results = read_results(folder)
    assert {result.status for result in results} == {"done"}
    assert len({result.batch_hash for result in results}) == 1
    assert all(result.epochs is not None and 1 < result.epochs < 2 for result in results)
    plain = prepare_data(first_run(tiny_toml, PLAIN), folder / "encoded")
    assert plain.batch_hash != results[0].batch_hash
    settings = dict(list_conditions([result.flat() for result in results]))["Settings"]
    assert {"vocabulary.kind bpe", "regularization.subword_sampling 0.3"} <= set(settings.split(", "))
    assert check_experiment(folder).differences == []


def test_validation_is_not_sampled(tiny_toml: Path, tmp_path: Path):
    prepared, plain = (
        prepare_data(first_run(tiny_toml, settings), tmp_path) for settings in (SAMPLED, PLAIN)
    )
    for split in ("train", "valid"):
        assert getattr(prepared, split).folder == getattr(plain, split).folder
    assert prepared.stream.split(1).src_lengths.sum() > 1.1 * plain.train.src_lengths.sum()


# Fine-tuning: training that starts from the weights and vocabularies of another run.
SHORT = ["train.max_updates=2", "train.valid_every=2", "train.average=1"]


def test_training_text_that_the_initial_vocabularies_lack_is_told(
    finished: Path, tiny_toml: Path, tmp_path: Path
):
    for split in ("train", "valid", "test"):
        two_files(tmp_path, [("nouveau mot" if split == "train" else "red dog", "rot Hund")] * 9, split)
    run = first_run(tiny_toml, [f"data.root={tmp_path}", f"train.init_from={finished}"])
    warnings = prepare_data(run, tmp_path / "encoded").warnings
    assert [warning[:24] for warning in warnings if "vocabulary" in warning] == ["train, en: 100.0% of the"]


@pytest.fixture(scope="module")
def tuned(finished: Path, tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of the models two updates further, at next to no learning rate, on the first half of the corpus."""
    folder = tmp_path_factory.mktemp("tuned") / "run"
    settings = [*SHORT, f"train.init_from={finished}", "data.train_size=200"]
    settings += ["models.*.learning_rate=1e-12", "models.*.warmup_updates=0"]
    run_experiment(load_experiment(tiny_toml, settings), folder, only=["luong"])
    return folder


def test_training_starts_from_the_weights_of_label_and_seed(tuned: Path, finished: Path):
    name = ROWS[0]
    source = RunFolder.read(finished / name)
    before, after = load_weights(source.weights), load_weights(RunFolder.read(tuned / name).weights)
    assert before.keys() == after.keys()
    for key in before:
        torch.testing.assert_close(after[key], before[key], rtol=0, atol=1e-6)
    train = RunFolder.read(tuned / name).run.train
    assert (train.init_from, train.init_hash) == (str(finished / name), hash_file(source.weights))
    result = json.loads((tuned / name / "result.json").read_text())
    assert result["init_hash"] == train.init_hash
    vocabulary = (tuned / name / "vocabulary.json").read_text()
    assert vocabulary == (finished / name / "vocabulary.json").read_text()


def test_all_budgets_start_from_the_same_weights(finished: Path, tiny_toml: Path, tmp_path: Path):
    """The source has one budget; of several, the largest counts."""
    settings = ["train.budgets=[5,10]", "models.*.warmup_updates=1", "data.train_size=200"]
    experiment = load_experiment(tiny_toml, [f"train.init_from={finished}", *settings])
    results = run_experiment(experiment, tmp_path / "run", only=["luong"])
    weights = RunFolder.read(finished / ROWS[0]).weights
    assert {(result.status, result.init_hash) for result in results} == {("done", hash_file(weights))}
    log = (tmp_path / "run" / f"{ROWS[0]}-budget10" / "log.txt").read_text()
    assert "continues from update 4 of 10" in log
    again = load_experiment(tiny_toml, [f"train.init_from={tmp_path / 'run'}", *settings])
    (run, *_) = choose_models(resolve_models(again), ["luong"])
    assert str(with_initial_weights(run).train.init_from).endswith(f"{ROWS[0]}-budget10")


def test_a_published_config_has_no_path(tuned: Path, finished: Path):
    text = published_run(RunFolder.read(tuned / ROWS[0])).to_toml()
    assert f'init_from = "{finished.name}/{ROWS[0]}"' in text
    assert str(finished.parent) not in text


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (
            ["vocabulary.kind=characters"],
            "has vocabulary.kind = words, here characters; its weights need its",
        ),
        (["models.luong.hidden_size=32"], "size or vocabulary; choose models that the weights fit"),
        (["train.seed=2"], "luong-seed2 is not a run"),
        (["train.init_hash=abc"], "are not the weights of train.init_hash"),
    ],
)
def test_what_does_not_fit_is_refused(
    settings: list[str], part: str, finished: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal
):
    words = [
        word for assignment in (f"train.init_from={finished}", *settings) for word in ("--set", assignment)
    ]
    for more in ([], ["--dry-run"]):
        message = refusal("run", tiny_toml, "--only", "luong", "--out", tmp_path / "run", "-q", *words, *more)
        assert part in message
    assert not (tmp_path / "run").exists()
