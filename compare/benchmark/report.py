"""Result of a benchmark with its conditions, as JSON and as a table; reading of earlier results."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compare.benchmark.measurement import Measurement, markdown
from compare.benchmark.regressions import Change, find_changes, render_changes
from compare.system.cpu_share import DISTURBED
from compare.system.peak_flops import peak_flops
from data.text.files import parse_json, read_bytes

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
DROPPED = ("yardstick", "yardstick_flops_per_s")
"""Keys of earlier versions, which measured the peak."""
MAX_BYTES = 10_000_000
"""Size that no result of a benchmark reaches."""


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

    def render(self) -> str:
        """Render a Markdown table of the measurements, notes, conditions and changes."""
        facts = {**self.conditions, **self.versions}
        settings = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
        notes = "".join(f"- {note}\n" for note in (*NOTES, settings))
        table = markdown([row.cells(self.mfu(row)) for row in self.rows])
        return f"{table}\n{notes}" + (f"\n{render_changes(self.changes)}" if self.changes else "")


def read_benchmark(path: str | Path) -> BenchmarkResult:
    """Read a file written by ``BenchmarkResult.to_json``.

    Args:
        path: the file.

    Returns:
        The result; its ``rows`` can be the ``earlier`` measurements of ``run_benchmark``.

    Raises:
        ValueError: the file holds no such result.
    """
    path = Path(path)
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
        rows = [Measurement(**row) for row in content["rows"]]
        changes = [Change(**change) for change in content["changes"]]
        kept = {name: value for name, value in content.items() if name not in DROPPED}
        result = BenchmarkResult(**{**kept, "rows": rows, "changes": changes})
        result.render()  # fails on values of the wrong type
        find_changes(rows, rows)
        return result
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
        raise ValueError(f"{path}: not a result of `attnbench bench`, or of another version") from None


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
