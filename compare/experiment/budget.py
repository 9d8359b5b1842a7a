"""One budget for all models of an experiment: widths at which they have equal parameters or FLOPs."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import log
from typing import NamedTuple

from compare.config.resolve import Run
from compare.experiment.prepare import PreparedData
from compare.models.registry import Architecture, ResolvedModel, build_meta_model, count_weights

# Widths at which a model meets a budget of parameters or FLOPs.
#
# All widths of a model are scaled by one factor and rounded to multiples of 8, at which matrix products are
# fastest; the last of its ``width_fields`` is then adjusted alone. The heads of a Transformer keep about
# their size, so their number changes.


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


# Match the models of an experiment to one budget; each run's config.toml has the widths.


def match_budget(runs: Sequence[Run], prepared: PreparedData) -> list[Run]:
    """Change the widths of every run so that it meets the experiment's budget.

    Args:
        runs: one run per model.
        prepared: the data, for the vocabulary sizes and the mean lengths.

    Raises:
        ValueError: a model cannot meet the budget; the message contains the nearest amount it can reach.
    """
    budget = runs[0].budget
    reference = find_reference(runs)
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


def _params(architecture: Architecture, sizes: tuple[int, int]) -> float:
    """Count the trainable weights without allocating them."""
    return float(count_weights(build_meta_model(architecture, *sizes)))
