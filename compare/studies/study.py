"""Types of a study: its settings, its claims as ranges of measured numbers, and its result."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from compare.analysis.tables import Table
from compare.results.text import format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a run of a study."""

    seed: int
    """Seed of all random numbers."""
    quick: bool
    """Whether to use small sizes, for tests; the figures then mean nothing."""
    runs: Path | None
    """Folder of a finished experiment to read instead of training."""
    data_root: str = ""
    """Folder of its corpus; empty: that of its config."""


Measured = float | Sequence[float]
"""A measured number, or one per seed."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Statement as a range in which a measured number must lie; made by ``near``, ``at_most`` and so on."""

    text: str
    measured: float
    low: float = -math.inf
    high: float = math.inf
    expected: float | None = None
    """Middle of the range, if a formula predicts it."""
    by_seed: tuple[float, ...] = ()
    """The number of each seed, if there are several; ``measured`` is then their mean."""

    @property
    def holds(self) -> bool:
        """Whether the measured number lies in the range, with every seed; NaN lies in none."""
        return all(self._inside)

    @property
    def verdict(self) -> bool | Literal["undecided"]:
        """Whether the claim holds; "undecided" if the number lies in the range with some seeds only."""
        return "undecided" if any(self._inside) and not self.holds else self.holds

    @property
    def _inside(self) -> list[bool]:
        return [self.low <= value <= self.high for value in self.by_seed or (self.measured,)]

    @property
    def prediction(self) -> str:
        """Range in words."""
        if self.expected is not None:
            expected, tolerance = format_number(self.expected), self.high - self.expected
            return f"{expected} ± {format_number(tolerance)}" if tolerance else f"{expected} exactly"
        if math.isinf(self.low):
            return f"at most {format_number(self.high)}"
        if math.isinf(self.high):
            return f"at least {format_number(self.low)}"
        return f"{format_number(self.low)} to {format_number(self.high)}"

    @property
    def measurement(self) -> str:
        """Measured number as text, with the lowest and the highest of several seeds."""
        mean = format_number(self.measured)
        if not self.by_seed:
            return mean
        return f"{mean} ({format_number(min(self.by_seed))} to {format_number(max(self.by_seed))})"


def near(text: str, measured: Measured, expected: float, tolerance: float = 0.0) -> Claim:
    """Claim that ``measured`` is ``expected`` to within ``tolerance``."""
    return _claim(text, measured, low=expected - tolerance, high=expected + tolerance, expected=expected)


def at_most(text: str, measured: Measured, bound: float) -> Claim:
    """Claim that ``measured`` does not exceed ``bound``."""
    return _claim(text, measured, high=bound)


def at_least(text: str, measured: Measured, bound: float) -> Claim:
    """Claim that ``measured`` is not below ``bound``."""
    return _claim(text, measured, low=bound)


def between(text: str, measured: Measured, low: float, high: float) -> Claim:
    """Claim that ``measured`` lies from ``low`` to ``high``."""
    return _claim(text, measured, low=low, high=high)


def _claim(
    text: str,
    measured: Measured,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    expected: float | None = None,
) -> Claim:
    """Make a claim about one number, or about one per seed."""
    by_seed = tuple(map(float, measured)) if isinstance(measured, Sequence) else ()
    mean = fmean(by_seed) if isinstance(measured, Sequence) else float(measured)
    return Claim(text=text, measured=mean, low=low, high=high, expected=expected, by_seed=by_seed)


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """Result of a study."""

    method: str
    """Description of the measurement, in a few sentences."""
    tables: Mapping[str, Table]
    """Tables by the name of their file, without suffix."""
    claims: Sequence[Claim]
    figure: "Figure"
