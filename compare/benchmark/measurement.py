"""Measurements of a benchmark: raw repeats, growth with size, regressions, and the report."""

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from compare.results.store import read_record
from compare.results.text import DISTURBED, describe_share, format_number, table_text
from compare.system.measure import Speed, TimedRepeat, peak_flops

# One measurement of a benchmark: its raw repeats, and the work that was timed.


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
    """Peak on a GPU of this model alone; None on a processor."""

    @property
    def name(self) -> str:
        """Name that identifies it among the measurements of a benchmark."""
        return f"{self.model} {self.phase} {self.precision}"

    @property
    def work(self) -> tuple[int, float | None, int, int]:
        """What was timed; it depends on model size, data and vocabulary."""
        return self.params, self.flops_per_token, self.sentences, self.tokens

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


def _table_text(rows: Sequence[Mapping[str, str]], width: int | None) -> str:
    """Format cells by heading as ``table_text``, without the columns that are empty in every row."""
    headings = [heading for heading in rows[0] if any(row[heading] != NONE for row in rows)]
    cells = [{heading: row[heading] for heading in headings} for row in rows]
    return table_text(cells, WORDS, width) + "\n"


# Growth of time along an axis: raw repeats, fitted exponent and table.


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

    def render(self, width: int | None = None) -> str:
        """Render one table per axis; see ``table_text``."""
        axes = dict.fromkeys(each.axis for each in self.growths)
        tables = [_table(axis, [each for each in self.growths if each.axis == axis], width) for axis in axes]
        facts = ", ".join(f"{name} {value}" for name, value in (self.machine | self.versions).items())
        return "\n".join(tables) + f"\n- forward and backward pass, {self.precision}; {facts}\n"


def _table(axis: Axis, growths: Sequence[Growth], width: int | None) -> str:
    """Render the growth of all models along one axis."""
    rows = []
    for each in growths:
        sizes = zip(each.sizes, each.medians, strict=True)
        cells = {f"{axis} {size:,}": figure(1e3 * median) for size, median in sizes}
        rows.append({"model": each.model, **cells, "exponent": f"{each.exponent:.2f}"})
    fixed = ", ".join(f"{name} {size:,}" for name, size in FIXED_SIZES.items() if name != axis)
    return f"{_table_text(rows, width)}\n- ms with {fixed}; time grows as {axis}^exponent\n"


# Comparison with an earlier result: changes of speed beyond noise.


Verdict = Literal["faster", "slower", "within noise", "one repeat", "other work", "new"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """Change of one measurement since an earlier result."""

    row: str
    ratio: float | None
    """Median speed now over median speed then, above 1 is faster; None if not comparable."""
    verdict: Verdict


def find_changes(now: Sequence[Measurement], earlier: Sequence[Measurement]) -> list[Change]:
    """Compare each measurement with the earlier one of the same name; with the last of several."""
    by_name = {row.name: row for row in earlier}
    return [_change(row, by_name.get(row.name)) for row in now]


def _change(now: Measurement, then: Measurement | None) -> Change:
    """Decide whether the time of the same work changed by more than its spread over the repeats."""
    if then is None:
        return Change(row=now.name, ratio=None, verdict="new")
    if now.work != then.work:
        return Change(row=now.name, ratio=None, verdict="other work")
    verdict: Verdict = "within noise"
    if min(len(now.seconds), len(then.seconds)) < 2:
        verdict = "one repeat"  # has no spread
    elif max(now.seconds) < min(then.seconds):
        verdict = "faster"
    elif min(now.seconds) > max(then.seconds):
        verdict = "slower"
    ratio = statistics.median(then.seconds) / statistics.median(now.seconds)
    return Change(row=now.name, ratio=ratio, verdict=verdict)


def render_changes(changes: Sequence[Change], width: int | None = None) -> str:
    """Render the changes as a table; see ``table_text``."""
    cells = [
        {
            "row": change.row,
            "speed to then": NONE if change.ratio is None else figure(change.ratio),
            "verdict": change.verdict,
        }
        for change in changes
    ]
    note = "- faster, slower: the repeats of now and then, min to max, do not overlap"
    return f"{_table_text(cells, width)}\n{note}\n"


# Result of a benchmark with its conditions, as JSON and as a table; reading of earlier results.


NOTES = (
    "median and spread of the repeats, which the models do in turn after one to warm up",
    "tokens: of a repeat; train counts the source's without and the target's with end of sentence, encode "
    "the source's, decoding the target's; padding never",
    "forced: every hypothesis has exactly `steps` tokens, whatever the weights",
    "peak memory: on a GPU, of each model alone",
    "CPU share: share of the processor that the timing really had, the median over its repeats; disturbed "
    f"below {DISTURBED:.0%}",
    "MFU: FLOPs of training per token (3 times those of the forward pass's matrix products) x tokens/s over "
    "the data sheet's peak of that precision without sparsity; none for processors",
)


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """Measurements of a benchmark, their conditions, and changes since an earlier result."""

    rows: list[Measurement]
    changes: list[Change]
    """Since an earlier result; empty if none was given."""
    conditions: dict[str, Any]
    versions: dict[str, str]

    def mfu(self, row: Measurement) -> float | None:
        """Compute model FLOPs utilisation; None if the FLOPs are not counted or the peak is unknown."""
        peak = peak_flops(self.conditions["device"], row.precision)
        if row.flops_per_token is None or peak is None:
            return None
        return row.tokens_per_s * row.flops_per_token / peak

    def to_json(self) -> str:
        """Serialise to JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    def render(self, width: int | None = None) -> str:
        """Render a table of the measurements (see ``table_text``), notes, conditions and changes."""
        facts = {**self.conditions, **self.versions}
        settings = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
        notes = "".join(f"- {note}\n" for note in (*NOTES, settings))
        table = _table_text([row.cells(self.mfu(row)) for row in self.rows], width)
        return f"{table}\n{notes}" + (f"\n{render_changes(self.changes, width)}" if self.changes else "")


def read_benchmark(path: str | Path) -> BenchmarkResult:
    """Read a file written by ``BenchmarkResult.to_json``.

    Args:
        path: the file.

    Returns:
        The result; its ``rows`` can be the ``earlier`` measurements of ``run_benchmark``.

    Raises:
        ValueError: the file holds no such result.
    """
    return read_record(Path(path), BenchmarkResult, "this is no result of `attnbench bench`")


def read_earlier(path: Path, conditions: Mapping[str, Any]) -> list[Measurement]:
    """Read the measurements of an earlier result, or of all results in a folder in order of their names.

    Raises:
        ValueError: there is none, or one was measured under other ``conditions``; versions may differ.
    """
    paths = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not paths:
        raise ValueError(f"--against {path}: this folder has no result files (*.json)")
    rows: list[Measurement] = []
    for file in paths:
        result = read_benchmark(file)
        for name in {**conditions, **result.conditions}:
            then, now = result.conditions.get(name), conditions.get(name)
            if then != now:
                raise ValueError(f"--against {file}: {name} was {then}, but now it is {now}: not comparable")
        rows += result.rows
    return rows
