"""The metrics log of a training run, metrics.jsonl: one JSON object per line."""

import json
from collections.abc import Callable, Iterable, Mapping
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from data.files import append_whole, sync_file, write_atomically

METRICS_FILE = "metrics.jsonl"
PICTURE_FILE = "validation.svg"
KINDS = ("train", "valid", "average", "ema", "final")


class MetricsLog:
    """The file metrics.jsonl; every line has a "kind" and an "update".

    ``report`` is called with each line.
    """

    def __init__(self, path: Path, report: Callable[[dict[str, Any]], None] = lambda line: None) -> None:
        self.path, self.report = path, report

    def append(self, line: dict[str, Any]) -> None:
        """Append one line; only the death of the process can cut it short. A validation is drawn, too."""
        append_whole(self.path, _encode_line(line))
        if line["kind"] == "valid":
            picture = draw_validations(read_metrics(self.path))
            write_atomically(self.path.with_name(PICTURE_FILE), picture)
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
    """Read the lines of a metrics.jsonl, without an incomplete last line; ValueError names a damaged one."""
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


SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="-60 -30 680 360" font-family="sans-serif" font-size="14">
<rect x="-60" y="-30" width="680" height="360" fill="white"/>
<path d="M0 0V300H600" fill="none" stroke="black"/>
<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="2"/>
<g text-anchor="end"><text x="-6" y="5">{top}</text><text x="-6" y="300">0</text>
<text x="600" y="320">update {last:,}</text></g>
<text x="0" y="-12">{title}</text>
</svg>
"""


def draw_validations(lines: Iterable[Mapping[str, Any]]) -> str:
    """Draw BLEU of the validations over updates as SVG; for language models the loss."""
    validations = [line for line in lines if line["kind"] == "valid"]
    name, heading = ("loss", "loss") if validations[-1]["bleu"] is None else ("bleu", "BLEU")
    values = {line["update"]: line[name] for line in validations if isfinite(line[name])}
    top, last = max(1, ceil(max(values.values(), default=1))), validations[-1]["update"]
    return SVG.format(
        points=" ".join(f"{600 * x / last:.1f},{300 * (1 - y / top):.1f}" for x, y in values.items()),
        top=top,
        last=last,
        title=f"validation {heading}: {validations[-1][name]:.2f}",
    )


def _encode_line(line: dict[str, Any]) -> str:
    return json.dumps(line) + "\n"
