"""Make an experiment's models equal in parameters, operations or time, beside the batches that they share.

For parameters and operations the widths are solved for, knob by knob; for time a calibration on the run's own
machine says how many updates each model can do. What is solved is written into each run's config.toml.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from compare.config.resolve_model import resolve_model
from compare.config.sections import Experiment, ModelConfig
from compare.experiment.compute_result import training_flops
from compare.experiment.prepare import PreparedData
from compare.models.hybrid_config import HybridConfig
from compare.models.registry import Architecture, build
from compare.system.device import pick_device
from compare.training.loss import TranslationLoss
from compare.training.trainer import Trainer
from compare.training.trainer_state import Validation
from seq2seq.config import Seq2SeqConfig
from transformer.config import DecoderOnlyConfig, TransformerConfig

logger = logging.getLogger(__name__)

KNOBS: dict[type, tuple[tuple[str, ...], ...]] = {
    Seq2SeqConfig: (("hidden_size", "attention_size"),),
    TransformerConfig: (("ffn_size",), ("d_model", "ffn_size")),
    DecoderOnlyConfig: (("ffn_size",), ("d_model", "ffn_size")),
    HybridConfig: (("ffn_size",), ("hidden_size", "ffn_size")),
}
"""Attempts, one after the other: the widths that are turned, each where the one before was too coarse."""
RANGE = 4
"""A width becomes at most so many times wider or narrower: what goes further is another model."""
GRIDS = (64, 32, 16, 8, 4, 2, 1)
"""Widths are multiples of one of these; the coarsest that comes near enough wins, as it runs fastest."""
NEAR, TOLERANCE = 0.005, 0.02
"""Share of the budget within which a grid is fine enough, and within which a model must come."""
ROUNDS, WINDOWS, WINDOW_UPDATES = 3, 4, 25
"""Of a calibration: how often each model is trained, and how long."""
Seconds = Mapping[str, float]
"""Of one update, by label."""
Measure = Callable[[Architecture], float]
"""The amount of what is matched that a model takes."""


class Found(NamedTuple):
    """A model with a width of its own, and what that makes of its amount."""

    row: ModelConfig
    off: float
    """Share by which it misses the budget; positive: over it."""


def match_budget(experiment: Experiment, prepared: PreparedData, seconds: Seconds) -> list[Experiment]:
    """One experiment a model, each within the budget; ``seconds`` of an update are needed for time alone.

    Raises:
        ValueError: a budget that a model cannot meet; the error says how near it can come.
    """
    budget = experiment.budget
    singles = each_model(experiment)
    if budget.match == "none":
        return singles
    reference = find_reference(experiment)
    if budget.match == "time":
        amount = budget.amount or seconds[reference.label] * experiment.train.max_updates
        singles = [_in_time(single, amount, seconds) for single in singles]
    else:
        measure = partial(_params if budget.match == "params" else _flops, prepared)
        amount = budget.amount or measure(resolve_model(reference).architecture)
        kept = () if budget.amount else (reference,)
        singles = [
            single if single.models[0] in kept else _in_width(single, amount, measure) for single in singles
        ]
    exact = replace(budget, amount=amount, reference=reference.label)
    return [replace(single, budget=exact) for single in singles]


def each_model(experiment: Experiment) -> list[Experiment]:
    """The experiment taken apart into one a model."""
    return [replace(experiment, models=(row,)) for row in experiment.models]


def find_reference(experiment: Experiment) -> ModelConfig:
    """The model whose amount the others get."""
    named = experiment.budget.reference or experiment.models[0].label
    for row in experiment.models:
        if row.label == named:
            return row
    labels = ", ".join(row.label for row in experiment.models)
    raise ValueError(f"budget.reference {named!r} is no model of this experiment: labels are {labels}")


def calibrate(experiment: Experiment, prepared: PreparedData, known: Seconds) -> Seconds:
    """Seconds of an update of each model, measured where they are not yet ``known``.

    Each is trained as it will be, from fresh weights for some updates, several times over: the rounds lie
    apart, so that what else the machine does is spread over all models. The windows of all rounds are
    averaged, for a run adds them up; the first of each round warms up.
    """
    todo = [single for single in each_model(experiment) if single.models[0].label not in known]
    spent = {single.models[0].label: 0.0 for single in todo}
    tokens = dict.fromkeys(spent, 0)
    for number, single in product(range(ROUNDS), todo):
        label = single.models[0].label
        for line in _trial(single, prepared):
            spent[label] += line["train_s"]
            tokens[label] += line["src_tokens"] + line["tgt_tokens"]
        rate = tokens[label] / spent[label]
        logger.info(f"calibrating, round {number + 1} of {ROUNDS}: {label} {rate:,.0f} tokens/s")
    per_epoch = int(prepared.train.src_lengths.sum() + prepared.train.tgt_lengths.sum()) + len(prepared.train)
    per_update = per_epoch / len(prepared.stream.plan(1))
    return {**known, **{label: per_update * spent[label] / tokens[label] for label in spent}}


def _trial(single: Experiment, prepared: PreparedData) -> list[dict[str, Any]]:
    """The windows of a short training after the first, by the very loop that a run goes through."""
    updates = WINDOWS * WINDOW_UPDATES
    short = replace(
        single.train,
        max_updates=updates,
        log_every=WINDOW_UPDATES,
        valid_every=updates,
        checkpoint_every=updates,
        patience=0,
        average=1,
    )
    torch.manual_seed(single.train.seed)
    resolved = resolve_model(single.models[0])
    model = build(resolved.architecture, *(len(side) for side in prepared.vocabularies))
    criterion = TranslationLoss(model.to(pick_device(short.device)), short.label_smoothing)
    lines: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        no_validation = partial(Validation, loss=0.0, bleu=0.0)
        Trainer(
            criterion, prepared.stream, no_validation, short, resolved.optim, Path(folder), lines.append
        ).run()
    return [line for line in lines if line["kind"] == "train"][1:]


def _in_time(single: Experiment, amount: float, seconds: Seconds) -> Experiment:
    """As many updates as fit into ``amount`` seconds."""
    updates = round(amount / seconds[single.models[0].label])
    if updates < 1:
        raise ValueError(
            f"models.{single.models[0].label}: one update takes {seconds[single.models[0].label]:.2f} s, "
            f"more than the budget of {amount:.2f} s: raise budget.amount"
        )
    return replace(single, train=replace(single.train, max_updates=updates))


def _in_width(single: Experiment, amount: float, measure: Measure) -> Experiment:
    """The widths at which the model's amount is nearest to ``amount``."""
    row = single.models[0]
    resolved = resolve_model(row)
    settings = resolved.settings()
    best = given = Found(row, measure(resolved.architecture) / amount - 1)
    for knobs in KNOBS[type(resolved.architecture)]:
        found = given
        for knob, grid in product(knobs, GRIDS):
            if abs(found.off) > NEAR:
                width = settings.get(knob) or settings.get("hidden_size", 1)  # as attention_size if left out
                near = _around(found.row, knob, width, grid, amount, measure)
                found = min([found, *near], key=_miss)
        best = min([best, found], key=_miss)
        if abs(best.off) <= TOLERANCE:
            return replace(single, models=(best.row,))
    turned = " and ".join(knobs)
    raise ValueError(
        f"models.{row.label}: cannot meet the budget of {amount:,.0f} {single.budget.match} within "
        f"{TOLERANCE:.0%} by {turned}: {best.off:+.1%} is the nearest; "
        "change its other sizes or budget.reference"
    )


def _miss(found: Found) -> float:
    """The share by which it misses the budget, whether over or under it."""
    return abs(found.off)


def _around(
    row: ModelConfig, knob: str, width: int, grid: int, amount: float, measure: Measure
) -> Sequence[Found]:
    """The widest multiple of ``grid`` that keeps the budget, and the next, both within reach of ``width``."""

    def turn(multiple: int) -> Found | None:
        changed = replace(row, overrides={**row.overrides, knob: multiple * grid})
        try:
            return Found(changed, measure(resolve_model(changed).architecture) / amount - 1)
        except ValueError:  # not this width: heads must divide it, or the model has no such knob
            return None

    low, high = -(-width // (RANGE * grid)), width * RANGE // grid
    while high - low > 1:
        middle = (low + high) // 2
        found = turn(middle)
        low, high = (middle, high) if found is not None and found.off < 0 else (low, middle)
    return [found for multiple in (low, high) if (found := turn(multiple)) is not None]


def _params(prepared: PreparedData, architecture: Architecture) -> float:
    """Trainable weights, counted without making them."""
    with torch.device("meta"):
        model = build(architecture, *(len(side) for side in prepared.vocabularies))
    return float(sum(parameter.numel() for parameter in model.parameters()))


def _flops(prepared: PreparedData, architecture: Architecture) -> float:
    """Operations of training, a token."""
    return training_flops(architecture, prepared)
