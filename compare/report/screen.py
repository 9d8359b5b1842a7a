"""What a terminal shows of an experiment: columns that fit its width, outcome, warnings, the next step."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from compare.analysis.tables import Row
from compare.config.sections import EXTERNAL
from compare.report.conditions import (
    describe_presets,
    distinct,
    find_warnings,
    list_left_out,
    name_models,
)
from compare.report.table import default_shape, find_summary, frame_rows, load_table
from compare.results.columns import (
    COLUMNS,
    PRIMARY,
    are_language_models,
    bleu_and_interval_column,
    bleu_interval_column,
    further_tests,
    score_column,
)
from compare.results.store import has_means, load_results, read_results, write_protection
from compare.results.table import UNKNOWN, Column
from compare.results.text import describe_seeds, table_text
from compare.system.plugins import plugin_problem

WIDE = 160
"""Width from which on further columns are shown."""


def show_experiment(
    folder: Path, *, width: int, only: Collection[str] = (), data_root: str = "", closing: bool = False
) -> str:
    """Format the results of an experiment for a terminal: means where models have several seeds.

    Args:
        folder: of the experiment.
        width: of the terminal.
        only: labels of the models to show; by default all.
        data_root: the folder of the corpus; empty: that of the config.
        closing: whether the next commands follow below.
    """
    results = read_results(folder)
    shown = [result.flat() for result in results if not only or result.label in only]
    problems = [problem for result in results if (problem := plugin_problem(folder / result.run))]
    if problems or not any(result.status == "done" for result in results):
        return render_screen(shown, shown, width=width, notes=[f"no means: {each}" for each in problems[:1]])
    summary = find_summary(folder, results, data_root)
    rows = [row for row in summary.means if not only or row["label"] in only]
    outcome = [] if only and set(only) != {result.label for result in results} else summary.outcome
    path, has_file = quote(str(folder)), (folder / "table.md").is_file()
    whole = f"{folder}/table.md" if has_file else f"attnbench table {path} --columns wide"
    where = f"more columns, and conditions: {whole}"
    out = " --out report.html" if write_protection(folder) else ""
    return render_screen(
        rows if has_means(results) else shown,
        shown,
        width=width,
        notes=outcome,
        last=where if closing else f"{where}   next: attnbench report {path}{out}",
    )


def show_experiments(folders: Sequence[Path], *, width: int, data_root: str = "") -> str:
    """Show several experiments, or single runs, in one table; arguments as for ``show_experiment``."""
    shape = default_shape(folders)
    rows = frame_rows(load_table(folders, shape, data_root=data_root))
    runs = frame_rows(load_results(*folders))
    whole = f"attnbench table {' '.join(quote(str(folder)) for folder in folders)} --columns wide"
    return render_screen(rows, runs, width=width, last=f"more columns, and conditions: {whole}")


def render_screen(
    rows: Sequence[Row], runs: Sequence[Row], *, width: int, notes: Sequence[str] = (), last: str = ""
) -> str:
    """Format results for a terminal: the outcome, the table, sorted by BLEU, and what to know of it.

    Args:
        rows: one row per run, or means over seeds.
        runs: the runs that they stand for.
        width: of the terminal.
        notes: lines above the table, such as the outcome.
        last: the last line.
    """
    ended = [run for run in runs if run["status"] == "done"]
    ordered = sorted(rows, key=lambda row: -(row.get(PRIMARY) or -1.0))
    if are_language_models(ended or rows):
        ordered = sorted(rows, key=lambda row: row.get("perplexity") or float("inf"))
    columns = _columns(ordered, width)
    cells = [{column.heading: column.text(row) for column in columns} for row in ordered]
    table = table_text(cells, {column.heading for column in columns if column.left}, width)
    warnings = [*list_left_out(runs), *find_warnings(ended)]
    presets = [f"Presets: {', '.join(found)}."] if (found := describe_presets(ended)) else []
    lines = [*(f"! {each.removeprefix('Warning: ')}" for each in warnings), *presets, _shared(ended), last]
    above, below = (
        [textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False) for line in part if line]
        for part in (notes, lines)
    )
    return "\n".join((*above, *[""] * bool(above), table, "", *below)) + "\n"


def _columns(rows: Sequence[Row], width: int) -> list[Column]:
    """List the columns in the order of their importance."""
    if "seeds" in rows[0]:
        primary = [score_column(PRIMARY), bleu_interval_column("combined")]
    else:
        primary = [COLUMNS["seed"], bleu_and_interval_column()]
        primary = primary[len({row.get("seed") for row in rows}) == 1 :]
    columns = [COLUMNS["label"], *primary]
    if len({row.get("experiment") for row in rows}) > 1:
        columns.insert(1, COLUMNS["experiment"])
    if any(row.get("status", "done") != "done" for row in rows):
        columns.insert(1, COLUMNS["status"])
    columns += [replace(score_column(PRIMARY, test), title=test) for test in further_tests(rows[0])]
    columns += [COLUMNS["perplexity"] if are_language_models(rows) else _bare(score_column("chrf"))]
    columns += [
        _bare(COLUMNS["train_tokens_per_s"], "train tok/s"),
        _bare(COLUMNS["beam_sentences_per_s"], "sent/s"),
        _bare(COLUMNS["train_s"], "min"),
        _bare(COLUMNS["params"], "params", "M"),
    ]
    if width >= WIDE:
        columns += [score_column("ter"), _bare(COLUMNS["length_ratio"], "length ratio")]
        columns += [_bare(COLUMNS["latency_ms_p50"], "latency ms")]
    return [column for column in columns if any(column.text(row) != UNKNOWN for row in rows)]


def _bare(column: Column, heading: str = "", suffix: str = "") -> Column:
    """Return a column of bare values, without deviation and spread; from 10,000 on in thousands, "16.6k"."""

    def text(row: Mapping[str, Any]) -> str:
        value = row.get(column.name)
        if value is not None and not column.unit and value >= 10_000:
            return f"{value / 1000:,.1f}k"
        return UNKNOWN if value is None else column.text({column.name: value}) + suffix

    return Column(column.name, heading or column.heading, cell=text)


def _shared(runs: Sequence[Row]) -> str:
    """Name what the runs share: seeds, equal quantity, updates, threads."""
    updates, threads = (distinct(runs, name) for name in ("updates", "threads"))
    on_gpu = any("gpu" in device.lower() or "nvidia" in device.lower() for device in distinct(runs, "device"))
    trained = [run for run in runs if run.get("preset") != EXTERNAL]
    parts = [describe_seeds(zip(name_models(trained), (run["seed"] for run in trained), strict=True))]
    parts += [f"equal {budget}" for budget in distinct(runs, "budget")]
    parts += [f"{int(updates[0]):,} updates"] if len(updates) == 1 else []
    plural = "s" if threads != ["1"] else ""
    is_of_training = len(threads) == 1 and not on_gpu and not distinct(runs, "trained_on")
    parts += [f"{threads[0]} CPU thread{plural}"] if is_of_training else []
    return ", ".join(part for part in parts if part) + "." if any(parts) else ""
