"""One budget for all models of an experiment: widths at which they have equal parameters or FLOPs."""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import log
from typing import NamedTuple

from compare.config.resolve import Run
from compare.experiment.prepare import PreparedData
from compare.models.registry import Architecture, ResolvedModel, build_meta_model, count_weights

# Widths at which a model meets a budget of parameters or FLOPs.
#
# All widths of a model are scaled by one factor and rounded to multiples of 8, at which matrix products are
# fastest; the last of its ``width_fields`` is then adjusted alone. No other setting changes: the number of
# heads is what the experiment asks for, so their size changes with ``d_model``.

logger = logging.getLogger(__name__)

GRID = 8
SEARCHES = ((GRID, 1.1), (GRID, 2.0), (4, 1.5), (2, 1.5), (1, 1.5), (1, 4.0))
"""Grids for widths and sizes of heads, and factors within which the last width may leave its proportion."""
NEIGHBOURS = 8
"""Models below and above the budget, all widths scaled, of which the last width is then adjusted."""
TOLERANCE = 0.02
"""Largest relative error that is accepted."""
MAX_FACTOR = 4
"""Range of the search: within this factor of the original widths."""
FFN_RATIOS = (2, 8)
"""Range of ffn_size / d_model, unless the original ratio is outside (4 in Vaswani et al. 2017)."""
Measure = Callable[[Architecture], float]
"""Amount of the matched quantity that a model takes."""


class Fit(NamedTuple):
    """A model with changed widths, and its distance from the budget."""

    model: ResolvedModel
    off: float
    """Relative error of its amount; positive: over the budget."""
    distortion: float
    """Logarithm of the ratio by which its proportions differ from the original ones."""

    @property
    def cost(self) -> float:
        """Sum of the two relative deviations; the best fit minimises it."""
        return abs(self.off) + self.distortion


def match_widths(run: Run, amount: float, measure: Measure) -> Run:
    """Find the widths at which the model takes ``amount`` and keeps its proportions.

    Raises:
        ValueError: no widths meet the budget; the message names the nearest fit.
    """
    fits: list[Fit] = []
    amounts: dict[str, float] = {}

    def measure_once(architecture: Architecture) -> float:  # counting parameters takes milliseconds
        key = repr(architecture)  # not every config can be hashed
        if key not in amounts:
            amounts[key] = measure(architecture)
        return amounts[key]

    for grid, stretch in SEARCHES:
        fits += _Search(run.model, grid, stretch, amount, measure_once).fits()
        if close := [fit for fit in fits if abs(fit.off) <= TOLERANCE]:
            return replace(run, model=min(close, key=lambda fit: fit.cost).model)
    nearest = min(fits, key=lambda fit: abs(fit.off), default=None)
    if nearest is None:
        remedy = f"it has no widths to change, and takes {measure(run.model.architecture):,.0f}"
    else:
        widths = ", ".join(f"{name} {width}" for name, width in nearest.model.widths().items())
        remedy = f"the nearest fit is {widths}, {nearest.off:+.1%}"
    heads = "num_heads" in run.model.settings()
    raise ValueError(
        f"models.{run.label}: cannot meet the budget of {amount:,.0f} {run.budget.match} within "
        f"{TOLERANCE:.0%}: {remedy}; change {'num_heads, ' * heads}its other sizes or budget.reference"
    )


class _Search:
    """Search for the widths of one model that are multiples of ``grid``."""

    def __init__(
        self, model: ResolvedModel, grid: int, stretch: float, amount: float, measure: Measure
    ) -> None:
        self.model, self.grid, self.stretch = model, grid, stretch
        self.amount, self.measure = amount, measure
        self.given = model.widths()

    def fits(self) -> list[Fit]:
        if not self.given:
            return []
        (first, width), *others = self.given.items()
        scaled = self._models(self._scaled(first, value) for value in self._multiples(width, MAX_FACTOR))
        position = self._position(scaled)
        fits = self._around(scaled)
        for model in scaled[max(0, position - NEIGHBOURS) : position + NEIGHBOURS] if others else ():
            fits += self._around(self._models(self._adjusted(model)))
        return fits

    def _multiples(self, width: float, factor: float) -> range:
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
        models = []
        for values in widths:
            if _is_sensible(values, self.given):
                with suppress(ValueError):  # such as a width that is not divisible by the number of heads
                    model = self.model.override(values)
                    models += [model] if (model.head_size() or 0) % self.grid == 0 else []
        return models

    def _position(self, models: list[ResolvedModel]) -> int:
        """Return the index of the first of ``models``, which grow, that takes at least the amount."""
        return bisect_left(models, self.amount, key=lambda model: self.measure(model.architecture))

    def _around(self, models: list[ResolvedModel]) -> list[Fit]:
        position = self._position(models)
        return [self._fit(model) for model in models[max(0, position - 1) : position + 1]]

    def _fit(self, model: ResolvedModel) -> Fit:
        factors = [log(width / self.given[name]) for name, width in model.widths().items()]
        return Fit(model, self.measure(model.architecture) / self.amount - 1, max(factors) - min(factors))


def _is_sensible(widths: Mapping[str, int], original: Mapping[str, int]) -> bool:
    """Return whether ffn_size / d_model is within ``FFN_RATIOS``, or no further outside than originally."""
    if not {"d_model", "ffn_size"} <= widths.keys():
        return True
    ratio, before = widths["ffn_size"] / widths["d_model"], original["ffn_size"] / original["d_model"]
    low, high = FFN_RATIOS
    return min(low, before) <= ratio <= max(high, before)


# Match the models of an experiment to one budget; each run's config.toml has the widths.


def match_budget(runs: Sequence[Run], prepared: PreparedData) -> list[Run]:
    """Change the widths of every run so that it meets the experiment's budget.

    Raises:
        ValueError: a model cannot meet the budget; the message has the nearest amount.
    """
    budget = runs[0].budget
    reference = find_reference(runs)

    def measure(architecture: Architecture) -> float:
        if budget.match == "flops":
            return prepared.training_flops(architecture, runs[0].regularization.passes)
        return count_weights(build_meta_model(architecture, *prepared.vocabulary_sizes))

    amount = budget.amount or measure(reference.model.architecture)
    unchanged = () if budget.amount else (reference,)
    widths: dict[str, Mapping[str, int]] = {}

    def match(run: Run) -> Run:  # the trials of a search differ in rates and dropouts, which have no weights
        sizes = {name: value for name, value in run.model.settings().items() if not isinstance(value, float)}
        if repr(sizes) not in widths:
            widths[repr(sizes)] = match_widths(run, amount, measure).model.widths()
        return replace(run, model=run.model.override(widths[repr(sizes)]))

    matched = [run if run in unchanged else match(run) for run in runs]
    exact = replace(budget, amount=amount, reference=reference.label)
    changes = [describe_changes(*pair) for pair in zip(runs, matched, strict=True)]
    for run, change in zip(runs, changes, strict=True):
        if change:
            logger.info(f"{run.label}: {change}, for {amount:,.0f} {budget.match}")
    return [
        replace(run, budget=replace(exact, changed=change))
        for run, change in zip(matched, changes, strict=True)
    ]


def describe_changes(before: Run, after: Run) -> str:
    """Name the widths that the budget has changed: "d_model 64 -> 40, ffn_size 128 -> 92"."""
    widths = after.model.widths()
    return ", ".join(
        f"{name} {width} -> {widths[name]}"
        for name, width in before.model.widths().items()
        if widths[name] != width
    )


def find_reference(runs: Sequence[Run]) -> Run:
    """Return the run that sets the budget of the others; ValueError if no run has its label."""
    name = runs[0].budget.reference or runs[0].label
    for run in runs:
        if run.label == name:
            return run
    labels = ", ".join(run.label for run in runs)
    raise ValueError(f"budget.reference {name!r} is not a model of this experiment: labels are {labels}")
