"""The table people read: a choice of columns in handy units, and below it what the figures hold for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

from compare.results import Result

Row = dict[str, Any]
"""One row of a table by column name; what is not known is None."""
Cell = Callable[[Row], str]
"""What a column of the table shows of a row."""

UNKNOWN = "–"
FIELDS = {item.name for item in fields(Result)}


def markdown(rows: Sequence[Row], names: Sequence[str] | None = None) -> str:
    """Render ``rows``, all columns ``names`` of them or else a readable choice, and notes below them."""
    import pandas as pd

    columns = _readable(rows) if names is None else {name: _plain(name) for name in names}
    if any(row.get("status") != "done" for row in rows):
        columns["status"] = _status
    cells = [[_escape(cell(row)) for cell in columns.values()] for row in rows]
    table = pd.DataFrame(cells, columns=[_escape(name) for name in columns]).to_markdown(
        index=False,
        tablefmt="pipe",
        disable_numparse=True,  # or tabulate would round 38.10 to 38.1
        colalign=[
            "left" if name in ("model", "label", "status", "experiment") else "right" for name in columns
        ],
    )
    notes = "".join(f"- {note}\n" for note in [*_conditions(rows), *_warnings(rows)])
    return f"{table}\n\n{notes}" if notes else f"{table}\n"


def _readable(rows: Sequence[Row]) -> dict[str, Cell]:
    """The columns most comparisons need, by heading; further test sets and seeds where there are any."""
    several = [name for name in ("experiment", "seed") if len(_distinct(rows, name)) > 1]
    return {
        "model": _plain("label"),
        **{name: _plain(name) for name in several},
        "params (M)": _number("params", "{:.2f}", 1e-6),
        "BLEU [95%]": _interval(""),
        **{f"BLEU {test} [95%]": _interval(f"_{test}") for test in _further_tests(rows)},
        "chrF": _number("chrf", "{:.1f}"),
        "train tokens/s": _number("train_tokens_per_s", "{:,.0f}"),
        "greedy sent/s": _number("greedy_sentences_per_s", "{:,.1f}"),
        "beam sent/s": _number("beam_sentences_per_s", "{:,.1f}"),
        "latency p50 (ms)": _number("latency_ms_p50", "{:,.1f}"),
        "train (min)": _number("train_s", "{:,.1f}", 1 / 60),
        "updates": _number("updates", "{:,}"),
    }


def _further_tests(rows: Sequence[Row]) -> list[str]:
    """The names of the test sets that have columns of their own, as ``bleu_test_long`` for test_long."""
    prefix = "bleu_signature_"
    return list(
        dict.fromkeys(name.removeprefix(prefix) for row in rows for name in row if name.startswith(prefix))
    )


def _number(name: str, form: str, factor: float = 1) -> Cell:
    """A cell that shows column ``name`` times ``factor``."""
    return lambda row: UNKNOWN if row.get(name) is None else form.format(row[name] * factor)


def _interval(test: str) -> Cell:
    """A cell that shows BLEU and the ends of its interval: 38.1 [36.6, 39.7]."""

    def cell(row: Row) -> str:
        bleu, low, high = (row.get(f"{name}{test}") for name in ("bleu", "bleu_ci_low", "bleu_ci_high"))
        if bleu is None:
            return UNKNOWN
        return f"{bleu:.1f}" if low is None or high is None else f"{bleu:.1f} [{low:.1f}, {high:.1f}]"

    return cell


def _plain(name: str) -> Cell:
    """A cell that shows whatever stands in column ``name``."""

    def cell(row: Row) -> str:
        value = row.get(name)
        if value is None:
            return UNKNOWN
        return f"{value:,.6g}" if isinstance(value, float) else str(value)

    return cell


def _status(row: Row) -> str:
    """The cell that says how a run ended: "failed: loss became NaN at update 37"."""
    return f"{row['status']}: {row['reason']}" if row.get("reason") else str(row.get("status"))


def _escape(text: str) -> str:
    """``text`` made fit for a cell, which ends at a | or at the end of the line."""
    return " ".join(text.replace("|", r"\|").split())


def _distinct(rows: Iterable[Row], name: str, length: int | None = None) -> list[str]:
    """The values of column ``name``, each once, in the order of the rows; hashes cut to ``length``."""
    return list(dict.fromkeys(str(row[name])[:length] for row in rows if row.get(name) is not None))


def _conditions(rows: Sequence[Row]) -> list[str]:
    """One line each: how it was scored, on what it ran, what it was trained on."""
    signatures = [name for name in rows[0] if name.startswith("bleu_signature")]
    scored = dict.fromkeys(value for name in signatures for value in _distinct(rows, name))
    lines = {
        "BLEU": [", ".join(scored)],
        "Hardware": [
            *_distinct(rows, "device"),
            *(f"torch {version}" for version in _distinct(rows, "torch")),
            *(f"{threads} threads" for threads in _distinct(rows, "threads")),
            *_distinct(rows, "precision"),
        ],
        "Search": [f"beam {size}" for size in _distinct(rows, "beam")],
        "Data": [
            *_distinct(rows, "data_hash", 12),
            *(f"batches {value}" for value in _distinct(rows, "batch_hash", 12)),
            *(f"code {version}" for version in _distinct(rows, "code_version")),
        ],
    }
    return [f"{name}: {', '.join(values)}" for name, values in lines.items() if any(values)]


def _warnings(rows: Sequence[Row]) -> list[str]:
    """One line for each reason why these rows do not compare."""
    lines = []
    if len(found := _distinct(rows, "data_hash", 12)) > 1:
        lines.append(f"Warning: these rows were trained or tested on different data ({', '.join(found)})")
    for seed in _distinct(rows, "seed"):
        same = [row for row in rows if str(row.get("seed")) == seed]
        if len(found := _distinct(same, "batch_hash", 12)) > 1:
            lines.append(f"Warning: rows of seed {seed} saw different batches ({', '.join(found)})")
    settings = ("device", "torch", "threads", "precision")
    if several := [name for name in settings if len(_distinct(rows, name)) > 1]:
        lines.append(f"Warning: {', '.join(several)} differ between rows, so their speeds do not compare")
    return lines
