"""One figure of a benchmark: its raw repeats, and what they are of."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from compare.results.markdown import markdown_table
from compare.results.numbers import format_number
from compare.system.timing import Speed, TimedRepeat

Unit = Literal["tokens/s", "sentences/s", "ms"]
NONE = "-"
"""In a table, where there is no figure."""
WORDS = {"model", "phase", "precision", "unit", "row", "verdict"}
"""Headings of columns that hold no figures."""


@dataclass(frozen=True, kw_only=True)
class Measurement(Speed):
    """One model in one phase and precision.

    Tokens of train are the source's without and the target's with end of sentence, of encode the source's
    without, of decoding the target's with it; padding is never counted.
    """

    model: str
    phase: str
    precision: str
    unit: Unit
    """Of the headline; ms is for a sentence."""
    params: int
    flops_per_token: float | None
    """Of training, for a token as counted; None for other phases."""
    joules: float | None = None
    """Of all repeats; None where they cannot be read."""
    peak_memory_bytes: int = 0
    """Of the process, or on the GPU; all models of the benchmark are held at once."""

    @property
    def name(self) -> str:
        """What tells it from the other rows."""
        return f"{self.model} {self.phase} {self.precision}"

    def headline(self, seconds: float) -> float:
        """The figure in ``unit`` of a repeat that took ``seconds``."""
        if self.unit == "ms":
            return 1e3 * seconds / self.sentences
        return (self.tokens if self.unit == "tokens/s" else self.sentences) / seconds

    def timed(self, turns: Sequence[TimedRepeat]) -> "Measurement":
        """The row with what its repeats took."""
        joules = [turn.joules for turn in turns if turn.joules is not None]
        return replace(
            self,
            seconds=[turn.seconds for turn in turns],
            joules=sum(joules) if len(joules) == len(turns) else None,
            peak_memory_bytes=max(turn.peak_memory_bytes for turn in turns),
        )

    def cells(self, share: float | None) -> dict[str, str]:
        """The row of a table, by its headings; ``share`` is that of the yardstick."""
        figures = sorted(map(self.headline, self.seconds))
        tokens = self.tokens * len(figures)
        return {
            "model": self.model,
            "phase": self.phase,
            "precision": self.precision,
            "median": figure(self.headline(statistics.median(self.seconds))),
            "min-max": f"{figure(figures[0])}-{figure(figures[-1])}",
            "unit": self.unit,
            "tokens/s": figure(self.tokens_per_s),
            "repeats": str(len(figures)),
            "tokens": f"{self.tokens:,}",
            "share": NONE if share is None else f"{share:.0%}",
            "params (M)": f"{self.params / 1e6:.2f}",
            "peak memory (GB)": f"{self.peak_memory_bytes / 1e9:.2f}",
            "J / 1k tokens": NONE if self.joules is None else figure(1e3 * self.joules / tokens),
        }


def figure(value: float) -> str:
    """Format a float with three significant digits or all of its integer part."""
    return format_number(value, digits=3)


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Format cells by heading as a Markdown table without the columns that are empty in every row."""
    headings = [heading for heading in rows[0] if any(row[heading] != NONE for row in rows)]
    cells = [{heading: row[heading] for heading in headings} for row in rows]
    return markdown_table(cells, left=WORDS) + "\n"
