"""How the cost of training grows with length, batch, width and vocabulary: one doubles, the others stay."""

from collections.abc import Callable, Mapping, Sequence

import torch

from compare.benchmark.conditions import machine, versions
from compare.benchmark.growth import KEPT, Axis, Growth, Scaling
from compare.config.run import Run
from compare.models.registry import build
from compare.models.resolved_model import ResolvedModel
from compare.system.cpu import tune_cpu
from compare.system.precision import autocast
from compare.system.timing import Workload, time_in_turn
from compare.training.loss import TranslationLoss
from data.symbols import SPECIALS

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


def grow(runs: Sequence[Run], sizes: Sizes, *, repeats: int, say: Callable[[str], None]) -> Scaling:
    """Time the models on random ids, along each axis of ``sizes`` all in turn.

    Args:
        runs: one run per model, with equal device and precision; the corpus is not read.
        sizes: the values of each axis, such as ``SIZES``.
        repeats: timed repeats, of which the median counts.
        say: told of every axis.
    """
    tune_cpu()
    device, precision = torch.device(runs[0].train.device), runs[0].train.precision
    growths = []
    for axis, values in sizes.items():
        say(f"{axis} {', '.join(map(str, values))}: {len(runs)} models, {repeats} repeats")
        torch.manual_seed(runs[0].train.seed)
        works = [
            _pass(run.model, {**KEPT, axis: value}, device, precision) for run in runs for value in values
        ]
        seconds: list[list[float]] = [[] for _ in works]
        for number, turn in time_in_turn(works, device, repeats=repeats):
            seconds[number].append(turn.seconds)
        growths += [
            Growth(axis=axis, model=run.label, sizes=list(values), seconds=seconds[start:][: len(values)])
            for start, run in zip(range(0, len(works), len(values)), runs, strict=True)
        ]
    return Scaling(growths=growths, precision=precision, machine=machine(runs[0]), versions=versions())


def widened(model: ResolvedModel, width: int) -> ResolvedModel:
    """The model with every width that it has set to ``width``, and feed-forward layers four times as wide."""
    settings = model.settings()
    return model.override(
        {name: share * width for name, share in WIDTHS.items() if settings.get(name) is not None}
    )


def _pass(
    model_settings: ResolvedModel, shape: Mapping[Axis, int], device: torch.device, precision: str
) -> Workload:
    """The forward and backward pass of one batch without padding."""
    if "width" in shape:
        model_settings = widened(model_settings, shape["width"])
    vocabulary, size = shape["vocabulary"], (shape["batch"], shape["length"])
    model = build(model_settings.architecture, vocabulary, vocabulary).to(device)
    criterion = TranslationLoss(model, label_smoothing=0.1).train()
    src, tgt_in, tgt_out = torch.randint(len(SPECIALS), vocabulary, (3, *size), device=device)
    mask = torch.ones(size, dtype=torch.bool, device=device)

    def work() -> None:
        criterion.zero_grad(set_to_none=True)
        with autocast(device, precision):
            loss = criterion(src, mask, tgt_in, tgt_out, mask)
        loss.minimised.backward()

    return work
