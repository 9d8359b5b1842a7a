"""What a study hands back: tables, a figure, and claims that its measurements uphold or not."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compare.analysis.table import Table
from compare.results.numbers import format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a study is told."""

    seed: int
    """Of all that is drawn."""
    quick: bool
    """Small sizes, whose figures mean nothing: for tests."""
    runs: Path | None
    """Folder of a finished experiment to read instead of training."""
    say: Callable[[str], None]
    """Told of each step of long work."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of the notes as a range in which a measured number must lie; see ``near`` and its like."""

    text: str
    measured: float
    low: float = -math.inf
    high: float = math.inf
    expected: float | None = None
    """The middle of the range, where there is a formula for it."""

    @property
    def holds(self) -> bool:
        """Whether the measured number lies in the range; NaN lies in none."""
        return self.low <= self.measured <= self.high

    @property
    def prediction(self) -> str:
        """The range in words."""
        if self.expected is not None:
            width = self.high - self.expected
            return (
                f"{format_number(self.expected)} ± {format_number(width)}"
                if width
                else f"{format_number(self.expected)} exactly"
            )
        if math.isinf(self.low):
            return f"at most {format_number(self.high)}"
        if math.isinf(self.high):
            return f"at least {format_number(self.low)}"
        return f"{format_number(self.low)} to {format_number(self.high)}"

    @property
    def measurement(self) -> str:
        """The measured number in words."""
        return format_number(self.measured)


def near(text: str, measured: float, expected: float, tolerance: float = 0.0) -> Claim:
    """Claim that ``measured`` is ``expected`` to within ``tolerance``."""
    low, high = expected - tolerance, expected + tolerance
    return Claim(text=text, measured=float(measured), low=low, high=high, expected=expected)


def at_most(text: str, measured: float, bound: float) -> Claim:
    """Claim that ``measured`` does not exceed ``bound``."""
    return Claim(text=text, measured=float(measured), high=bound)


def at_least(text: str, measured: float, bound: float) -> Claim:
    """Claim that ``measured`` reaches ``bound``."""
    return Claim(text=text, measured=float(measured), low=bound)


def between(text: str, measured: float, low: float, high: float) -> Claim:
    """Claim that ``measured`` lies from ``low`` to ``high``."""
    return Claim(text=text, measured=float(measured), low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """All that a study found."""

    method: str
    """What was measured and how, in a few sentences."""
    tables: Mapping[str, Table]
    """By the name of the file each is written to."""
    claims: Sequence[Claim]
    figure: "Figure"
