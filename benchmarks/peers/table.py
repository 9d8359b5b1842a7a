"""Render a benchmark report as a Markdown table; as a program, write the peers.md of a folder."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAD = (
    *("model", "toolkit", "params (M)", "MFLOP/token", "a second", "min-max", "ours / theirs"),
    *("share of products", "peak GB"),
)


def render(report: dict[str, Any]) -> str:
    """Render one row per toolkit, without empty columns; the ratio is that of the medians, with its range.

    The share of the speed of a large product is that of the operations that our formulas count.
    """
    # Earlier reports measured the product by the slower of two libraries.
    peak = max(report["yardstick_flops_per_s"]) if "gflops" in report else None
    rows = [HEAD, *(row for race in report["races"] for row in _rows(race, peak))]
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    head, *rows = zip(*columns, strict=True)
    lines = [
        f"| {' | '.join(cells)} |" for cells in (head, ("---", "---", *["---:"] * (len(head) - 2)), *rows)
    ]
    what = {"train": "training", "decode": "decoding of 20 forced steps, batch 64", "ct2": "translating"}
    peaks = " and ".join(f"{value / 1e9:,.0f}" for value in report["yardstick_flops_per_s"])
    rates = [f"{rate:,.0f} in {name}" for name, rate in report.get("gflops", {}).items()]
    settings = [f"{name}={value}" for name, value in report.get("users_settings", {}).items()]
    notes = [
        f"{what[report['phase']]}, {report['precision']}, median of {report['repeats']} turns of "
        f"{report['updates']} batches; {report['device']}, {report['threads']} threads; "
        f"peak {peaks} GFLOP/s before and after"
        + (f"; products {' and '.join(rates)}" if rates else "")
        + (f"; the user's settings {' '.join(settings)}" if settings else ""),
        *_notes(report),
    ]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)])


def title(race: dict[str, Any]) -> str:
    """Return model and beam size of one measurement or task."""
    return str(race["model"]) + {0: "", 1: ", greedy"}.get(race["beam"], f", beam {race['beam']}")


def _rows(race: dict[str, Any], peak: float | None) -> list[tuple[str, ...]]:
    ours = next((row for row in race["racers"] if row["name"] == "attnbench" and "seconds" in row), None)
    rows = []
    for row in race["racers"]:
        if "seconds" not in row:
            rows.append((title(race), row["name"], *["-"] * 5, "-" if peak else "", "-"))
            continue
        rate, low, high = _spread([race["amount"] / seconds for seconds in row["seconds"]])
        flops = race["mflop_per_token"]
        rows.append(
            (
                title(race),
                row["name"],
                f"{row['params'] / 1e6:.2f}",
                f"{flops:.1f}" if flops and row is ours else "",
                f"{rate:,.1f} {race['unit']}",
                f"{low:,.1f}-{high:,.1f}",
                "" if ours is None or row is ours else _ratio(ours["seconds"], row["seconds"]),
                f"{1e6 * flops * rate / peak:.0%}" if flops and peak else "",
                f"{row['last']['peak_memory_bytes'] / 1e9:.2f}",
            )
        )
    return rows


def _ratio(ours: list[float], theirs: list[float]) -> str:
    """Format our speed divided by theirs: of the medians, and in the worst and best turn."""
    _, low, high = _spread([their / our for our, their in zip(ours, theirs, strict=True)])
    return f"{_spread(theirs)[0] / _spread(ours)[0]:.2f} ({low:.2f}-{high:.2f})"


def _notes(report: dict[str, Any]) -> list[str]:
    """List the notes on each toolkit's models, without repeats."""
    notes: dict[str, None] = {}
    for race in report["races"]:
        for row in race["racers"]:
            if "unsupported" in row:
                notes[f"{row['name']}, {race['model']}: takes no part: {row['unsupported']}"] = None
                continue
            versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
            notes[f"{row['name']}, {race['model']}: {row['about']} ({versions})"] = None
            if row["name"] != "attnbench" and "same_translations" in row:
                notes[
                    f"{row['name']}, beam {race['beam']}: {row['same_translations']} of {race['amount']} "
                    "translations are the same as ours"
                ] = None
    return list(notes)


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and greatest."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return median, ordered[0], ordered[-1]


def render_all(folder: Path) -> str:
    """Render all reports peers-*.json of a folder, one below the other."""
    parts = [
        "# Benchmark against other toolkits\n\nMade by `benchmarks/peers/table.py` from the JSON files here, "
        "which hold the raw repeats; benchmarks/peers/README.md describes the method.\n"
    ]
    for path in sorted(folder.glob("peers-*.json")):
        parts.append(f"## {path.stem}\n\n{render(json.loads(path.read_bytes()))}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "peers.md").write_text(render_all(folder), encoding="utf-8")
