"""What a benchmark found, and where and how it was measured; written as JSON and as a table."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compare.benchmark.measurement import Measurement, markdown
from compare.benchmark.regressions import Change, find_changes, render_changes
from data.text.files import parse_json

NOTES = (
    "median and spread of the repeats, which the models do in turn after one to warm up",
    "tokens: of a repeat; train counts the source's without and the target's with end of sentence, encode "
    "the source's, decoding the target's; padding never",
    "forced: every hypothesis has exactly `steps` tokens, whatever the weights",
    "peak memory: of all models together",
)


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """The rows of a benchmark, and what they hold for."""

    rows: list[Measurement]
    changes: list[Change]
    """Since an earlier result; none if none was given."""
    conditions: dict[str, Any]
    versions: dict[str, str]
    yardstick_flops_per_s: float
    """What the share of a row of training is taken of."""
    yardstick: str
    """What that is, in words."""

    def share(self, row: Measurement) -> float | None:
        """Model FLOPs a second over the yardstick's; None where a phase's are not counted."""
        if row.flops_per_token is None:
            return None
        return row.tokens_per_s * row.flops_per_token / self.yardstick_flops_per_s

    def to_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    def render(self) -> str:
        """The rows as a Markdown table, what they hold for, and the changes."""
        facts = {**self.conditions, **self.versions}
        settings = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
        notes = "".join(f"- {note}\n" for note in (*NOTES, f"share: {self.yardstick}", settings))
        table = markdown([row.cells(self.share(row)) for row in self.rows])
        return f"{table}\n{notes}" + (f"\n{render_changes(self.changes)}" if self.changes else "")


def read_report(path: Path) -> BenchmarkResult:
    """Undo ``BenchmarkResult.to_json``.

    Raises:
        ValueError: the file holds no such report.
    """
    try:
        found = parse_json(path.read_bytes())
        rows = [Measurement(**row) for row in found["rows"]]
        report = BenchmarkResult(
            **{**found, "rows": rows, "changes": [Change(**each) for each in found["changes"]]}
        )
        report.render()  # what cannot be shown or compared is no result
        find_changes(rows, rows)
        return report
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
        raise ValueError(f"{path}: not a result of `attnbench bench`, or of another version") from None


def read_earlier(path: Path, conditions: Mapping[str, Any]) -> list[Measurement]:
    """The rows of an earlier result, or of all in a folder by the order of their names.

    Raises:
        ValueError: there is none, or one was measured under other ``conditions``; versions may differ.
    """
    paths = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not paths:
        raise ValueError(f"--against {path}: this folder has no *.json")
    rows: list[Measurement] = []
    for one in paths:
        report = read_report(one)
        for name in {**conditions, **report.conditions}:
            then, now = report.conditions.get(name), conditions.get(name)
            if then != now:
                raise ValueError(f"--against {one}: {name} was {then}, but now it is {now}: no comparison")
        rows += report.rows
    return rows
