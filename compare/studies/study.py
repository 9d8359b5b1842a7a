"""Types of a study: its settings, its claims as ranges of measured numbers, and its result."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compare.analysis.table import Table
from compare.results.numbers import format_number

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


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Statement as a range in which a measured number must lie; made by ``near``, ``at_most`` and so on."""

    text: str
    measured: float
    low: float = -math.inf
    high: float = math.inf
    expected: float | None = None
    """Middle of the range, if a formula predicts it."""

    @property
    def holds(self) -> bool:
        """Whether the measured number lies in the range; NaN lies in none."""
        return self.low <= self.measured <= self.high

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
        """Measured number as text."""
        return format_number(self.measured)


def near(text: str, measured: float, expected: float, tolerance: float = 0.0) -> Claim:
    """Claim that ``measured`` is ``expected`` to within ``tolerance``."""
    low, high = expected - tolerance, expected + tolerance
    return Claim(text=text, measured=float(measured), low=low, high=high, expected=expected)


def at_most(text: str, measured: float, bound: float) -> Claim:
    """Claim that ``measured`` does not exceed ``bound``."""
    return Claim(text=text, measured=float(measured), high=bound)


def at_least(text: str, measured: float, bound: float) -> Claim:
    """Claim that ``measured`` is not below ``bound``."""
    return Claim(text=text, measured=float(measured), low=bound)


def between(text: str, measured: float, low: float, high: float) -> Claim:
    """Claim that ``measured`` lies from ``low`` to ``high``."""
    return Claim(text=text, measured=float(measured), low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """Result of a study."""

    method: str
    """Description of the measurement, in a few sentences."""
    tables: Mapping[str, Table]
    """Tables by the name of their file, without suffix."""
    claims: Sequence[Claim]
    figure: "Figure"
