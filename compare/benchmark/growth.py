"""How time grew along an axis: the raw repeats, the exponent, a table."""

import dataclasses
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from compare.benchmark.measurement import figure, markdown

Axis = Literal["length", "batch", "width", "vocabulary"]
KEPT: dict[Axis, int] = {"length": 16, "batch": 16, "vocabulary": 2000}
"""Sizes of the axes that do not grow; the widths are then the model's own."""


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The b of value = a size^b, by least squares on the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Forward and backward pass of one model along one axis."""

    axis: Axis
    model: str
    sizes: list[int]
    seconds: list[list[float]]
    """Of each repeat, by size."""

    @property
    def medians(self) -> list[float]:
        """Seconds, by size."""
        return [statistics.median(repeats) for repeats in self.seconds]

    @property
    def exponent(self) -> float:
        """The b of seconds = a size^b, by least squares on logarithms."""
        return exponent(self.sizes, self.medians)


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """All models of an experiment along some axes."""

    growths: list[Growth]
    precision: str
    machine: dict[str, Any]
    versions: dict[str, str]

    def to_json(self) -> str:
        """All of it as one JSON object, the exponents too."""
        growths = [{**dataclasses.asdict(each), "exponent": each.exponent} for each in self.growths]
        return json.dumps({**dataclasses.asdict(self), "growths": growths}, indent=2) + "\n"

    def render(self) -> str:
        """A Markdown table an axis."""
        axes = dict.fromkeys(each.axis for each in self.growths)
        tables = [_table([each for each in self.growths if each.axis == axis]) for axis in axes]
        facts = ", ".join(f"{name} {value}" for name, value in (self.machine | self.versions).items())
        return "\n".join(tables) + f"\n- forward and backward pass, {self.precision}; {facts}\n"


def _table(growths: Sequence[Growth]) -> str:
    """One axis."""
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
    kept = ", ".join(f"{name} {size:,}" for name, size in KEPT.items() if name != axis)
    return f"{markdown(rows)}\n- ms with {kept}; time grows as {axis}^exponent\n"
