"""One measurement of a benchmark: its raw repeats, and the work that was timed."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from compare.results.markdown import markdown_table
from compare.results.numbers import format_number
from compare.system.cpu_share import describe_share
from compare.system.timing import Speed, TimedRepeat

Unit = Literal["tokens/s", "sentences/s", "ms"]
NONE = "-"
"""Cell of a table without a figure."""
WORDS = {"model", "phase", "precision", "unit", "row", "verdict"}
"""Headings of columns that hold no figures."""


@dataclass(frozen=True, kw_only=True)
class Measurement(Speed):
    """Times of one model in one phase and precision.

    Tokens of train are those of the source without EOS and of the target with EOS; of encode, those of the
    source without EOS; of decoding, those of the target with EOS. Padding is never counted.
    """

    model: str
    phase: str
    precision: str
    unit: Unit
    """Unit of the headline figure; ms are per sentence."""
    params: int
    flops_per_token: float | None
    """FLOPs of training per token as counted; None for other phases."""
    joules: float | None = None
    """Energy of all repeats; None where it cannot be read."""
    peak_memory_bytes: int | None = None
    """Peak on a GPU of this model alone; None on a processor (older results: of the process)."""

    @property
    def name(self) -> str:
        """Name that identifies it among the measurements of a benchmark."""
        return f"{self.model} {self.phase} {self.precision}"

    def headline(self, seconds: float) -> float:
        """Compute the figure in ``unit`` of a repeat that took ``seconds``."""
        if self.unit == "ms":
            return 1e3 * seconds / self.sentences
        return (self.tokens if self.unit == "tokens/s" else self.sentences) / seconds

    def with_repeats(self, repeats: Sequence[TimedRepeat]) -> "Measurement":
        """Return a copy with the times, energy and memory of ``repeats``."""
        joules = [repeat.joules for repeat in repeats if repeat.joules is not None]
        peaks = [repeat.peak_memory_bytes for repeat in repeats if repeat.peak_memory_bytes is not None]
        return replace(
            self,
            seconds=[repeat.seconds for repeat in repeats],
            cpu_shares=[repeat.cpu_share for repeat in repeats],
            joules=sum(joules) if len(joules) == len(repeats) else None,
            peak_memory_bytes=max(peaks, default=None),
        )

    def cells(self, mfu: float | None) -> dict[str, str]:
        """Make a row of a table, by heading; ``mfu`` is the model FLOPs utilisation."""
        figures = sorted(map(self.headline, self.seconds))
        tokens = self.tokens * len(figures)
        peak = self.peak_memory_bytes
        return {
            "model": self.model,
            "phase": self.phase,
            "precision": self.precision,
            "median": figure(self.headline(statistics.median(self.seconds))),
            "min-max": f"{figure(figures[0])}-{figure(figures[-1])}",
            "unit": self.unit,
            "tokens/s": figure(self.tokens_per_s),
            "repeats": str(len(figures)),
            "CPU share": NONE if self.cpu_share is None else describe_share(self.cpu_share),
            "tokens": f"{self.tokens:,}",
            "MFU": NONE if mfu is None else f"{mfu:.0%}",
            "params (M)": f"{self.params / 1e6:.2f}",
            "peak memory (GB)": NONE if peak is None else f"{peak / 1e9:.2f}",
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
