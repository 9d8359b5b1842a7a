"""An experiment of language models: trained, chosen and judged by likelihood, from the file to the checks."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from compare import (
    load_model,
    score_model,
)
from compare.check.recompute import check_experiment
from compare.config.parse import load_experiment
from compare.config.run import resolve_models, settings_hash
from compare.experiment.budget import match_budget
from compare.experiment.compute_result import training_flops
from compare.experiment.prepare import prepare_data
from compare.experiment.run import run_experiment
from compare.experiment.trainers import Announcement
from compare.experiment.tune import TuningPlan, tune_experiment
from compare.models.registry import build_meta_model
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, read_results
from compare.system.log import Reporter
from compare.system.signals import Interrupted
from compare.training.metrics_log import read_metrics
from compare.training.validation import Validator
from data.files import hash_file
from data.vocabulary import BOS, EOS
from tests.kits.cli import Refusal
from tests.kits.forgery import edit_json, renew_views
from tests.kits.paths import ROOT
from tests.kits.runs import first_run

MODELS = """
[[models]]
preset = "lstm-lm"
embedding_size = 16
hidden_size = 16
learning_rate = 1e-2

[[models]]
preset = "transformer-lm"
d_model = 16
num_heads = 2
num_layers = 1
ffn_size = 32
warmup_updates = 5
"""
NAMES = ("lstm-lm-seed1", "transformer-lm-seed1")


def shared_part(tiny_toml: Path) -> str:
    """Return the tiny experiment without its models and its search settings."""
    text = tiny_toml.read_text().replace("[decode]\nbeam_size = 2\n", "")
    return text.replace("max_updates = 90", "max_updates = 24").replace("valid_every = 40", "valid_every = 8")


@pytest.fixture(scope="module")
def toml(tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("language-models") / "tiny-lm.toml"
    head = shared_part(tiny_toml)
    path.write_text(head[: head.index("[[models]]")] + MODELS)
    return path


@pytest.fixture(scope="module")
def modelled(toml: Path) -> Path:
    """The folder of the experiment, run to its end without a break, with its tables."""
    folder = toml.parent / "run"
    run_experiment(load_experiment(toml), folder, Reporter(quiet=True))
    renew_views(folder)
    return folder


def test_only_likelihoods_are_measured_and_the_targets_alone_are_counted(modelled: Path, toml: Path):
    prepared = prepare_data(first_run(toml), modelled / "encoded")
    assert prepared.train.src_lengths.sum() == 0
    for result in read_results(modelled):
        assert result.status == "done"
        assert result.perplexity is not None
        assert 1 < result.char_perplexity < result.perplexity < 40
        unknown = ("bleu", "chrf", "beam", "length_penalty", "beam_sentences_per_s", "latency_ms_p50")
        assert {getattr(result, name) for name in unknown} == {None}
        assert result.train_tokens_per_s == result.train_tgt_tokens_per_s > 0
        assert sorted(path.name for path in (modelled / result.run).glob("*.hyp*")) == []
        lines = read_metrics(modelled / result.run / "metrics.jsonl")
        assert {line["bleu"] for line in lines if "bleu" in line} == {None}
        windows = [line for line in lines if line["kind"] == "train"]
        assert sum(line["src_tokens"] for line in windows) == 0
        assert sum(line["tgt_tokens"] for line in windows) == result.tokens_seen
    assert len({result.batch_hash for result in read_results(modelled)}) == 1


def test_several_processes_read_the_targets_alone_too(modelled: Path, toml: Path):
    prepared = prepare_data(first_run(toml), modelled / "encoded")
    assert prepared.train.folder is not None
    assert prepared.valid.folder is not None
    opened = Announcement(
        folder=RunFolder.read(modelled / NAMES[0]),
        vocabularies=prepared.vocabularies,
        train=prepared.train.folder,
        valid=prepared.valid.folder,
        batch_hash=prepared.batch_hash,
    ).open_data()
    assert opened.train.src_lengths.sum() == opened.valid.src_lengths.sum() == 0
    assert opened.stream.stream_hash() == prepared.batch_hash == read_result(modelled / NAMES[0]).batch_hash


def test_the_weights_with_the_lowest_validation_loss_are_kept(modelled: Path):
    for name in NAMES:
        lines = read_metrics(modelled / name / "metrics.jsonl")
        validated = {line["update"]: line["loss"] for line in lines if line["kind"] == "valid"}
        final = lines[-1]
        assert len(validated) == 3
        assert final["best_update"] == min(validated, key=lambda update: validated[update])
        mean = next(line["loss"] for line in lines if line["kind"] == "average")
        assert final["loss"] == min([mean, *validated.values()])
        assert ("average" in final["chosen"]) == (mean < min(validated.values()))


@pytest.mark.parametrize("name", NAMES)
def test_perplexity_is_that_of_the_logits_sentence_by_sentence(name: str, modelled: Path, toml: Path):
    """In float64, without batches, padding or the loss of training."""
    translator = load_model(modelled / name)
    model = translator.model.double().eval()
    root = Path(load_experiment(toml).data.root)
    lines = (root / "test.de").read_text().splitlines()
    nll, tokens = 0.0, 0
    for line in lines:
        ids = translator.vocabularies.tgt.encode(line)
        with torch.no_grad():
            logits = model.model(torch.tensor([[BOS, *ids]]))[0]  # type: ignore[operator]
        nll += float(cross_entropy(logits, torch.tensor([*ids, EOS]), reduction="sum"))
        tokens += len(ids) + 1
    result = read_result(modelled / name)
    assert result.perplexity == pytest.approx(math.exp(nll / tokens), rel=1e-5)
    characters = sum(len(line) + 1 for line in lines)
    assert result.char_perplexity == pytest.approx(math.exp(nll / characters), rel=1e-5)
    (scores,) = score_model(modelled / name, None, root / "test.de").values()
    assert scores.sums.perplexity == pytest.approx(result.perplexity, rel=1e-5)


def test_a_stopped_run_ends_with_the_same_weights(modelled: Path, toml: Path, tmp_path: Path):
    validate, calls = Validator.__call__, []

    def stop_at_the_second(self: Validator) -> Any:
        calls.append(self)
        if len(calls) == 2:
            raise Interrupted(15, "stopped")
        return validate(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Validator, "__call__", stop_at_the_second)
        with pytest.raises(Interrupted):
            run_experiment(load_experiment(toml), tmp_path / "run", Reporter(quiet=True))
    run_experiment(load_experiment(toml), tmp_path / "run", Reporter(quiet=True))
    for name in NAMES:
        ours, theirs = (
            folder / name / "checkpoints/final.safetensors" for folder in (tmp_path / "run", modelled)
        )
        assert hash_file(ours) == hash_file(theirs)
        assert read_result(ours.parents[1]).perplexity == read_result(theirs.parents[1]).perplexity


def test_the_check_finds_no_difference_and_each_forged_perplexity(modelled: Path, tmp_path: Path):
    assert check_experiment(modelled, decode=1).differences == []
    copy = Path(shutil.copytree(modelled, tmp_path / "copy"))
    forged = copy / NAMES[0] / "perplexity.json"
    edit_json(forged, lambda content: content["tests"]["test"].update(nll=1.0))
    found = {finding.name for finding in check_experiment(copy).differences}
    assert {"perplexity.json", "perplexity", "char_perplexity"} <= found
    by_weights = {finding.name for finding in check_experiment(copy, decode=1).differences}
    assert "perplexity.json: nll of test, by the weights" in by_weights
    forged.unlink()
    assert "perplexity.json" in {finding.name for finding in check_experiment(copy).differences}


def test_models_of_two_tasks_are_refused(tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    mixed = tmp_path / "mixed.toml"
    mixed.write_text(shared_part(tiny_toml) + MODELS)
    found = refusal("run", mixed, "--out", tmp_path / "out", "-q")
    assert found == (
        f"{mixed}: models.luong is for translation and models.lstm-lm for language modelling, whose figures "
        "do not compare: give each task an experiment file of its own"
    )
    assert not (tmp_path / "out").exists()


def test_shared_settings_are_others_than_those_of_translation(tiny_toml: Path, toml: Path):
    """Also where every section is equal."""
    (run, *_), (other, *_) = (resolve_models(load_experiment(path)) for path in (toml, tiny_toml))
    sections = {name: getattr(run, name) for name in ("data", "vocabulary", "train", "decode", "budget")}
    assert settings_hash(run) != settings_hash(replace(other, **sections))


def test_a_folder_keeps_to_one_task(modelled: Path, tiny_toml: Path, tmp_path: Path, refusal: Refusal):
    copy = Path(shutil.copytree(modelled, tmp_path / "copy"))
    found = refusal("run", tiny_toml, "--out", copy, "-q")
    assert "(lstm-lm-seed1 has task: language modelling, here translation)" in found
    assert "choose another folder with --out" in found


def test_a_search_is_decided_by_the_validation_loss(toml: Path, tmp_path: Path):
    tuning = tune_experiment(load_experiment(toml), tmp_path / "out", TuningPlan(trials=2, updates=4))
    assert {each.bleu for each in tuning.trials} == {None}
    for label, winner in tuning.winners.items():
        losses = [each.loss for each in tuning.trials if each.label == label and each.loss is not None]
        assert winner.loss == min(losses)


def test_a_language_model_does_not_translate(modelled: Path):
    translator = load_model(modelled / NAMES[0])
    for call in (translator.translate, translator.generate, translator.attend):
        with pytest.raises(ValueError, match="a language model reads no source, so it cannot translate"):
            call(["red dog"] if call == translator.generate else "red dog")


def test_a_model_that_translates_needs_its_source(finished: Path, tiny_toml: Path):
    root = Path(load_experiment(tiny_toml).data.root)
    with pytest.raises(ValueError, match="is of a model that translates: name the source text with --src"):
        score_model(finished / "luong-seed1", None, root / "test.de")


@pytest.mark.parametrize("kind", ["params", "flops"])
def test_language_models_meet_a_budget(kind: str, tmp_path: Path):
    """Those of configs/language-models.toml, within 2%."""
    settings = ["data.train_size=200", f"budget.match={kind}"]
    experiment = load_experiment(ROOT / "configs/language-models.toml", settings)
    prepared = prepare_data(resolve_models(experiment)[0], tmp_path)

    def amount(architecture: Any) -> float:
        if kind == "flops":
            return training_flops(architecture, prepared=prepared)
        model = build_meta_model(architecture, *prepared.vocabulary_sizes)
        return sum(parameter.numel() for parameter in model.parameters())

    first, second = match_budget(resolve_models(experiment), prepared, {})
    assert amount(first.model.architecture) == pytest.approx(amount(second.model.architecture), rel=0.02)
