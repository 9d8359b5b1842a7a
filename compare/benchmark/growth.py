"""Growth of time along an axis: raw repeats, fitted exponent and table."""

import dataclasses
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from compare.benchmark.measurement import figure, markdown

Axis = Literal["length", "batch", "width", "vocabulary"]
FIXED_SIZES: dict[Axis, int] = {"length": 16, "batch": 16, "vocabulary": 2000}
"""Sizes of the axes that do not grow; the widths are then those of the model's config."""


class PowerLaw(NamedTuple):
    """The law value = factor * size^exponent."""

    factor: float
    exponent: float


def fit_power_law(sizes: Sequence[float], values: Sequence[float]) -> PowerLaw:
    """Fit a power law by least squares on the logarithms."""
    slope, intercept = np.polyfit(np.log(sizes), np.log(values), 1)
    return PowerLaw(float(np.exp(intercept)), float(slope))


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Time of one model's forward and backward pass along one axis."""

    axis: Axis
    model: str
    sizes: list[int]
    seconds: list[list[float]]
    """Seconds by size and repeat."""

    @property
    def medians(self) -> list[float]:
        """Median seconds for each size."""
        return [statistics.median(repeats) for repeats in self.seconds]

    @property
    def exponent(self) -> float:
        """Exponent b of the fit seconds = a * size^b."""
        return fit_power_law(self.sizes, self.medians).exponent


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Growth of all models of an experiment along some axes."""

    growths: list[Growth]
    precision: str
    machine: dict[str, Any]
    versions: dict[str, str]

    def to_json(self) -> str:
        """Serialise to JSON, exponents included."""
        growths = [{**dataclasses.asdict(each), "exponent": each.exponent} for each in self.growths]
        return json.dumps({**dataclasses.asdict(self), "growths": growths}, indent=2) + "\n"

    def render(self) -> str:
        """Render one Markdown table per axis."""
        axes = dict.fromkeys(each.axis for each in self.growths)
        tables = [_table([each for each in self.growths if each.axis == axis]) for axis in axes]
        facts = ", ".join(f"{name} {value}" for name, value in (self.machine | self.versions).items())
        return "\n".join(tables) + f"\n- forward and backward pass, {self.precision}; {facts}\n"


def _table(growths: Sequence[Growth]) -> str:
    """Render the growth of all models along one axis."""
    axis = growths[0].axis
    rows = [
        {
            "model": each.model,
            **{
                f"{axis} {size:,}": figure(1e3 * median)
                for size, median in zip(each.sizes, each.medians, strict=True)
            },
            "exponent": f"{each.exponent:.2f}",
        }
        for each in growths
    ]
    fixed = ", ".join(f"{name} {size:,}" for name, size in FIXED_SIZES.items() if name != axis)
    return f"{markdown(rows)}\n- ms with {fixed}; time grows as {axis}^exponent\n"
