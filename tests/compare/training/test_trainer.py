"""The trainer alone: the loop by hand, breaks at any moment, what is written when, the choice of weights."""

import math
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from compare.config.sections import RegularizationConfig, TrainConfig
from compare.system.plugins import source_version
from compare.system.processes import Interrupted
from compare.training import checkpoints, log
from compare.training import trainer as module
from compare.training.checkpoints import (
    FINAL,
    STATE,
    Checkpoint,
    MovingAverage,
    TrainerState,
    Validation,
    load_state,
    load_weights,
    model_weights,
)
from compare.training.log import MetricsLog
from compare.training.loss import TranslationLoss
from compare.training.source_attention import SourceAttention
from compare.training.step import update_weights
from compare.training.trainer import Trainer, TrainingDiverged, Validator
from data.batches import BatchStream
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from tests.kits.training import SMALL, TinyModel, bleus, make_stream, metrics, same_weights, trainer
from transformer.config import TransformerConfig

stream = pytest.fixture(scope="module")(make_stream)
EVEN = {"average": 3, "average_every": 3, "valid_every": 5, "checkpoint_every": 4, "max_updates": 17}
TRANSFORMER = TransformerConfig(
    d_model=8, num_heads=2, encoder_layers=1, decoder_layers=1, ffn_size=8, attention_dropout=0.1
)


# --- updates


def test_the_picture_of_the_validations_has_a_point_for_each(tmp_path: Path):
    metrics_log = MetricsLog(tmp_path / "metrics.jsonl")
    for update, bleu in ((100, 20.0), (200, 40.0)):
        metrics_log.append({"kind": "valid", "update": update, "loss": 2.0, "bleu": bleu})
    picture = (tmp_path / "validation.svg").read_text()
    assert 'points="300.0,150.0 600.0,0.0"' in picture
    assert "validation BLEU: 40.00" in picture


def test_training_is_the_loop_that_one_would_write_by_hand(stream: BatchStream, tmp_path: Path):
    """AdamW, its rates, clipping, smoothing and the mean per target token of both parts, without dropout."""
    model = replace(SMALL, dropout=0.0)
    run = trainer(stream, tmp_path / "a", bleus(1), architecture=model, valid_every=10, accumulate=2)
    by_hand = trainer(stream, tmp_path / "b", bleus(1), architecture=model).model.train()
    run.run()
    optimizer = torch.optim.AdamW(by_hand.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    # Two updates of warm-up, then linearly towards 0, which the update after the last would have.
    rates = [0.5e-2, 1e-2, *(1e-2 * left / 8 for left in range(8, 0, -1))]
    for batch, rate in zip(stream.epoch(1), rates, strict=False):
        optimizer.param_groups[0]["lr"] = rate
        logits = by_hand(batch.src, batch.src_mask, batch.tgt_in)[batch.tgt_mask]
        targets = batch.tgt_out[batch.tgt_mask]
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, targets, label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
        optimizer.step()
    weights = load_weights(tmp_path / "a" / "checkpoints" / FINAL)
    for name, tensor in model_weights(by_hand).items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=5e-5)


def test_the_score_of_attention_is_trained_only_after_its_warmup(stream: BatchStream, tmp_path: Path):
    attention = AttentionConfig(score="general", attention_warmup=3)
    config = Seq2SeqConfig(attention=attention, embedding_size=8, hidden_size=8)
    keys = []
    for updates in (0, 3, 4):
        settings = {"max_updates": max(1, updates), "valid_every": 10}
        run = trainer(stream, tmp_path / str(updates), bleus(1), architecture=config, **settings)
        if updates:
            run.run()
        keys.append(model_weights(run.model)["decoder.attention.scorer.key.weight"])
    assert torch.equal(keys[0], keys[1])
    assert not torch.equal(keys[0], keys[2])


def test_the_validation_loss_is_a_mean_over_tokens_whoever_computed_them():
    validator = Validator.__new__(Validator)
    validator.translator = SimpleNamespace(reads_source=False)  # type: ignore[assignment]
    assert validator._scores([[(10.0, 4), (6.0, 1)], [(2.0, 1)]]).loss == pytest.approx(18 / 6)


def test_a_model_whose_loss_is_no_number_is_not_searched():
    """The search would refuse its scores, and the run would not end as one that diverged."""
    validator = Validator.__new__(Validator)
    validator.translator = SimpleNamespace(reads_source=True)  # type: ignore[assignment]
    assert math.isnan(validator._scores([[(math.nan, 4)]]).loss)


def test_attention_that_has_not_found_the_source_is_logged_and_warned_of_once(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(module, "ATTENTION_BY", 4)
    lost = SourceAttention(link_mass=0.01, chance_mass=0.1, direction=-0.4)
    trainer(stream, tmp_path, [Validation(3.0, 1.0, lost)]).run()
    lines = [line for line in metrics(tmp_path) if line["kind"] == "valid"]
    assert {line["link_mass"] for line in lines} == {0.01}
    (warning,) = (message for message in caplog.messages if "attention has not found" in message)
    assert "by update 4" in warning
    caplog.clear()
    held = AttentionConfig(attention_warmup=100)  # uniform on purpose
    config = Seq2SeqConfig(attention=held, embedding_size=8, hidden_size=8)
    trainer(stream, tmp_path / "held", [Validation(3.0, 1.0, lost)], architecture=config).run()
    assert "attention has not found" not in caplog.text


@pytest.mark.parametrize(("clip_norm", "factor"), [(1.0, 1 / 5), (8.0, 1.0), (0.0, 1.0)])
def test_gradients_are_scaled_down_to_the_norm_and_not_at_all_with_0(clip_norm: float, factor: float):
    """With plain descent at rate 1, the weights change by the gradient, here of norm 5."""
    model = TinyModel()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    length = sum(parameter.numel() for parameter in before) ** 0.5
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 5 / length)
    optimizer, train = torch.optim.SGD(model.parameters(), lr=1.0), TrainConfig(clip_norm=clip_norm)
    assert float(update_weights(TranslationLoss(model, 0.0), optimizer, train)) == pytest.approx(5.0)
    for parameter, old in zip(model.parameters(), before, strict=True):
        change = torch.full_like(old, -5 / length * factor)
        torch.testing.assert_close(parameter.detach() - old, change, rtol=1e-5, atol=1e-9)
        assert parameter.grad is None


# --- validation, and when training stops


def test_the_best_weights_are_those_of_the_best_bleu(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(1, 5, 9, 4, 3))
    state = run.run()
    assert (state.best_update, state.best_bleu, state.worse) == (6, 9, 2)
    assert same_weights(run.folder / FINAL, run.snapshot(6))
    weights = load_file(run.folder / FINAL)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model_weights(run.model).items())
    names = {path.name for path in run.folder.iterdir()}
    assert names == {FINAL, STATE, "update-0000006.safetensors", "update-0000010.safetensors"}


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([(5.0, 9.0), (4.0, 9.0), (4.5, 9.0), (4.0, 9.0)], 2),
        ([(6.35, 0.034), (6.0, 0.9), (4.82, 0.031), (4.9, 0.99)], 3),
        ([(6.35, 0.9), (6.5, 1.0), (4.82, 0.031), (5.0, 0.0)], 2),
    ],
    ids=["equal BLEU", "BLEU below 1", "BLEU of 1"],
)
def test_loss_decides_between_equal_bleu_and_between_bleu_that_is_noise(
    scores: list[tuple[float, float]], best: int
):
    state = TrainerState()
    for state.update, (loss, bleu) in enumerate(scores, start=1):
        state.add_validation(Validation(loss=loss, bleu=bleu))
    assert (state.best_update, state.best_loss, state.worse) == (
        best,
        scores[best - 1][0],
        len(scores) - best,
    )


def test_training_stops_once_patience_is_used_up(stream: BatchStream, tmp_path: Path):
    scores = bleus(1, 3, 2, 4, 4, 3, 9)  # not at update 6, after one that was worse; at 12, after two
    state = trainer(stream, tmp_path / "a", scores, max_updates=40, patience=2).run()
    assert (state.update, state.best_update, state.worse) == (12, 8, 2)
    assert trainer(stream, tmp_path / "b", scores, max_updates=16, patience=0).run().update == 16


def test_what_is_no_number_ends_the_run_and_is_not_saved(stream: BatchStream, tmp_path: Path):
    """A state is due at update 4, before the first line of the log: the run could not go on from it."""
    with pytest.raises(TrainingDiverged, match="validation loss is nan at update 2, that of a uniform"):
        trainer(stream, tmp_path / "a", [Validation(loss=float("nan"), bleu=1.0)]).run()
    wild = trainer(stream, tmp_path / "b", bleus(1), log_every=10, valid_every=10, checkpoint_every=4)
    with torch.no_grad():
        next(wild.model.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingDiverged, match="loss or gradient became NaN or infinite by update 4: lower"):
        wild.run()
    assert not (wild.folder / STATE).exists()


def test_a_loss_far_above_that_of_a_guess_is_a_divergence(stream: BatchStream, tmp_path: Path):
    """The validation loss alone may be so high by overfitting, and the loss of training by one bad update."""
    high = [Validation(loss=50.0, bleu=0.0)]
    assert trainer(stream, tmp_path / "a", high).run().update == 10
    with pytest.raises(
        TrainingDiverged, match=r"is 50 at update 4, that of a uniform guess 2.89: lower learn"
    ):
        trainer(stream, tmp_path / "b", high, learning_rate=300.0).run()
    assert trainer(stream, tmp_path / "c", bleus(1), learning_rate=300.0).run().update == 10


# --- averages


def weights_by_update(run: Trainer) -> dict[int, dict[str, Tensor]]:
    """Run a training, and keep the weights after each update, in float64."""
    weights: dict[int, dict[str, Tensor]] = {}

    def keep(line: dict[str, Any]) -> None:
        if line["kind"] == "train":
            weights[line["update"]] = {name: w.double() for name, w in model_weights(run.model).items()}

    run.metrics.report = keep
    run.run()
    return weights


@pytest.mark.parametrize(
    ("settings", "scores", "shares", "chosen"),
    [
        (EVEN, (5, 1, 2, 3, 6), dict.fromkeys((9, 12, 15), 1), "average of updates [9, 12, 15]"),
        ({"average": 3}, (1, 9, 2, 3, 4, 9.5), dict.fromkeys((6, 8, 10), 1), "average of updates [6, 8, 10]"),
        (
            {"ema": 0.75},
            (5, 1, 2, 3, 4, 6),
            {update: 0.75 ** (10 - update) for update in range(1, 11)},
            "exponential moving average",
        ),
    ],
    ids=["even distances", "validations", "moving"],
)
def test_the_chosen_average_is_the_mean_of_these_weights(
    stream: BatchStream, tmp_path: Path, settings: dict[str, Any], scores: Any, shares: Any, chosen: str
):
    run = trainer(stream, tmp_path, bleus(*scores), **settings)
    weights = weights_by_update(run)
    for name, tensor in load_file(run.folder / FINAL).items():
        mean = sum(share * weights[update][name] for update, share in shares.items()) / sum(shares.values())
        torch.testing.assert_close(tensor.double(), mean, rtol=0, atol=1e-6)
        assert torch.equal(tensor, model_weights(run.model)[name])
        assert not torch.equal(tensor, weights[run.state.update][name].float())
    assert metrics(tmp_path)[-1]["chosen"] == chosen
    if settings is EVEN:
        files = {path.name for path in run.folder.glob("update-*")}
        assert files == {f"update-{update:07d}.safetensors" for update in (*shares, 5)}


def test_counters_have_no_mean():
    model = nn.Linear(3, 2)
    model.register_buffer("steps", torch.zeros((), dtype=torch.int64))
    mean = MovingAverage(model, 0.9)
    for update in range(1, 8):
        model.steps += 1
        mean.add(update)
    assert mean.weights["steps"] == 7
    assert not any(weight.requires_grad for weight in mean.weights.values())


@pytest.mark.parametrize(
    ("best", "averaged", "moving", "chosen"),
    [
        (5, 5, 5, "update 5"),
        (5, 6, 6, "average of updates [9, 12, 15]"),
        (5, 6, 7, "exponential moving average"),
        (5, 4, 6, "exponential moving average"),
    ],
)
def test_validation_chooses_among_them(
    stream: BatchStream, tmp_path: Path, best: float, averaged: float, moving: float, chosen: str
):
    run = trainer(stream, tmp_path, bleus(best, 1, 2, 3, averaged, moving), **EVEN, ema=0.5)
    state = run.run()
    lines = metrics(tmp_path)
    assert [line["kind"] for line in lines[-3:]] == ["average", "ema", "final"]
    assert lines[-1]["chosen"] == chosen
    assert lines[-1]["bleu"] == state.best_bleu == max(best, averaged, moving)
    assert chosen != "update 5" or same_weights(run.folder / FINAL, run.snapshot(5))


# --- resuming


class Stop(Exception):
    """Stands for the end of the process."""


BREAKS: dict[str, dict[str, Any]] = {
    "average": {"average": 2, "log_every": 2, "valid_every": 5, "checkpoint_every": 3},
    "moving": {**EVEN, "ema": 0.75, "log_every": 2},
    "r-drop": {"regularization": RegularizationConfig(consistency="r-drop"), "accumulate": 2},
    "simcut": {"regularization": RegularizationConfig(consistency="simcut"), "architecture": TRANSFORMER},
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_at_any_moment_changes_nothing(stream: BatchStream, tmp_path: Path, name: str):
    """Die after each update and each line of metrics in turn, in one run, the choice of weights included.

    An epoch has fewer batches than the run has updates.
    """
    stream = BatchStream(stream.split(1), batch_tokens=700, seed=1)
    settings = {"max_updates": 7, "valid_every": 3, "checkpoint_every": 2} | BREAKS[name]
    unbroken, broken = (tmp_path / name for name in ("unbroken", "broken"))
    trainer(stream, unbroken, bleus(1), **settings).run()
    deaths: set[tuple[str, int]] = set()

    def die(line: dict[str, Any]) -> None:
        if (moment := (line["kind"], line["update"])) not in deaths:
            deaths.add(moment)
            raise Stop

    for _ in range(60):
        try:
            trainer(stream, broken, bleus(1), die, **settings).run()
        except Stop:
            continue
        break
    timeless = ("kind", "update", "epoch", "loss", "grad_norm", "tgt_tokens", "learning_rate", "chosen")
    lines, expected = (
        [[line.get(name) for name in timeless] for line in metrics(folder)] for folder in (broken, unbroken)
    )
    assert lines == expected
    assert {line["epoch"] for line in metrics(broken) if line["kind"] == "train"} >= {1, 2}
    assert sum(kind != "update" for kind, _ in deaths) == len(lines)
    names = {path.name for path in (unbroken / "checkpoints").iterdir()}
    assert {path.name for path in (broken / "checkpoints").iterdir()} == names
    for file in names - {STATE}:
        assert same_weights(broken / "checkpoints" / file, unbroken / "checkpoints" / file)
    states = [load_state(folder / "checkpoints" / STATE) or {} for folder in (broken, unbroken)]
    for state in states:
        state["progress"]["seconds"] = state["running_metrics"]["began"] = None
        del state["running_metrics"]["joules"]
    assert str(states[0]) == str(states[1])


@pytest.mark.parametrize("at", [3, 4, 10])
def test_a_signal_stops_after_the_update_and_the_same_call_goes_on(
    stream: BatchStream, tmp_path: Path, at: int
):
    """Update 3 is between two saved states; 10 is the last of all."""

    def interrupt(line: dict[str, Any]) -> None:
        if line["kind"] == "train" and line["update"] == at:
            os.kill(os.getpid(), signal.SIGTERM)

    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(Interrupted, match=f"update {at} of 10") as caught:
        trainer(stream, tmp_path / "a", bleus(1, 2, 3, 4, 5), interrupt, average=2).run()
    assert caught.value.signum == signal.SIGTERM
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    state = trainer(stream, tmp_path / "a", bleus(*range(1 + at // 2, 6), 5), average=2).run()
    expected = trainer(stream, tmp_path / "b", bleus(1, 2, 3, 4, 5), average=2).run()
    assert replace(state, seconds={}) == replace(expected, seconds={})
    assert same_weights(*(tmp_path / name / "checkpoints" / FINAL for name in "ab"))


def test_logs_that_do_not_belong_to_the_state_are_refused(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(1))
    run.run()
    message = f"{run.folder}: the processes do not see the same folder and files"
    with pytest.raises(OSError, match=re.escape(message)):
        run._rewind_log([4, 0])
    lines = run.metrics.path.read_text().splitlines(keepends=True)
    run.metrics.path.write_text("".join(lines[2:]))
    with pytest.raises(ValueError, match=r"metrics\.jsonl covers \d of the 10 updates"):
        trainer(stream, tmp_path, bleus(1), max_updates=12).run()
    for name in (STATE, FINAL):
        (run.folder / name).unlink()
    run.snapshot(99).touch()  # left by a killed process
    trainer(stream, tmp_path, bleus(1), max_updates=2).run()
    assert {line["update"] for line in metrics(tmp_path)} == {1, 2}
    assert not run.snapshot(99).exists()


def test_a_part_by_other_code_is_warned_of(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    torch_version = torch.__version__
    trainer(stream, tmp_path, bleus(1), max_updates=2).run()
    trainer(stream, tmp_path, bleus(1), max_updates=3).run()
    assert "trained by" not in caplog.text
    monkeypatch.setattr(module, "source_version", lambda: "9.9+new")
    trainer(stream, tmp_path, bleus(1), max_updates=4).run()
    parts = f"{source_version()} and torch {torch_version} up to update 3, now by 9.9+new and {torch_version}"
    assert parts in caplog.text
    windows = [line for line in metrics(tmp_path) if line["kind"] == "train"]
    assert {(line["code"], line["torch"]) for line in windows if line["update"] > 3} == {
        ("9.9+new", torch_version)
    }
    assert {line["code"] for line in windows if line["update"] <= 3} == {source_version()}


def test_a_run_continues_on_its_own_kind_of_gpu(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(checkpoints, "device_name", lambda device: "Abacus 2")
    trainer(stream, tmp_path, bleus(1), max_updates=2).run()
    again = trainer(stream, tmp_path, bleus(1), max_updates=4).checkpoint
    monkeypatch.setattr(checkpoints, "device_name", lambda device: "Abacus 1")
    assert again.restore() == 2  # processors may differ
    monkeypatch.setattr(again, "device", torch.device("cuda"))
    with pytest.raises(
        ValueError, match=r"trainer\.pt was saved on 'Abacus 2', but this is Abacus 1: continue"
    ):
        again.restore()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state["weights"]["output.bias"].fill_(float("nan")),
        lambda state: state["progress"].pop("snapshots"),
        lambda state: state.pop("ema"),
    ],
)
def test_the_state_of_another_model_or_version_is_refused(
    stream: BatchStream, tmp_path: Path, spoil: Callable[[dict[str, Any]], Any]
):
    trainer(stream, tmp_path, bleus(1), max_updates=2, ema=0.5).run()
    path = tmp_path / "checkpoints" / STATE
    state = load_state(path)
    assert state is not None
    spoil(state)
    torch.save(state, path)
    with pytest.raises(ValueError, match=r"trainer\.pt: the state of another model or version") as caught:
        trainer(stream, tmp_path, bleus(1), max_updates=4, ema=0.5).run()
    assert "\n" not in str(caught.value)


# --- the order in which it writes, waits and counts


def test_no_file_is_written_before_one_that_it_relies_on(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Weights before their line, lines before the state; a snapshot goes once no saved state names it."""
    events: list[str] = []

    def watch(owner: Any, name: str, event: Callable[..., str]) -> None:
        call = getattr(owner, name)

        def recorded(*arguments: Any, **settings: Any) -> Any:
            events.append(event(*arguments))
            return call(*arguments, **settings)

        monkeypatch.setattr(owner, name, recorded)

    watch(module, "save_weights", lambda path, weights: path.name)
    watch(Checkpoint, "save", lambda checkpoint: checkpoint.path.name)
    watch(MetricsLog, "append", lambda log, line: f"{line['kind']} {line['update']}")
    watch(log, "sync_file", lambda path: f"sync {path.name}")
    watch(Path, "unlink", lambda path, **_: f"delete {path.name}")
    trainer(stream, tmp_path, bleus(2, 1, 3), max_updates=3, valid_every=1, average=2).run()
    snapshots = [f"update-000000{update}.safetensors" for update in (1, 2, 3)]
    names = (*snapshots, "trainer.pt", "final.safetensors")
    expected = [event for event in events if not event.startswith("delete") or event.split()[1] in names]
    assert expected == [
        *("train 1", snapshots[0], "valid 1", "sync metrics.jsonl", "trainer.pt"),
        *("train 2", snapshots[1], "valid 2", "sync metrics.jsonl", "trainer.pt"),
        *("train 3", snapshots[2], "valid 3", "sync metrics.jsonl", "trainer.pt", f"delete {snapshots[0]}"),
        *("average 3", "final.safetensors", "final 3", "sync metrics.jsonl"),
    ]


def test_a_signal_while_saving_waits_for_the_next_update_and_its_save(
    stream: BatchStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else the message would name an update that the saved state does not have."""
    run = trainer(stream, tmp_path, bleus(1), checkpoint_every=3, valid_every=10, log_every=10)
    save = run._save

    def save_and_signal(*, keep_trunk: bool) -> None:
        save(keep_trunk=keep_trunk)
        if run.state.update == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(run, "_save", save_and_signal)
    with pytest.raises(Interrupted, match="stopped at update 4 of 10"):
        run.run()
    state = load_state(run.folder / STATE)
    assert state is not None
    assert TrainerState(**state["progress"]).update == 4


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl"])
def test_training_ends_where_a_file_that_its_result_needs_is_removed(
    name: str, stream: BatchStream, tmp_path: Path
):
    """At the next line of the log, which would begin anew, not after hours."""
    (tmp_path / "config.toml").write_text("")

    def remove(line: dict[str, Any]) -> None:
        if line == {"kind": "update", "update": 5}:
            (tmp_path / name).unlink()

    with pytest.raises(FileNotFoundError, match=f"{re.escape(str(tmp_path / name))} was removed"):
        trainer(stream, tmp_path, bleus(1), remove).run()
    if name != "metrics.jsonl":
        assert metrics(tmp_path)[-1]["update"] == 4
