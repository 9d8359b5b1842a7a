"""The log of a training run, a JSON object a line, which can be taken back to an earlier update."""

import json
from pathlib import Path
from typing import Any

from compare.checkpoint import remove
from data.files import write_atomically


class MetricsLog:
    """Lines of metrics.jsonl, each with its "kind" and "update"."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: dict[str, Any]) -> None:
        """Write one line, whole or, where the process dies, cut off."""
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def clear(self) -> None:
        """Forget every line."""
        remove(self.path)

    def rewind(self, update: int) -> None:
        """Keep what training wrote up to ``update``; what comes after is written again."""
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        whole = [(line, json.loads(line)) for line in lines if line.endswith("\n")]
        kept = [
            line for line, found in whole if found["update"] <= update and found["kind"] in ("train", "valid")
        ]
        write_atomically(self.path, "".join(kept))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; a last line cut off by the end of its process is left out."""
    lines = path.read_bytes().splitlines()
    metrics: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            metrics.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise ValueError(f"{path}, line {number}: not a JSON object") from None
    return metrics
