"""How the cost of training grows with length, batch, width and vocabulary: one doubles, the others stay."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence

import torch

from compare.benchmark.conditions import machine, versions
from compare.benchmark.growth import KEPT, Axis, Growth, Scaling
from compare.config.resolve_model import resolve_model
from compare.config.sections import Experiment, ModelConfig
from compare.experiment.resolve import resolve_precision
from compare.models.registry import build
from compare.system.cpu import tune_cpu
from compare.system.device import pick_device
from compare.system.precision import autocast
from compare.system.timing import Workload, time_in_turn
from compare.training.loss import TranslationLoss
from data.symbols import SPECIALS

logger = logging.getLogger(__name__)

Sizes = Mapping[Axis, Sequence[int]]
SIZES: dict[Axis, Sequence[int]] = {
    "length": (8, 16, 32, 64),
    "batch": (4, 8, 16, 32),
    "width": (64, 128, 256, 512),
    "vocabulary": (1000, 2000, 4000, 8000),
}
WIDTHS = {
    "embedding_size": 1,
    "hidden_size": 1,
    "encoder_size": 1,
    "attention_size": 1,
    "d_model": 1,
    "ffn_size": 4,
}
"""The settings that are widths, as multiples of the axis."""


def grow(experiment: Experiment, sizes: Sizes, *, repeats: int, place: str = "config") -> Scaling:
    """Time the models of ``experiment`` on random ids, along each axis of ``sizes`` all in turn.

    Args:
        experiment: the models, their device and precision; its corpus is not read.
        sizes: what each axis is set to; ``SIZES`` are some.
        repeats: timed repeats, of which the median counts.
        place: what to name in errors of the settings.
    """
    tune_cpu()
    experiment = resolve_precision(experiment)
    device, precision = pick_device(experiment.train.device), experiment.train.precision
    growths = []
    for axis, values in sizes.items():
        logger.info(
            f"{axis} {', '.join(map(str, values))}: {len(experiment.models)} models, {repeats} repeats"
        )
        torch.manual_seed(experiment.train.seed)
        works = [
            _pass(row, {**KEPT, axis: value}, device, precision, place)
            for row in experiment.models
            for value in values
        ]
        seconds: list[list[float]] = [[] for _ in works]
        for number, turn in time_in_turn(works, device, repeats=repeats):
            seconds[number].append(turn.seconds)
        growths += [
            Growth(axis=axis, model=row.label, sizes=list(values), seconds=seconds[start:][: len(values)])
            for start, row in zip(range(0, len(works), len(values)), experiment.models, strict=True)
        ]
    return Scaling(growths=growths, precision=precision, machine=machine(experiment), versions=versions())


def widened(row: ModelConfig, width: int, place: str = "config") -> ModelConfig:
    """The row with every width that it has set to ``width``, and feed-forward layers four times as wide."""
    settings = resolve_model(row, place).settings()
    widths = {name: share * width for name, share in WIDTHS.items() if settings.get(name) is not None}
    return dataclasses.replace(row, overrides={**row.overrides, **widths})


def _pass(
    row: ModelConfig, shape: Mapping[Axis, int], device: torch.device, precision: str, place: str
) -> Workload:
    """The forward and backward pass of one batch without padding."""
    row = widened(row, shape["width"], place) if "width" in shape else row
    vocabulary, size = shape["vocabulary"], (shape["batch"], shape["length"])
    model = build(resolve_model(row, place).architecture, vocabulary, vocabulary).to(device)
    criterion = TranslationLoss(model, label_smoothing=0.1).train()
    src, tgt_in, tgt_out = torch.randint(len(SPECIALS), vocabulary, (3, *size), device=device)
    mask = torch.ones(size, dtype=torch.bool, device=device)

    def work() -> None:
        criterion.zero_grad(set_to_none=True)
        with autocast(device, precision):
            loss = criterion(src, mask, tgt_in, tgt_out, mask)
        loss.minimised.backward()

    return work
