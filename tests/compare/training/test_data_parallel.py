"""Several processes take the steps of one: the same weights for any number of them and of parts."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from compare.training.serialization import load_weights
from compare.training.step import dropout_seed
from data.batches import BatchStream
from tests.kits.paths import ROOT
from tests.kits.training import bleus, make_stream, metrics, trainer
from tests.kits.weights_together import FAMILIES, JOBS, UPDATES

stream = pytest.fixture(scope="module")(make_stream)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders FAMILY-PROCESSES-PARTS with the weights of each process after 20 updates in float64."""
    folder = tmp_path_factory.mktemp("together")
    command = [sys.executable, "-m", "tests.kits.weights_together", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("size", "parts"), JOBS[1:])
@pytest.mark.parametrize("family", FAMILIES)
def test_any_number_of_processes_and_parts_gives_the_weights_of_one(
    trained: Path, family: str, size: int, parts: int
):
    """Without dropout; batches of a single pair, which leave processes without any, are among them."""
    alone, together = (trained / f"{family}-{name}" for name in ("1-1", f"{size}-{parts}"))
    expected = load_weights(alone / "checkpoints" / "rank0")
    first = load_weights(together / "checkpoints" / "rank0")
    for rank in range(size):
        for name, tensor in load_weights(together / "checkpoints" / f"rank{rank}").items():
            torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-10)
            assert torch.equal(tensor, first[name])  # or the processes would drift apart
    assert (together / "state").read_text() == (alone / "state").read_text()
    for line, other in zip(metrics(together), metrics(alone), strict=True):
        assert line.get("processes") == (size if line["kind"] == "train" and size > 1 else None)
        for name in ("kind", "update", "src_tokens", "tgt_tokens", "learning_rate"):
            assert line.get(name) == other.get(name)
        assert line.get("loss") == pytest.approx(other.get("loss"), rel=1e-6)  # summed in fp32
    assert line["update"] == UPDATES


def test_a_batch_in_parts_gives_the_gradient_of_the_whole(stream: BatchStream, tmp_path: Path):
    """By the sum of the weights' gradients; dropout is drawn for other rows, so the loss differs a little."""
    losses = []
    for parts in (1, 2, 7):
        trainer(stream, tmp_path / str(parts), bleus(1), max_updates=4, accumulate=parts).run()
        lines = [line for line in metrics(tmp_path / str(parts)) if line["kind"] == "train"]
        losses.append([line["loss"] for line in lines])
        assert [line["tgt_tokens"] for line in lines] == [
            batch.tgt_tokens for batch, _ in zip(stream.epoch(1), range(4), strict=False)
        ]
    assert losses[1] == pytest.approx(losses[0], rel=0.1)
    assert losses[2] == pytest.approx(losses[0], rel=0.1)


def test_dropout_of_every_update_and_process_is_another():
    seeds = {dropout_seed(seed, update, rank) for seed in (1, 2) for update in range(50) for rank in range(4)}
    assert len(seeds) == 400
    assert dropout_seed(1, 7, 2) == dropout_seed(1, 7, 2)
