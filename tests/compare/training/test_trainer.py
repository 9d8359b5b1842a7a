"""The trainer alone: bitwise repeatable, resumable within an epoch, and right in its choice of weights."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from compare.system.distributed import Processes
from compare.system.signals import Interrupted
from compare.training.checkpoints import Validation
from compare.training.serialization import FINAL, STATE, average, load_weights, model_weights, save_weights
from compare.training.trainer import TrainingDiverged
from data.batches import BatchStream
from tests.kits.training import SMALL, bleus, make_stream, metrics, same_weights, trainer

stream = pytest.fixture(scope="module")(make_stream)


def test_the_same_seed_gives_the_same_weights_after_50_updates(stream: BatchStream, tmp_path: Path):
    found = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (run := trainer(stream, tmp_path / name, bleus(1), max_updates=50, valid_every=50, seed=seed)).run()
        assert run.state.update == 50
        found.append(torch.cat([tensor.flatten() for tensor in model_weights(run.model).values()]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_training_is_the_loop_that_one_would_write_by_hand(stream: BatchStream, tmp_path: Path):
    """AdamW, its rate at each update, clipping, smoothing and the mean per target token, without dropout."""
    model = replace(SMALL, dropout=0.0)
    run = trainer(stream, tmp_path / "a", bleus(1), architecture=model, valid_every=10)
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
        torch.nn.functional.cross_entropy(logits, targets, label_smoothing=0.1).backward()
        torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
        optimizer.step()
    weights = load_weights(tmp_path / "a" / "checkpoints" / FINAL)
    for name, tensor in model_weights(by_hand).items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=2e-5)


class Pretended(Processes):
    """One process that takes itself for the first of two, and sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 2
        for name in ("sum_tensor", "broadcast_tensor", "broadcast"):
            setattr(self, name, lambda value: value)
        self.gather = lambda work: [work()]


def test_each_update_draws_another_dropout_among_several_processes(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(1), processes=Pretended())
    seeds: list[int] = []
    run.criterion.register_forward_pre_hook(lambda *_: seeds.append(torch.initial_seed()))
    run.run()
    assert len(seeds) == len(set(seeds)) == 10


def test_the_best_weights_are_those_of_the_best_bleu(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(1, 5, 9, 4, 3))
    state = run.run()
    assert (state.best_update, state.best_bleu, state.worse) == (6, 9, 2)
    assert same_weights(tmp_path / "checkpoints" / FINAL, run.checkpoints.snapshot(6))
    kept = load_file(tmp_path / "checkpoints" / FINAL)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in model_weights(run.model).items())
    kinds = {path.name for path in run.checkpoints.folder.iterdir()}
    assert kinds == {FINAL, STATE, "update-0000006.safetensors", "update-0000010.safetensors"}


def test_equal_bleu_is_decided_by_loss(stream: BatchStream, tmp_path: Path):
    scores = [Validation(loss=loss, bleu=0.0) for loss in (5.0, 4.0, 4.5, 4.0, 4.2)]
    state = trainer(stream, tmp_path, scores).run()
    assert (state.best_update, state.best_loss, state.worse) == (4, 4.0, 3)


def test_training_stops_once_patience_is_used_up(stream: BatchStream, tmp_path: Path):
    scores = bleus(1, 3, 2, 4, 4, 3, 9)  # not at update 6, after one that was worse; at 12, after two
    state = trainer(stream, tmp_path / "a", scores, max_updates=40, patience=2).run()
    assert (state.update, state.best_update, state.worse) == (12, 8, 2)
    assert trainer(stream, tmp_path / "b", scores, max_updates=16, patience=0).run().update == 16


def test_the_last_update_is_validated_wherever_it_falls(stream: BatchStream, tmp_path: Path):
    trainer(stream, tmp_path, bleus(1), max_updates=7, valid_every=3).run()
    assert [line["update"] for line in metrics(tmp_path) if line["kind"] == "valid"] == [3, 6, 7]


@pytest.mark.parametrize("last", [9.5, 9, 8.5])
def test_the_average_is_kept_where_validation_prefers_it(stream: BatchStream, tmp_path: Path, last: float):
    run = trainer(stream, tmp_path, bleus(1, 9, 2, 3, 4, last), average=3, max_updates=10)
    state = run.run()
    final = load_weights(run.checkpoints.folder / FINAL)
    snapshots = [load_file(run.checkpoints.snapshot(update)) for update in (6, 8, 10)]
    means = {name: torch.stack([one[name].double() for one in snapshots]).mean(0) for name in final}
    assert state.best_bleu == max(9, last)
    if last <= 9:
        assert same_weights(run.checkpoints.folder / FINAL, run.checkpoints.snapshot(4))
    else:
        for name, tensor in final.items():
            torch.testing.assert_close(tensor.double(), means[name], rtol=0, atol=1e-7)
    assert all(torch.equal(tensor, final[name]) for name, tensor in model_weights(run.model).items())


def test_the_average_of_files_is_the_mean_of_their_tensors(tmp_path: Path):
    tensors = [torch.tensor([1.0, 2e-8]), torch.tensor([3.0, 0.0]), torch.tensor([8.0, 1e-8])]
    for number, tensor in enumerate(tensors):
        save_weights(tmp_path / str(number), {"x": tensor})
    mean = average([tmp_path / str(number) for number in range(3)])["x"]
    torch.testing.assert_close(mean, torch.tensor([4.0, 1e-8]), rtol=1e-6, atol=0)


class Stop(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("at", [3, 4, 8, 10])
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
    scores = bleus(*range(1 + at // 2, 6), 5)
    state = trainer(stream, tmp_path / "a", scores, average=2).run()
    unbroken = trainer(stream, tmp_path / "b", bleus(1, 2, 3, 4, 5), average=2)
    expected = unbroken.run()
    for counted in (state, expected):
        counted.seconds = {}
    assert state == expected
    assert same_weights(*(tmp_path / name / "checkpoints" / FINAL for name in "ab"))


def test_a_break_at_any_moment_changes_nothing(stream: BatchStream, tmp_path: Path):
    """Die before and after each line of metrics in turn, in one run, the choice of weights included."""
    steps = {
        "average": 2,
        "log_every": 2,
        "valid_every": 5,
        "checkpoint_every": 3,
    }
    expected = trainer(stream, tmp_path / "b", bleus(1), **steps).run()
    deaths: set[tuple[str, int]] = set()

    def die(line: dict[str, Any]) -> None:
        if (moment := (line["kind"], line["update"])) not in deaths:
            deaths.add(moment)
            raise Stop

    for _ in range(40):
        try:
            state = trainer(stream, tmp_path / "a", bleus(1), die, **steps).run()
        except Stop:
            continue
        break
    assert len(deaths) == 6 + 2 + 2
    assert same_weights(*(tmp_path / name / "checkpoints" / FINAL for name in "ab"))
    assert (state.update, state.best_update) == (expected.update, expected.best_update)
    for line, other in zip(metrics(tmp_path / "a"), metrics(tmp_path / "b"), strict=True):
        assert (line["kind"], line["update"]) == (other["kind"], other["update"])
        assert (line.get("loss"), line.get("tgt_tokens")) == (other.get("loss"), other.get("tgt_tokens"))


def test_a_line_cut_short_by_the_end_of_the_machine_is_written_again(stream: BatchStream, tmp_path: Path):
    trainer(stream, tmp_path, bleus(1)).run()
    whole = [(line["kind"], line["update"], line.get("loss")) for line in metrics(tmp_path)]
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "tra')
    trainer(stream, tmp_path, bleus(1)).run()
    assert [(line["kind"], line["update"], line.get("loss")) for line in metrics(tmp_path)] == whole


def test_a_validation_loss_that_is_no_number_ends_the_run(stream: BatchStream, tmp_path: Path):
    with pytest.raises(TrainingDiverged, match="validation loss is nan at update 2: lower learning_rate"):
        trainer(stream, tmp_path, [Validation(loss=float("nan"), bleu=1.0)]).run()


def test_weights_that_are_no_numbers_are_not_saved_to_go_on_from(stream: BatchStream, tmp_path: Path):
    """A state is due at update 4, before the first line of the log: the run could not go on from it."""
    wild = trainer(stream, tmp_path, bleus(1), log_every=10, valid_every=10, checkpoint_every=4)
    with torch.no_grad():
        next(wild.model.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingDiverged, match="loss or gradient became NaN or infinite by update 4: lower"):
        wild.run()
    assert not (tmp_path / "checkpoints" / STATE).exists()


def test_padding_takes_no_part_in_the_token_counts(stream: BatchStream, tmp_path: Path):
    state = trainer(stream, tmp_path, bleus(1), max_updates=5, valid_every=5, log_every=2).run()
    batches = [batch for batch, _ in zip(stream.epoch(1), range(5), strict=False)]
    src = [int(batch.src_mask.sum()) - len(batch) for batch in batches]
    tgt = [int(batch.tgt_mask.sum()) for batch in batches]
    lines = [line for line in metrics(tmp_path) if line["kind"] == "train"]
    assert state.tokens == sum(src) + sum(tgt)
    assert [line["src_tokens"] for line in lines] == [src[0] + src[1], src[2] + src[3], src[4]]
    assert [line["tgt_tokens"] for line in lines] == [tgt[0] + tgt[1], tgt[2] + tgt[3], tgt[4]]
