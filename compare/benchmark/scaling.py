"""Growth of training time with length, batch, width and vocabulary: one axis grows, the others stay fixed."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import torch

from compare.benchmark.conditions import machine, versions
from compare.benchmark.growth import FIXED_SIZES, Axis, Growth, Scaling
from compare.benchmark.training_pass import training_pass
from compare.config.resolve_model import resolve_model
from compare.config.sections import Experiment, ModelConfig
from compare.experiment.resolve import resolve_precision
from compare.models.registry import build
from compare.system.cpu import tune_cpu
from compare.system.device import pick_device
from compare.system.timing import Workload, time_in_turn
from compare.training.loss import TranslationLoss

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


def measure_growth(
    experiment: Experiment, sizes: Sizes, *, repeats: int, say: Callable[[str], None], place: str = "config"
) -> Scaling:
    """Time the training pass of each model on random ids along each axis; the models take turns.

    Args:
        experiment: the models, their device and precision; its corpus is not read.
        sizes: values of each axis, such as ``SIZES``.
        repeats: timed repeats, of which the median counts.
        say: called with a line for every axis.
        place: name of the config in error messages.

    Raises:
        ValueError: a model or the device cannot be used.
    """
    tune_cpu()
    experiment = resolve_precision(experiment)
    device, precision = pick_device(experiment.train.device), experiment.train.precision
    growths = []
    for axis, values in sizes.items():
        say(f"{axis} {', '.join(map(str, values))}: {len(experiment.models)} models, {repeats} repeats")
        torch.manual_seed(experiment.train.seed)
        works = [
            _pass(model, {**FIXED_SIZES, axis: value}, device, precision, place)
            for model in experiment.models
            for value in values
        ]
        seconds: list[list[float]] = [[] for _ in works]
        for index, repeat in time_in_turn(works, device, repeats=repeats):
            seconds[index].append(repeat.seconds)
        growths += [
            Growth(axis=axis, model=model.label, sizes=list(values), seconds=seconds[start:][: len(values)])
            for start, model in zip(range(0, len(works), len(values)), experiment.models, strict=True)
        ]
    return Scaling(growths=growths, precision=precision, machine=machine(experiment), versions=versions())


def widened(model: ModelConfig, width: int, context: str = "config") -> ModelConfig:
    """Set every width of a model to ``width``, and its feed-forward layers to four times that."""
    settings = resolve_model(model, context).settings()
    widths = {name: factor * width for name, factor in WIDTHS.items() if settings.get(name) is not None}
    return dataclasses.replace(model, overrides={**model.overrides, **widths})


def _pass(
    config: ModelConfig, sizes: Mapping[Axis, int], device: torch.device, precision: str, context: str
) -> Workload:
    """Build a model of these sizes and make its training pass."""
    config = widened(config, sizes["width"], context) if "width" in sizes else config
    vocabulary = sizes["vocabulary"]
    model = build(resolve_model(config, context).architecture, vocabulary, vocabulary).to(device)
    return training_pass(
        TranslationLoss(model, label_smoothing=0.1).train(),
        batch=sizes["batch"],
        length=sizes["length"],
        vocabulary=vocabulary,
        device=device,
        precision=precision,
    )
