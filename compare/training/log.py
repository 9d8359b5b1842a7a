"""The metrics log of a training run, metrics.jsonl: one JSON object per line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.files import append_whole, sync_file, write_atomically

METRICS_FILE = "metrics.jsonl"
KINDS = ("train", "valid", "average", "ema", "final")


class MetricsLog:
    """The file metrics.jsonl; every line has a "kind" and an "update".

    ``report`` is called with each line.
    """

    def __init__(self, path: Path, report: Callable[[dict[str, Any]], None] = lambda line: None) -> None:
        self.path, self.report = path, report

    def append(self, line: dict[str, Any]) -> None:
        """Append one line; only the death of the process can cut it short."""
        append_whole(self.path, _encode_line(line))
        self.report(line)

    def sync(self) -> None:
        """Make the lines durable; a state that relies on them may be saved afterwards."""
        if self.path.exists():
            sync_file(self.path)

    def rewind(self, update: int) -> int:
        """Delete all lines but the "train" and "valid" lines up to ``update``; 0: the whole file.

        Returns the number of updates that the remaining lines cover.
        """
        if not update:
            self.path.unlink(missing_ok=True)
            return 0
        lines = read_metrics(self.path) if self.path.exists() else []
        lines = [line for line in lines if line["update"] <= update and line["kind"] in ("train", "valid")]
        write_atomically(self.path, "".join(map(_encode_line, lines)))
        return sum(line["updates"] for line in lines if line["kind"] == "train")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a metrics.jsonl, without a last line cut short; a ValueError names a damaged one."""
    lines = path.read_bytes().splitlines()
    metrics: list[dict[str, Any]] = []
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
        except ValueError:
            if number == len(lines):
                break
            line = None
        if not isinstance(line, dict) or line.get("kind") not in KINDS:
            raise ValueError(f"{path}, line {number}: not a JSON object of metrics")
        metrics.append(line)
    return metrics


def _encode_line(line: dict[str, Any]) -> str:
    return json.dumps(line) + "\n"
