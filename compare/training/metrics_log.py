"""Metrics log of a training run: one JSON object per line."""

import json
from pathlib import Path
from typing import Any

from data.text.files import append_whole, parse_json, sync_file, write_atomically


class MetricsLog:
    """The file metrics.jsonl; every line has a "kind" and an "update"."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: dict[str, Any]) -> None:
        """Append one line; only the death of the process can cut it short."""
        append_whole(self.path, _encode(line))

    def sync(self) -> None:
        """Make the lines durable; a state that relies on them may be saved afterwards."""
        if self.path.exists():
            sync_file(self.path)

    def clear(self) -> None:
        """Delete all lines."""
        self.path.unlink(missing_ok=True)

    def rewind(self, update: int) -> int:
        """Delete all lines but the "train" and "valid" lines up to ``update``.

        Returns:
            The number of updates that the remaining lines cover.
        """
        lines = read_metrics(self.path) if self.path.exists() else []
        lines = [line for line in lines if line["update"] <= update and line["kind"] in ("train", "valid")]
        write_atomically(self.path, "".join(map(_encode, lines)))
        return sum(line["updates"] for line in lines if line["kind"] == "train")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a metrics.jsonl, without a last line cut short by the death of the process.

    Raises:
        ValueError: another line is not an object with "kind" and "update".
    """
    lines = path.read_bytes().splitlines()
    metrics: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            metrics.append(_validate(parse_json(line)))
        except ValueError:
            if number < len(lines):
                raise ValueError(f"{path}, line {number}: not a JSON object of metrics") from None
    return metrics


def _encode(line: dict[str, Any]) -> str:
    return json.dumps(line) + "\n"


def _validate(line: Any) -> dict[str, Any]:
    """Return ``line`` if it is an object with "kind" and "update"; else raise ValueError."""
    if not (isinstance(line, dict) and isinstance(line.get("kind"), str)):
        raise ValueError
    if type(line.get("update")) is not int:
        raise ValueError
    if line["kind"] == "train" and type(line.get("updates")) is not int:
        raise ValueError
    return line
