"""One budget for all models of an experiment: updates, widths of equal size, calibrated time."""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import chain, product
from math import ceil, log
from typing import NamedTuple

import torch

from compare.config.resolve import Run
from compare.experiment.prepare import PreparedData
from compare.experiment.timing import first_updates
from compare.models.registry import Architecture, ResolvedModel, build, build_meta_model, count_weights
from compare.results.store import Registry
from compare.system.device import set_numerics, this_machine
from compare.system.measure import Workload, time_in_turn
from compare.system.messages import first_line, is_out_of_memory
from compare.training.step import TrainingWork, count_tokens
from data.batches import Batch

# Change the number of updates of a run, and with it every setting that is a share of its training.


def scaled_warmup(warmup: int, updates: int, max_updates: int) -> int:
    """Return the warm-up of ``updates`` updates, which is ``warmup`` in ``max_updates``."""
    return max(min(warmup, 1), round(warmup * updates / max_updates))


WARMUPS = "warmup_updates", "attention_warmup"
"""Settings of a model that count updates from the first on."""


def shorter_warmups(model: ResolvedModel, updates: int, max_updates: int) -> dict[str, int]:
    """Return the warm-ups that a model has, in proportion: of ``updates``, given those of ``max_updates``."""
    given = {name: value for name in WARMUPS if (value := model.settings().get(name))}
    return {name: scaled_warmup(value, updates, max_updates) for name, value in given.items()}


def with_updates(run: Run, updates: int) -> Run:
    """Return ``run`` with another number of updates and the same plan of training.

    Warm-up, validations, saves of the state and the distance of averaged weights keep their share of the
    training, so that the learning rate follows the same curve and the best checkpoint is chosen from as many
    validations. Patience and the number of averaged weights stay as they are, and so does the decay of a
    moving average. With fewer updates than the square of the number of validations,
    rounding can change that number.

    Args:
        run: the run.
        updates: its new number of updates.
    """
    train = run.train
    return replace(
        run,
        model=run.model.override(shorter_warmups(run.model, updates, train.max_updates)),
        train=replace(
            train,
            max_updates=updates,
            valid_every=_scaled_interval(train.valid_every, train.max_updates, updates),
            checkpoint_every=ceil(train.checkpoint_every * updates / train.max_updates),
            average_every=ceil(train.average_every * updates / train.max_updates),
        ),
    )


def in_one_plan(runs: Sequence[Run]) -> list[Run]:
    """Return runs to be written as one experiment: a budget of time scales the plan of the first again.

    What that gives are the settings of the runs, up to rounding.
    """
    if not runs or runs[0].budget.match != "time":
        return list(runs)
    return [with_updates(run, runs[0].train.max_updates) for run in runs]


def _scaled_interval(interval: int, old_updates: int, updates: int) -> int:
    """Scale the interval between validations; a last validation follows the last update in any case.

    n validations need an interval of at least 1/n of the updates; below 1/(n - 1) the last one is an
    additional one.
    """
    validations = ceil(old_updates / interval)
    scaled = ceil(interval * updates / old_updates)
    if validations > 1:
        scaled = min(scaled, (updates - 1) // (validations - 1))
    return max(1, scaled)


# Widths at which a model meets a budget of parameters or FLOPs.
#
# All widths of a model are scaled by one factor and rounded to multiples of 8, at which matrix products are
# fastest; the last of its ``width_fields`` is then adjusted alone. The heads of a Transformer keep about
# their size, so their number changes.


logger = logging.getLogger(__name__)

GRID = 8
"""Widths are multiples of this wherever the budget can be met so."""
SEARCHES = ((GRID, 1.1), (GRID, 2.0), (4, 1.5), (2, 1.5), (1, 1.5), (1, 4.0))
"""Grids of which the widths are multiples, and factors within which the last width may leave its proportion;
the first search that meets the budget decides."""
NEIGHBOURS = 8
"""Models below and above the budget, all widths scaled, of which the last width is then adjusted."""
HEAD_STRETCH = 1.5
"""The size of a head stays within this factor of the given one."""
TOLERANCE = 0.02
"""Largest relative error that is accepted."""
MAX_FACTOR = 4
"""Widths are searched within this factor of the given ones; beyond it, it is another model."""
FFN_RATIOS = (2, 8)
"""Smallest and largest ffn_size / d_model, unless the given ratio is outside (4 in Vaswani et al. 2017)."""
Measure = Callable[[Architecture], float]
"""Amount of the matched quantity that a model takes."""


class Fit(NamedTuple):
    """A model with changed widths, and how well it meets the budget."""

    model: ResolvedModel
    off: float
    """Relative error of its amount; positive: over the budget."""
    distortion: float
    """How far its proportions are from the given ones, as the logarithm of a ratio."""

    @property
    def cost(self) -> float:
        """What the best fit has least of: both deviations, which are relative, count alike."""
        return abs(self.off) + self.distortion


def match_widths(run: Run, amount: float, measure: Measure) -> Run:
    """Find the widths at which the model takes ``amount`` and keeps its proportions.

    Args:
        run: the run with its given widths.
        amount: parameters, or FLOPs of training per token.
        measure: computes the amount that a model takes.

    Returns:
        The run with the widths of the lowest ``Fit.cost`` among those within ``TOLERANCE``.

    Raises:
        ValueError: no widths meet the budget; the message contains the nearest amount.
    """
    fits: list[Fit] = []
    known: dict[str, float] = {}

    def measure_once(architecture: Architecture) -> float:  # counting parameters takes milliseconds
        key = repr(architecture)  # not every config can be hashed
        if key not in known:
            known[key] = measure(architecture)
        return known[key]

    for grid, stretch in SEARCHES:
        fits += _Search(run.model, grid, stretch, amount, measure_once).fits()
        if close := [fit for fit in fits if abs(fit.off) <= TOLERANCE]:
            return replace(run, model=min(close, key=lambda fit: fit.cost).model)
    nearest = min((fit.off for fit in fits), key=abs, default=measure(run.model.architecture) / amount - 1)
    raise ValueError(
        f"models.{run.label}: cannot meet the budget of {amount:,.0f} {run.budget.match} within "
        f"{TOLERANCE:.0%} by {' and '.join(run.model.widths())}: {nearest:+.1%} is the nearest; "
        "change its other sizes or budget.reference"
    )


class _Search:
    """Search for the widths of one model that are multiples of ``grid``."""

    def __init__(
        self, model: ResolvedModel, grid: int, stretch: float, amount: float, measure: Measure
    ) -> None:
        self.model, self.grid, self.stretch = model, grid, stretch
        self.amount, self.measure = amount, measure
        self.given = model.widths()
        self.head_size = model.head_size()

    def fits(self) -> list[Fit]:
        """List the fits around the amount: of the scaled widths, and with the last one adjusted."""
        if not self.given:
            return []
        (first, width), *others = self.given.items()
        scaled = self._models(self._scaled(first, value) for value in self._multiples(width, MAX_FACTOR))
        position = self._position(scaled)
        found = self._around(scaled)
        for model in scaled[max(0, position - NEIGHBOURS) : position + NEIGHBOURS] if others else ():
            found += self._around(self._models(self._adjusted(model)))
        return found

    def _multiples(self, width: float, factor: float) -> range:
        """Return the multiples of the grid within ``factor`` of ``width``."""
        low = max(1, -(-width // (factor * self.grid)))
        return range(int(low) * self.grid, int(width * factor) + 1, self.grid)

    def _scaled(self, first: str, value: int) -> Mapping[str, int]:
        """Scale all widths by the factor that makes the width ``first`` equal to ``value``."""
        factor = value / self.given[first]
        nearest = {name: round(factor * width / self.grid) for name, width in self.given.items()}
        return {name: self.grid * max(1, multiple) for name, multiple in nearest.items()}

    def _adjusted(self, model: ResolvedModel) -> Iterator[Mapping[str, int]]:
        """Yield the widths of ``model`` with other values of the last one."""
        widths = model.widths()
        first, *_, last = widths
        share = self.given[last] * widths[first] / self.given[first]
        return ({**widths, last: value} for value in self._multiples(share, self.stretch))

    def _models(self, widths: Iterator[Mapping[str, int]]) -> list[ResolvedModel]:
        """Build the models that have these widths; those that cannot be built are left out."""
        models = []
        for values in widths:
            heads = self._heads(values)
            if heads is None or not _is_sensible(values, self.given):
                continue
            with suppress(ValueError):  # not this width, such as one that is not divisible by the heads
                models.append(self.model.override({**values, **heads}))
        return models

    def _heads(self, widths: Mapping[str, int]) -> Mapping[str, int] | None:
        """Choose the number of heads that gives them the size nearest to the given one; None if none does."""
        if self.head_size is None or "d_model" not in widths:
            return {}
        settings, d_model = self.model.settings(), widths["d_model"]
        if settings["head_size"]:  # the size is fixed; the heads together grow with d_model
            return {"num_heads": max(1, round(settings["num_heads"] * d_model / settings["d_model"]))}
        sizes = [
            size
            for size in self._multiples(self.head_size, HEAD_STRETCH)
            if d_model % size == 0 and size % 2 <= self.head_size % 2
        ]
        if not sizes:
            return None
        return {"num_heads": d_model // min(sizes, key=lambda size: _log_ratio(size, self.head_size))}

    def _position(self, models: list[ResolvedModel]) -> int:
        """Return the index of the first of ``models``, which grow, that takes at least the amount."""
        return bisect_left(models, self.amount, key=lambda model: self.measure(model.architecture))

    def _around(self, models: list[ResolvedModel]) -> list[Fit]:
        """Return the fits of the last model below the amount, and of the first above it."""
        position = self._position(models)
        return [self._fit(model) for model in models[max(0, position - 1) : position + 1]]

    def _fit(self, model: ResolvedModel) -> Fit:
        """Compare a model with the amount, and with the given proportions."""
        factors = [log(width / self.given[name]) for name, width in model.widths().items()]
        distortion = max(factors) - min(factors)
        distortion += _log_ratio(model.head_size(), self.head_size)
        return Fit(model, self.measure(model.architecture) / self.amount - 1, distortion)


def _log_ratio(size: int | None, given: int | None) -> float:
    """Return the absolute logarithm of the ratio of two sizes; 0 where the model has no such size."""
    return abs(log(size / given)) if size and given else 0.0


def _is_sensible(widths: Mapping[str, int], given: Mapping[str, int]) -> bool:
    """Return whether ffn_size / d_model is within ``FFN_RATIOS``, or no further outside than it was given."""
    if not {"d_model", "ffn_size"} <= widths.keys():
        return True
    ratio, before = widths["ffn_size"] / widths["d_model"], given["ffn_size"] / given["d_model"]
    low, high = FFN_RATIOS
    return min(low, before) <= ratio <= max(high, before)


# Measure how long an update of each model takes on this machine.


ROUNDS, UPDATES = 3, 50
"""Rounds per model, and updates per round after as many of warm-up."""


def fresh_update_work(run: Run, prepared: PreparedData, updates: Sequence[Sequence[Batch]]) -> Workload:
    """Make the work of updates of a model with fresh weights, before its run."""
    device = torch.device(run.train.device)
    set_numerics(device, deterministic=run.train.deterministic)
    return TrainingWork(run, build(run.model.architecture, *prepared.vocabulary_sizes).to(device), updates)


def describe_work(runs: Sequence[Run]) -> dict[str, str]:
    """Hash by label what decides how long an update takes, apart from the machine."""
    work = {run.label: (run.model.architecture, run.train.device, run.train.precision) for run in runs}
    return {label: sha256(repr(each).encode()).hexdigest() for label, each in work.items()}


def calibrate(runs: Sequence[Run], prepared: PreparedData, registry: Registry) -> dict[str, float]:
    """Measure the seconds per update of each model, unless ``registry`` knows them, and note them there.

    The rounds are apart in time, so that a disturbance of the machine is spread over all models.

    Args:
        runs: one run per model.
        prepared: their data.
        registry: what an earlier call has measured; models that have been changed since are measured again.

    Returns:
        The seconds by label.

    Raises:
        ValueError: a model needs too much memory, or one is unknown and this is another machine than that of
            the others, or torchrun has started this process.
    """
    work = describe_work(runs)
    unknown = [run for run in runs if registry.calibrated_as.get(run.label) != work[run.label]]
    if unknown and torch.distributed.is_available() and torch.distributed.is_initialized():
        raise ValueError("budget.match = 'time' is measured by one process: begin without torchrun")
    machine = str(this_machine(torch.device(runs[0].train.device)))
    if unknown and registry.calibrated_on not in ("", machine):
        raise ValueError(
            f"budget.match = 'time' was measured on {registry.calibrated_on}, and this is {machine}: "
            "add models there, or choose another folder with --out"
        )
    spent = {run.label: 0.0 for run in unknown}
    updates = first_updates(prepared.stream, UPDATES, runs[0].train.accumulate)
    tokens = count_tokens(chain.from_iterable(updates))
    for number, run in product(range(ROUNDS), unknown):
        try:
            with torch.random.fork_rng(devices=[]):
                update = fresh_update_work(run, prepared, updates)
                ((_, repeat),) = time_in_turn([update], torch.device(run.train.device), repeats=1)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise ValueError(
                f"models.{run.label} cannot be calibrated for budget.match = 'time': {first_line(error)}"
            ) from error
        spent[run.label] += repeat.seconds
        rate = tokens / repeat.seconds
        logger.info(f"calibrating, round {number + 1} of {ROUNDS}: {run.label} {rate:,.0f} tokens/s")
    per_update = float(prepared.stream.token_counts(1).sum(axis=1).mean())
    for label in spent:
        registry.seconds_per_update[label] = per_update * spent[label] / (ROUNDS * tokens)
        registry.calibrated_as[label], registry.calibrated_on = work[label], machine
    return registry.seconds_per_update


# Match the models of an experiment to one budget.
#
# For parameters and FLOPs the widths of each model are searched; for time a calibration on this machine
# decides how many updates each model gets. The result is written into each run's config.toml.


def match_budget(runs: Sequence[Run], prepared: PreparedData, registry: Registry) -> list[Run]:
    """Change the widths or updates of every run so that it meets the experiment's budget.

    Args:
        runs: one run per model.
        prepared: the data, for the vocabulary sizes and the mean lengths.
        registry: the measured speeds, to which those of new models are added if the budget is time.

    Raises:
        ValueError: a model cannot meet the budget; the message contains the nearest amount it can reach.
    """
    budget = runs[0].budget
    if budget.match == "none":
        return list(runs)
    reference = find_reference(runs)
    if budget.match == "time":
        seconds = calibrate(runs, prepared, registry)
        amount = budget.amount or seconds[reference.label] * reference.train.max_updates
        matched = [_match_time(run, amount, seconds[run.label]) for run in runs]
    else:
        measure = partial(_params, sizes=prepared.vocabulary_sizes)
        if budget.match == "flops":
            measure = partial(prepared.training_flops, passes=runs[0].regularization.passes)
        amount = budget.amount or measure(reference.model.architecture)
        unchanged = () if budget.amount else (reference,)
        matched = [run if run in unchanged else match_widths(run, amount, measure) for run in runs]
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


def _match_time(run: Run, amount: float, seconds_per_update: float) -> Run:
    """Set the number of updates that take ``amount`` seconds, and the intervals that depend on it."""
    updates = round(amount / seconds_per_update)
    if updates < 1:
        raise ValueError(
            f"models.{run.label}: one update takes {seconds_per_update:.2f} s, "
            f"more than the budget of {amount:.2f} s: raise budget.amount"
        )
    return with_updates(run, updates)


def _params(architecture: Architecture, sizes: tuple[int, int]) -> float:
    """Count the trainable weights without allocating them."""
    return float(count_weights(build_meta_model(architecture, *sizes)))
