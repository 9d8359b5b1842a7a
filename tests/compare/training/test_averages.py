"""Averages of weights: at even distances and moving, right, resumable, and chosen on validation alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from compare.training.checkpoints import MovingAverage
from compare.training.serialization import FINAL, STATE, load_state, model_weights
from compare.training.trainer import Trainer
from data.batches import BatchStream
from tests.kits.training import bleus, make_stream, metrics, same_weights, trainer

stream = pytest.fixture(scope="module")(make_stream)
EVEN = {"average": 3, "average_every": 3, "valid_every": 5, "checkpoint_every": 4, "max_updates": 17}


class Stop(Exception):
    """Stands for the end of the process."""


def weights_by_update(run: Trainer) -> dict[int, dict[str, Tensor]]:
    """Run a training, and keep the weights after each update, in float64."""
    kept: dict[int, dict[str, Tensor]] = {}

    def keep(line: dict[str, Any]) -> None:
        if line["kind"] == "train":
            kept[line["update"]] = {name: w.double() for name, w in model_weights(run.model).items()}

    run.metrics.report = keep
    run.run()
    return kept


@pytest.mark.parametrize(("average", "members"), [(3, [9, 12, 15]), (9, [3, 6, 9, 12, 15])])
def test_the_last_weights_at_even_distances_are_averaged(
    stream: BatchStream, tmp_path: Path, average: int, members: list[int]
):
    run = trainer(stream, tmp_path, bleus(5, 1, 2, 3, 6), **EVEN | {"average": average})
    kept = weights_by_update(run)
    final = load_file(tmp_path / "checkpoints" / FINAL)
    for name, tensor in final.items():
        mean = sum(kept[update][name] for update in members) / len(members)
        torch.testing.assert_close(tensor.double(), mean, rtol=0, atol=1e-7)
        assert not torch.equal(tensor, kept[17][name].float())
    assert metrics(tmp_path)[-1]["chosen"] == f"average of updates {members}"
    files = {path.name for path in run.checkpoints.folder.glob("update-*")}
    assert files == {f"update-{update:07d}.safetensors" for update in (*members, 5)}


def test_the_moving_average_is_the_weighted_mean_of_all_weights(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(5, 1, 2, 3, 4, 6), ema=0.75)
    kept = weights_by_update(run)
    shares = {update: 0.75 ** (10 - update) for update in range(1, 11)}
    for name, tensor in load_file(tmp_path / "checkpoints" / FINAL).items():
        mean = sum(share * kept[update][name] for update, share in shares.items()) / sum(shares.values())
        torch.testing.assert_close(tensor.double(), mean, rtol=0, atol=1e-6)
        assert torch.equal(tensor, model_weights(run.model)[name])
    assert metrics(tmp_path)[-1]["chosen"] == "exponential moving average"


def test_the_moving_average_in_float64():
    model = nn.Linear(3, 2).double()
    model.register_buffer("steps", torch.zeros((), dtype=torch.int64))
    mean, history = MovingAverage(model, 0.9), []
    for update in range(1, 8):
        with torch.no_grad():
            model.weight.copy_(torch.randn(2, 3, dtype=torch.float64))
            model.steps += 1
        history.append(model.weight.detach().clone())
        mean.add(update)
        shares = torch.tensor([0.9 ** (update - i) for i in range(1, update + 1)], dtype=torch.float64)
        expected = torch.einsum("i,ijk->jk", shares / shares.sum(), torch.stack(history))
        torch.testing.assert_close(mean.weights["weight"], expected, rtol=0, atol=1e-12)
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


def test_a_break_at_any_moment_changes_no_average(stream: BatchStream, tmp_path: Path):
    """Die at each line of metrics in turn, at weights that are kept between validations too."""
    settings = {**EVEN, "ema": 0.75, "log_every": 2}
    trainer(stream, tmp_path / "b", bleus(1), **settings).run()
    deaths: set[tuple[str, int]] = set()

    def die(line: dict[str, Any]) -> None:
        if (moment := (line["kind"], line["update"])) not in deaths:
            deaths.add(moment)
            raise Stop

    for _ in range(40):
        try:
            trainer(stream, tmp_path / "a", bleus(1), die, **settings).run()
        except Stop:
            continue
        break
    assert len(deaths) == 8 + 3 + 4 + 3
    one, other = (tmp_path / name / "checkpoints" for name in "ab")
    names = {path.name for path in other.iterdir()}
    assert {path.name for path in one.iterdir()} == names
    assert all(same_weights(one / name, other / name) for name in names - {STATE})
    states = [load_state(folder / STATE) or {} for folder in (one, other)]
    assert all(torch.equal(states[0]["ema"][name], tensor) for name, tensor in states[1]["ema"].items())


def test_weights_that_a_killed_process_left_are_removed(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(1), **EVEN)
    left = run.checkpoints.snapshot(99)
    left.touch()
    run.run()
    assert not left.exists()


def test_a_state_without_the_moving_average_is_of_another_version(stream: BatchStream, tmp_path: Path):
    trainer(stream, tmp_path, bleus(1)).run()
    with pytest.raises(ValueError, match="the state of another model or version"):
        trainer(stream, tmp_path, bleus(1), ema=0.5, max_updates=20).run()
