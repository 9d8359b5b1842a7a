"""The table people read: a choice of columns in handy units, and below it what the figures hold for."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from compare.scoring.metrics import METRICS
from compare.scoring.score import HEADLINE

Row = dict[str, Any]
"""One row of a table by column name; what is not known is None."""
CellFormat = Callable[[Row], str]
"""What a column of the table shows of a row."""

UNKNOWN = "–"
WORDS = ("model", "label", "status", "experiment", "matched")
"""Columns of words, set to the left."""


class TextTable(NamedTuple):
    """A table as text, not yet in the signs of any form."""

    headings: list[str]
    lines: list[list[str]]
    """One a row, a cell for each heading."""
    notes: list[str]
    """What the figures hold for, and warnings where they do not compare."""


def layout_table(rows: Sequence[Row], names: Sequence[str] | None = None) -> TextTable:
    """Lay out ``rows``, all columns ``names`` of them or else a readable choice."""
    columns = _readable(rows) if names is None else {name: _plain(name) for name in names}
    if any(row.get("status", "done") != "done" for row in rows):
        columns["status"] = _status
    lines = [[cell(row) for cell in columns.values()] for row in rows]
    return TextTable(list(columns), lines, [*_conditions(rows), *find_warnings(rows)])


def _readable(rows: Sequence[Row]) -> dict[str, CellFormat]:
    """The columns most comparisons need, by heading; further test sets and seeds where there are any."""
    several = [name for name in ("experiment", "seed") if len(_distinct(rows, name)) > 1]
    if all("seeds" in row for row in rows):
        quality = _over_seeds(rows)
        several.append("seeds")
    else:
        quality = {
            "BLEU [95%]": _interval("bleu_ci", ""),
            **{f"BLEU {test} [95%]": _interval("bleu_ci", f"_{test}") for test in _further_tests(rows)},
        }
    matched = {"matched": _matched} if _distinct(rows, "budget") else {}
    return {
        "model": _plain("label"),
        **{name: _plain(name) for name in several},
        "params (M)": _number("params", "{:.2f}", 1e-6),
        **matched,
        **quality,
        **{
            metric.heading: _number(name, f"{{:.{metric.decimals}f}}")
            for name, metric in METRICS.items()
            if name != "bleu" and (name in HEADLINE.metrics or _distinct(rows, name))
        },
        "train tokens/s": _number("train_tokens_per_s", "{:,.0f}"),
        "greedy sent/s": _number("greedy_sentences_per_s", "{:,.1f}"),
        "beam sent/s": _number("beam_sentences_per_s", "{:,.1f}"),
        "latency p50 (ms)": _number("latency_ms_p50", "{:,.1f}"),
        "train (min)": _number("train_s", "{:,.1f}", 1 / 60),
        "updates": _number("updates", "{:,.0f}"),
    }


def _over_seeds(rows: Sequence[Row]) -> dict[str, CellFormat]:
    """BLEU of each test set with its standard deviation, and the three intervals of the first."""
    return {
        "BLEU": _number("bleu", "{:.1f}"),
        "test set [95%]": _ends("bleu_test_set", ""),
        "seeds [95%]": _ends("bleu_seeds", ""),
        "combined [95%]": _ends("bleu_combined", ""),
        **{f"BLEU {test}": _number(f"bleu_{test}", "{:.1f}") for test in _further_tests(rows)},
    }


def _further_tests(rows: Sequence[Row]) -> list[str]:
    """The names of the test sets that have columns of their own, as ``bleu_test_long`` for test_long."""
    prefix = "bleu_signature_"
    return list(
        dict.fromkeys(name.removeprefix(prefix) for row in rows for name in row if name.startswith(prefix))
    )


def _number(name: str, form: str, factor: float = 1) -> CellFormat:
    """A cell that shows column ``name`` times ``factor``, and its standard deviation where there is one."""

    def cell(row: Row) -> str:
        value, spread = row.get(name), row.get(f"{name}_sd")
        if value is None:
            return UNKNOWN
        return form.format(value * factor) + (f" ± {form.format(spread * factor)}" if spread else "")

    return cell


def _interval(name: str, test: str) -> CellFormat:
    """A cell that shows BLEU and the ends of its interval: 38.1 [36.6, 39.7]."""
    ends = _ends(name, test)

    def cell(row: Row) -> str:
        bleu = row.get(f"bleu{test}")
        if bleu is None:
            return UNKNOWN
        return f"{bleu:.1f}" if ends(row) == UNKNOWN else f"{bleu:.1f} {ends(row)}"

    return cell


def _ends(name: str, test: str) -> CellFormat:
    """A cell that shows the ends of an interval: [36.6, 39.7]."""

    def cell(row: Row) -> str:
        low, high = (row.get(f"{name}_{end}{test}") for end in ("low", "high"))
        return UNKNOWN if low is None or high is None else f"[{low:.1f}, {high:.1f}]"

    return cell


def _matched(row: Row) -> str:
    """The cell that says what was made equal, and how closely: "params +0.4%"."""
    off = row.get("budget_off")
    return UNKNOWN if row.get("budget") is None else f"{row['budget']} {off:+.1%}"


def _plain(name: str) -> CellFormat:
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


def _distinct(rows: Iterable[Row], name: str, length: int | None = None) -> list[str]:
    """The values of column ``name``, each once, in the order of the rows; hashes cut to ``length``."""
    return list(dict.fromkeys(str(row[name])[:length] for row in rows if row.get(name) is not None))


def _conditions(rows: Sequence[Row]) -> list[str]:
    """One line each: how it was scored, on what it ran, what it was trained on."""
    lines = {
        **{
            METRICS[name].heading: list(
                dict.fromkeys(value for column in columns for value in _distinct(rows, column))
            )
            for name, columns in signature_columns(rows[0]).items()
        },
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


def signature_columns(columns: Iterable[str]) -> dict[str, list[str]]:
    """List the signature columns of all test sets by metric, for metrics that record one for the first."""
    columns = list(columns)
    return {
        name: [column for column in columns if column.startswith(f"{name}_signature")]
        for name in METRICS
        if f"{name}_signature" in columns
    }


def find_warnings(rows: Sequence[Row]) -> list[str]:
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
