"""The log of a training run, a JSON object a line, which can be taken back to an earlier update."""

import json
from pathlib import Path
from typing import Any

from data.text.files import append_whole, parse_json, write_atomically


class MetricsLog:
    """Lines of metrics.jsonl, each with its "kind" and "update"."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: dict[str, Any]) -> None:
        """Write one line, whole or, where the process dies, cut off."""
        append_whole(self.path, _text(line))

    def clear(self) -> None:
        """Forget every line."""
        self.path.unlink(missing_ok=True)

    def rewind(self, update: int) -> None:
        """Keep what training wrote up to ``update``; what comes after is written again."""
        lines = read_metrics(self.path) if self.path.exists() else []
        kept = [line for line in lines if line["update"] <= update and line["kind"] in ("train", "valid")]
        write_atomically(self.path, "".join(map(_text, kept)))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; a last line cut off by the end of its process is left out.

    Raises:
        ValueError: another line is no object with "kind" and "update".
    """
    lines = path.read_bytes().splitlines()
    metrics: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            metrics.append(_checked(parse_json(line)))
        except ValueError:
            if number < len(lines):
                raise ValueError(f"{path}, line {number}: not a JSON object of metrics") from None
    return metrics


def _text(line: dict[str, Any]) -> str:
    return json.dumps(line) + "\n"


def _checked(line: Any) -> dict[str, Any]:
    """``line``, if it says of what kind and of which update it is."""
    if not (isinstance(line, dict) and isinstance(line.get("kind"), str)):
        raise ValueError
    if type(line.get("update")) is not int:
        raise ValueError
    return line
