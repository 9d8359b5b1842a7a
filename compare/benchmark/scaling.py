"""Growth of training time with length, batch, width and vocabulary: one axis grows, the others stay fixed."""

import logging
from collections.abc import Mapping, Sequence

import torch

from compare.benchmark.conditions import machine, versions
from compare.benchmark.growth import FIXED_SIZES, Axis, Growth, Scaling
from compare.benchmark.training_pass import training_pass
from compare.config.run import Run
from compare.models.registry import build
from compare.models.resolved_model import ResolvedModel
from compare.system.cpu import tune_cpu
from compare.system.numerics import set_numerics
from compare.system.timing import Workload, time_in_turn
from compare.training.loss import TranslationLoss

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
"""Config keys that are widths, as multiples of the width axis."""


def measure_growth(runs: Sequence[Run], sizes: Sizes = SIZES, *, repeats: int = 3) -> Scaling:
    """Time the training pass of each model on random ids along each axis; the models take turns.

    Args:
        runs: one run per model, with the same device and precision; the corpus is not read.
        sizes: values of each axis: length, batch, width or vocabulary.
        repeats: timed repeats, of which the median counts.

    Returns:
        Seconds of every model and size, with the exponent of the growth; ``render()`` gives tables.
    """
    tune_cpu()
    train = runs[0].train
    device, precision = torch.device(train.device), train.precision
    set_numerics(device, deterministic=train.deterministic)
    growths = []
    for axis, values in sizes.items():
        logger.info(f"{axis} {', '.join(map(str, values))}: {len(runs)} models, {repeats} repeats")
        torch.manual_seed(train.seed)
        works = [
            _pass(run.model, {**FIXED_SIZES, axis: value}, device, precision)
            for run in runs
            for value in values
        ]
        seconds: list[list[float]] = [[] for _ in works]
        for index, repeat in time_in_turn(works, device, repeats=repeats):
            seconds[index].append(repeat.seconds)
        growths += [
            Growth(axis=axis, model=run.label, sizes=list(values), seconds=seconds[start:][: len(values)])
            for start, run in zip(range(0, len(works), len(values)), runs, strict=True)
        ]
    return Scaling(growths=growths, precision=precision, machine=machine(runs[0]), versions=versions())


def widened(model: ResolvedModel, width: int) -> ResolvedModel:
    """Set every width of a model to ``width``, and its feed-forward layers to four times that."""
    settings = model.settings()
    return model.override(
        {name: factor * width for name, factor in WIDTHS.items() if settings.get(name) is not None}
    )


def _pass(
    settings: ResolvedModel, sizes: Mapping[Axis, int], device: torch.device, precision: str
) -> Workload:
    """Build a model of these sizes and make its training pass."""
    if "width" in sizes:
        settings = widened(settings, sizes["width"])
    vocabulary = sizes["vocabulary"]
    model = build(settings.architecture, vocabulary, vocabulary).to(device)
    return training_pass(
        TranslationLoss(model, label_smoothing=0.1).train(),
        batch=sizes["batch"],
        length=sizes["length"],
        vocabulary=vocabulary,
        device=device,
        precision=precision,
    )
