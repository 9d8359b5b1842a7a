"""Make the models of an experiment equal in parameters, operations or time, besides the batches they share.

For parameters and operations the widths of each model are searched; for time a calibration on this machine
decides how many updates each model gets. The result is written into each run's config.toml.
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

from compare.config.run import Run
from compare.experiment.compute_result import training_flops
from compare.experiment.prepare import PreparedData
from compare.models.meta_model import build_meta_model
from compare.models.registry import Architecture, build, family_of
from compare.training.loss import TranslationLoss
from compare.training.trainer import Trainer
from compare.training.trainer_state import Validation

logger = logging.getLogger(__name__)

MAX_WIDTH_FACTOR = 4
"""Widths are searched within this factor of the given one; beyond it, it is another model."""
GRIDS = (64, 32, 16, 8, 4, 2, 1)
"""Widths are multiples of one of these; the coarsest that is close enough is taken, as it runs fastest."""
CLOSE_ENOUGH, TOLERANCE = 0.005, 0.02
"""Relative error at which the search stops, and the largest that is accepted."""
CALIBRATION_ROUNDS, CALIBRATION_LINES, UPDATES_PER_LINE = 3, 4, 25
"""Calibration: rounds per model, log lines per round, and updates per log line."""
SecondsPerUpdate = Mapping[str, float]
"""Seconds per update by label."""
Measure = Callable[[Architecture], float]
"""Amount of the matched quantity that a model takes."""


class Fit(NamedTuple):
    """A run with changed widths, and how well it meets the budget."""

    run: Run
    off: float
    """Relative error of its amount; positive: over the budget."""


def match_budget(runs: Sequence[Run], prepared: PreparedData, seconds: SecondsPerUpdate) -> list[Run]:
    """Change the widths or updates of every run so that it meets the experiment's budget.

    Args:
        runs: one run per model.
        prepared: the data, for the vocabulary sizes and the mean lengths.
        seconds: seconds per update by label; needed if the budget is time.

    Raises:
        ValueError: a model cannot meet the budget; the message contains the nearest amount it can reach.
    """
    budget = runs[0].budget
    if budget.match == "none":
        return list(runs)
    reference = find_reference(runs)
    if budget.match == "time":
        amount = budget.amount or seconds[reference.label] * reference.train.max_updates
        matched = [_match_time(run, amount, seconds[run.label]) for run in runs]
    else:
        measure = partial(_params if budget.match == "params" else training_flops, prepared=prepared)
        amount = budget.amount or measure(reference.model.architecture)
        unchanged = () if budget.amount else (reference,)
        matched = [run if run in unchanged else _match_width(run, amount, measure) for run in runs]
    exact = replace(budget, amount=amount, reference=reference.label)
    return [replace(run, budget=exact) for run in matched]


def find_reference(runs: Sequence[Run]) -> Run:
    """Find the run whose amount the others are matched to.

    Raises:
        ValueError: ``budget.reference`` is no label of the experiment.
    """
    name = runs[0].budget.reference or runs[0].label
    for run in runs:
        if run.label == name:
            return run
    labels = ", ".join(run.label for run in runs)
    raise ValueError(f"budget.reference {name!r} is not a model of this experiment: labels are {labels}")


def calibrate(runs: Sequence[Run], prepared: PreparedData, known: SecondsPerUpdate) -> SecondsPerUpdate:
    """Measure the seconds per update of each model that is not yet ``known``.

    Each is trained from fresh weights as its run will be, several times: the rounds are apart in time, so
    that a disturbance of the machine is spread over all models. The first log line of each round is warm-up.
    """
    unknown = [run for run in runs if run.label not in known]
    spent = {run.label: 0.0 for run in unknown}
    tokens = dict.fromkeys(spent, 0)
    for number, run in product(range(CALIBRATION_ROUNDS), unknown):
        for line in _train_briefly(run, prepared):
            spent[run.label] += line["train_s"]
            tokens[run.label] += line["src_tokens"] + line["tgt_tokens"]
        rate = tokens[run.label] / spent[run.label]
        logger.info(
            f"calibrating, round {number + 1} of {CALIBRATION_ROUNDS}: {run.label} {rate:,.0f} tokens/s"
        )
    per_epoch = int(prepared.train.src_lengths.sum() + prepared.train.tgt_lengths.sum()) + len(prepared.train)
    per_update = per_epoch / len(prepared.stream.plan(1))
    return {**known, **{label: per_update * spent[label] / tokens[label] for label in spent}}


def _train_briefly(run: Run, prepared: PreparedData) -> list[dict[str, Any]]:
    """Train for some updates with the training loop of a run; returns its log lines after the first."""
    updates = CALIBRATION_LINES * UPDATES_PER_LINE
    train = replace(
        run.train,
        max_updates=updates,
        log_every=UPDATES_PER_LINE,
        valid_every=updates,
        checkpoint_every=updates,
        patience=0,
        average=1,
    )
    torch.manual_seed(train.seed)
    model = build(run.model.architecture, *prepared.vocabulary_sizes)
    criterion = TranslationLoss(model.to(train.device), train.label_smoothing)
    lines: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        no_validation = partial(Validation, loss=0.0, bleu=0.0)
        Trainer(
            criterion=criterion,
            train_batches=prepared.stream,
            validate=no_validation,
            train_config=train,
            optim_config=run.model.optim,
            run_folder=Path(folder),
            report=lines.append,
        ).run()
    return [line for line in lines if line["kind"] == "train"][1:]


def _match_time(run: Run, amount: float, seconds_per_update: float) -> Run:
    """Set the number of updates that take ``amount`` seconds."""
    updates = round(amount / seconds_per_update)
    if updates < 1:
        raise ValueError(
            f"models.{run.label}: one update takes {seconds_per_update:.2f} s, "
            f"more than the budget of {amount:.2f} s: raise budget.amount"
        )
    return replace(run, train=replace(run.train, max_updates=updates))


def _match_width(run: Run, amount: float, measure: Measure) -> Run:
    """Find the widths at which the model's amount is closest to ``amount``."""
    settings = run.model.settings()
    groups = family_of(run.model.architecture).width_fields
    best = given = Fit(run, measure(run.model.architecture) / amount - 1)
    for names in groups:
        fit = given
        for name, grid in product(names, GRIDS):
            if abs(fit.off) > CLOSE_ENOUGH:
                width = settings.get(name) or settings.get("hidden_size", 1)  # attention_size defaults to it
                fit = min([fit, *_around(fit.run, name, width, grid, amount, measure)], key=_error)
        best = min([best, fit], key=_error)
        if abs(best.off) <= TOLERANCE:
            return best.run
    raise ValueError(
        f"models.{run.label}: cannot meet the budget of {amount:,.0f} {run.budget.match} within "
        f"{TOLERANCE:.0%} by {' and '.join(groups[-1])}: {best.off:+.1%} is the nearest; "
        "change its other sizes or budget.reference"
    )


def _error(fit: Fit) -> float:
    """Return the absolute value of the relative error."""
    return abs(fit.off)


def _around(run: Run, name: str, width: int, grid: int, amount: float, measure: Measure) -> list[Fit]:
    """The widest multiple of ``grid`` within the budget, and the next, both within reach of ``width``."""

    def fit(multiple: int) -> Fit | None:
        try:
            model = run.model.override({name: multiple * grid})
        except ValueError:  # not this width: heads must divide it, or the model has no such setting
            return None
        return Fit(replace(run, model=model), measure(model.architecture) / amount - 1)

    low, high = -(-width // (MAX_WIDTH_FACTOR * grid)), width * MAX_WIDTH_FACTOR // grid
    while high - low > 1:
        middle = (low + high) // 2
        candidate = fit(middle)
        low, high = (middle, high) if candidate is not None and candidate.off < 0 else (low, middle)
    return [candidate for multiple in (low, high) if (candidate := fit(multiple)) is not None]


def _params(architecture: Architecture, *, prepared: PreparedData) -> float:
    """Count the trainable weights without allocating them."""
    model = build_meta_model(architecture, *prepared.vocabulary_sizes)
    return float(sum(parameter.numel() for parameter in model.parameters()))
