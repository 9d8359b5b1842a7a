"""Length penalties: what a hypothesis's log-probability is divided by."""

from dataclasses import dataclass
from typing import Literal, get_args

from compare.config.sections import DecodeConfig

Normalization = Literal["wu", "length"]


@dataclass(frozen=True)
class LengthPenalty:
    """The divisor of the log-probability of an ended hypothesis; it never falls as length grows.

    - wu: ((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14)
    - length: length ** alpha; alpha = 1 gives the mean per token

    Raises:
        ValueError: a negative ``alpha``, or another form.
    """

    alpha: float = 0.0
    """Strength, at least 0: the larger, the longer are the translations; 0: no penalty in either form."""
    normalization: Normalization = "wu"
    """Form of the divisor."""

    def __post_init__(self) -> None:
        """Reject what would be another penalty than its name says."""
        if not self.alpha >= 0:
            raise ValueError(f"a length penalty must be at least 0, got {self.alpha}")
        if self.normalization not in get_args(Normalization):
            allowed = ", ".join(get_args(Normalization))
            raise ValueError(
                f"the form of a length penalty must be one of {allowed}, got {self.normalization!r}"
            )

    def divisor(self, length: int) -> float:
        """Compute the divisor.

        Args:
            length: tokens of the hypothesis, at least 1: the end of sentence is counted.
        """
        base = (5 + length) / 6 if self.normalization == "wu" else float(length)
        divisor: float = base**self.alpha
        return divisor

    def __str__(self) -> str:
        """Describe it for messages: "0.6 (wu)"."""
        return f"{self.alpha:g} ({self.normalization})"


NO_PENALTY = LengthPenalty()


def length_penalties(decode: DecodeConfig) -> tuple[LengthPenalty, ...]:
    """List the penalties to choose from, in rising order; with both forms, alpha = 0 stands once.

    Args:
        decode: holds the grid of alpha and the form.
    """
    if decode.length_normalization == "both":
        points = [LengthPenalty(alpha, "wu") for alpha in decode.length_penalties]
        return (*points, *(LengthPenalty(point.alpha, "length") for point in points if point.alpha))
    form: Normalization = "length" if decode.length_normalization == "length" else "wu"
    return tuple(LengthPenalty(alpha, form) for alpha in decode.length_penalties)
