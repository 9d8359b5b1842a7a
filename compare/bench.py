"""Time the training of an experiment's models, from fresh weights, in turn on the same batches."""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from compare.config import Experiment
from compare.cpu import tune_cpu
from compare.derive import training_flops
from compare.execute import device_name, pick_device
from compare.models import Blueprint, build, resolve
from compare.objective import Objective
from compare.optim import build_optimizer
from compare.prepare import Prepared, prepare
from compare.step import train_step
from compare.throughput import matmul_flops_per_s
from compare.version import code_version
from data.batch import Batch

WARM_UP_UPDATES = 3
"""Updates before the clock starts: memory is touched, kernels are chosen."""


@dataclass
class Timing:
    """One model's speed; raw repeats, so that anyone can take another mean."""

    label: str
    params: int
    flops_per_token: float
    tokens_per_s: list[float] = field(default_factory=list)
    """Source (without EOS) and target (with EOS) tokens a second, one entry a repeat."""


class Racer:
    """A model ready to be trained for some updates."""

    def __init__(
        self,
        label: str,
        blueprint: Blueprint,
        experiment: Experiment,
        prepared: Prepared,
        device: torch.device,
    ) -> None:
        torch.manual_seed(experiment.train.seed)
        model = build(blueprint.architecture, *(len(side) for side in prepared.vocabularies)).to(device)
        self.objective = Objective(model, experiment.train.label_smoothing).train()
        self.optimizer = build_optimizer(self.objective.parameters(), blueprint.optim)
        self.train, self.device = experiment.train, device
        params = sum(parameter.numel() for parameter in model.parameters())
        self.timing = Timing(label, params, training_flops(blueprint.architecture, prepared))

    def race(self, batches: list[Batch]) -> float:
        """Train on ``batches``; returns tokens a second, the accelerator's queue emptied at both ends."""
        precision, clip_norm = self.train.precision, self.train.clip_norm
        self._wait()
        start = time.perf_counter()
        for batch in batches:
            train_step(self.objective, self.optimizer, batch, precision=precision, clip_norm=clip_norm)
        self._wait()
        tokens = sum(batch.src_tokens + batch.tgt_tokens for batch in batches)
        return tokens / (time.perf_counter() - start)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def bench_experiment(
    experiment: Experiment,
    *,
    updates: int,
    repeats: int,
    say: Callable[[str], None],
    place: str = "config",
) -> dict[str, Any]:
    """Time every model ``repeats`` times for ``updates`` updates, the models taking turns."""
    tune_cpu()
    device = pick_device(experiment.train.device)
    blueprints = {row.label: resolve(row, place) for row in experiment.models}  # mistakes first, then work
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare(experiment, Path(folder), say)
        stream = islice(prepared.stream.epoch(1), WARM_UP_UPDATES + updates)
        batches = [batch.to(device) for batch in stream]
    if len(batches) <= WARM_UP_UPDATES:
        raise ValueError(f"an epoch has {len(batches)} batches: too few to time; lower train.batch_tokens")
    racers = [Racer(*item, experiment, prepared, device) for item in blueprints.items()]
    for racer in racers:
        racer.race(batches[:WARM_UP_UPDATES])
    for repeat in range(repeats):
        for racer in racers:
            racer.timing.tokens_per_s.append(racer.race(batches[WARM_UP_UPDATES:]))
            say(f"{repeat + 1}/{repeats} {racer.timing.label}: {racer.timing.tokens_per_s[-1]:,.0f} tokens/s")
    timed = batches[WARM_UP_UPDATES:]
    return {
        "models": [asdict(racer.timing) for racer in racers],
        "updates": len(timed),
        "tgt_tokens_per_update": sum(batch.tgt_tokens for batch in timed) / len(timed),
        "yardstick_flops_per_s": matmul_flops_per_s(device, experiment.train.precision, seconds=2),
        "precision": experiment.train.precision,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "code_version": code_version(),
    }


def render(report: dict[str, Any]) -> str:
    """The report as a table; the share is model FLOPs over those of the device's matrix product."""
    import pandas as pd

    rows = [
        {
            "model": model["label"],
            "params (M)": f"{model['params'] / 1e6:.2f}",
            "train tokens/s": f"{statistics.median(model['tokens_per_s']):,.0f}",
            "min-max": f"{min(model['tokens_per_s']):,.0f}-{max(model['tokens_per_s']):,.0f}",
            "MFLOP/token": f"{model['flops_per_token'] / 1e6:.1f}",
            "of yardstick": f"{_share(model, report):.0%}",
        }
        for model in report["models"]
    ]
    table = pd.DataFrame(rows).to_markdown(
        index=False, disable_numparse=True, colalign=("left", *["right"] * 5)
    )
    return (
        f"{table}\n\n- {report['device']}, torch {report['torch']}, {report['threads']} threads, "
        f"{report['precision']}; {report['updates']} updates of {report['tgt_tokens_per_update']:,.0f} real "
        f"target tokens, median of {len(report['models'][0]['tokens_per_s'])} turns\n"
        f"- yardstick: {report['yardstick_flops_per_s'] / 1e9:,.0f} GFLOP/s in a square matrix product"
    )


def _share(model: dict[str, Any], report: dict[str, Any]) -> float:
    rate = statistics.median(model["tokens_per_s"])
    return float(rate * model["flops_per_token"] / report["yardstick_flops_per_s"])
