"""Several processes take the steps of one: the same weights for any number of them and of parts.

This file is also the program that trains with several processes, which a process of its own forks.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import compare.training.loss
from compare.config.sections import RegularizationConfig
from compare.models.presets import PRESETS
from compare.system.processes import Processes, StopRequest, join_processes
from compare.training.checkpoints import CHECKPOINTS, load_weights, model_weights, save_weights
from compare.training.step import GradientSum, dropout_seed
from data.batches import BatchStream
from tests.kits.common import ROOT
from tests.kits.processes import environment, fork, free_port, statuses
from tests.kits.texts import random_split
from tests.kits.training import bleus, make_stream, metrics, trainer

stream = pytest.fixture(scope="module")(make_stream)
FAMILIES: dict[str, Any] = {
    name: replace(PRESETS[name].architecture, embedding_size=8, hidden_size=8, dropout=0.0)
    for name in ("bahdanau", "luong-general")
} | {
    "transformer": replace(
        PRESETS["transformer"].architecture,
        **{"d_model": 8, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "ffn_size": 16},
        dropout=0.0,
        attention_dropout=0.0,
    )
}
FAMILIES["bahdanau-simcut"] = FAMILIES["bahdanau"]
REGULARIZATION = {"bahdanau-simcut": RegularizationConfig(consistency="simcut")}
UPDATES = 10
JOBS = ((1, 1), (4, 1), (2, 2))
"""Numbers of processes, and of parts per share."""


def cut_every_third(ids: Tensor, allowed: Tensor, probability: float) -> Tensor:
    """Cut the tokens whose id is divisible by 3: the same ones, whichever process computes a sentence."""
    return torch.where((ids % 3 == 0) & allowed, ~ids, ids)


def train(folder: Path, family: str, accumulate: int, processes: Processes) -> None:
    """Train in float64, and keep the weights of every process."""
    lengths = np.random.default_rng(5).integers(1, 12, size=(90, 2)).tolist()
    stream = BatchStream(random_split(lengths), batch_tokens=40, seed=3)
    settings = {"max_updates": UPDATES, "valid_every": UPDATES, "log_every": 5, "accumulate": accumulate}
    run = trainer(
        stream,
        folder,
        bleus(1),
        architecture=FAMILIES[family],
        vocabulary=99,
        dtype=torch.float64,
        learning_rate=1e-3,
        regularization=REGULARIZATION.get(family),
        processes=processes,
        **settings,
    )
    run.run()
    if processes.is_main:
        run.state.seconds = {}
        (folder / "state").write_text(repr(run.state))
    save_weights(folder / CHECKPOINTS / f"rank{processes.rank}", model_weights(run.model))


def main(root: Path) -> None:
    """Train one model of each family by each of JOBS."""
    compare.training.loss.cut_tokens = cut_every_third  # type: ignore[assignment]
    for size, accumulate in JOBS:

        def work(size: int = size, accumulate: int = accumulate) -> int:
            with join_processes() as processes:
                assert processes.size == size
                for family in FAMILIES:
                    train(root / f"{family}-{size}-{accumulate}", family, accumulate, processes)
            return 0

        assert statuses(fork(size, work)) == [0] * size


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders FAMILY-PROCESSES-PARTS with the weights of each process after 10 updates in float64."""
    folder = tmp_path_factory.mktemp("together")
    command = [sys.executable, "-m", "tests.compare.training.test_data_parallel", str(folder)]
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


class Pretended(Processes):
    """One process that takes itself for the first of two."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 2

    def gather(self, work: Callable[[], Any]) -> list[Any]:
        return [work()]

    def on_main(self, work: Callable[[], Any]) -> Any:
        return work()

    def sum_tensor(self, tensor: Tensor) -> None:
        pass

    broadcast_tensor = sum_tensor


def test_the_first_exception_of_a_share_is_raised_after_the_sum_in_which_it_counts_nothing() -> None:
    parameter = nn.Parameter(torch.ones(2))
    shares = GradientSum([parameter], Pretended())

    def work() -> Tensor:
        parameter.sum().backward()
        raise ArithmeticError("of the share")

    assert not shares.compute(work, StopRequest())
    assert parameter.grad is not None
    assert not parameter.grad.any()
    shares.attempt(lambda: 1 / 0)
    with pytest.raises(ArithmeticError, match="of the share"):
        shares.stop_signal(StopRequest(), must_know=True)


JOIN = """
import signal
import torch.distributed as dist
from compare.system import processes as distributed
from compare.system.processes import raise_on_signals
distributed.JOINING = distributed.timedelta(seconds={seconds})
rendezvous = dist.rendezvous
dist.rendezvous = lambda *a, **k: (print("joining", flush=True), rendezvous(*a, **k))[1]
signal.signal(signal.SIGINT, signal.default_int_handler)
with raise_on_signals():
    try:
        distributed.Processes(0, 2)
    except ConnectionError as error:
        print(error)
"""


@pytest.mark.parametrize("signum", [None, signal.SIGTERM, signal.SIGINT])
def test_a_process_whose_other_does_not_come_ends(signum: signal.Signals | None):
    """After a time with one line; by a signal at once."""
    variables = {**os.environ, **environment(0, 2, free_port())}
    code = JOIN.format(seconds=60 if signum else 1)
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=variables, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "joining\n"
    if signum:
        process.send_signal(signum)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == (-signum if signum else 0)
    assert said == "" if signum else said.startswith("another process of this job") and said.count("\n") == 1


def test_each_update_draws_another_dropout_among_several_processes(stream: BatchStream, tmp_path: Path):
    run = trainer(stream, tmp_path, bleus(1), processes=Pretended())
    seeds: list[int] = []
    run.criterion.register_forward_pre_hook(lambda *_: seeds.append(torch.initial_seed()))
    run.run()
    assert len(seeds) == len(set(seeds)) == 10


def test_dropout_of_every_update_and_process_is_another():
    seeds = {dropout_seed(seed, update, rank) for seed in (1, 2) for update in range(50) for rank in range(4)}
    assert len(seeds) == 400
    assert dropout_seed(1, 7, 2) == dropout_seed(1, 7, 2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
