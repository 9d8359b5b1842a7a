"""The table of results: columns and notes, forms, shapes (runs, means over seeds), files of an experiment."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from compare.report.conditions import (
    distinct,
    find_warnings,
    list_conditions,
    list_left_out,
    metric_heading,
    signature_columns,
)
from compare.report.table_formats import csv_text, latex, markdown
from compare.results.columns import (
    COLUMNS,
    INTERVALS,
    PRIMARY,
    are_language_models,
    bleu_and_interval_column,
    bleu_interval_column,
    external_columns,
    find_column,
    further_tests,
    list_columns,
    score_column,
    setting_column,
    stored_fields,
    text_columns,
    varied_settings,
    with_scores,
)
from compare.results.formatting import GROUPS, UNKNOWN, Column, Row, Table
from compare.results.store import (
    SUMMARY,
    Result,
    Summary,
    experiment_names,
    fill_model_settings,
    fill_settings,
    has_means,
    is_setting,
    json_text,
    load_results,
    of_budget,
    read_results,
    setting_of,
    stored_summary,
    to_frame,
    to_json_lines,
    write_protection,
    write_record,
)
from compare.scoring import METRICS
from compare.system.plugins import plugin_problem
from data.files import as_paths, write_atomically
from data.locks import Locked, lock_folder
from data.text import visible_lines

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)
Budget = int | Literal["all"] | None
"""One of several budgets, all of them, or by default the largest with a finished run."""


# Columns and notes of a result table.


def result_table(
    rows: Sequence[Row],
    names: Sequence[str] | None = None,
    runs: Sequence[Row] = (),
    outcome: Iterable[str] = (),
) -> Table:
    """Make the table of results: choose its columns, list conditions and warnings.

    Columns are chosen by heading or field, by default those that ``Column.shown`` selects. If rows are means,
    conditions and warnings are those of ``runs``.
    """
    rows = fill_settings(rows, filter(is_setting, names or ()))
    if names is None:
        columns = [
            column for column in default_columns(rows, means=_are_means(rows)) if _is_shown(column, rows)
        ]
    else:
        columns = [_chosen_column(name, rows) for name in names]
    groups = GROUPS if names is None else {column.group for column in columns}
    if any(row.get("status", "done") != "done" for row in rows):
        columns.append(COLUMNS["status"])
    ended = [run for run in runs or rows if run.get("status", "done") == "done"] or rows
    return Table(
        "",
        rows,
        layout=list({column.heading: column for column in columns}.values()),
        outcome=list(outcome),
        conditions=[
            f"{name}: {values}"
            for name, values in list_conditions(ended)
            if names is None or _concerns(name, columns)
        ],
        warnings=[*list_left_out(runs), *find_warnings(ended, groups)],
    )


def _are_means(rows: Sequence[Row]) -> bool:
    return all("seeds" in row for row in rows)


def _concerns(condition: str, columns: Iterable[Column]) -> bool:
    if condition in ("Presets", "Changed by the budget"):
        return any(column.name == "label" for column in columns)
    if condition in ("Hardware", "Speeds"):
        return any(column.group == "speed" for column in columns)
    return any(f"{column.heading} ".startswith(f"{condition} ") for column in columns)


def default_columns(rows: Sequence[Row], *, means: bool) -> list[Column]:
    """List the columns of all groups, with settings that differ, and scores at the beginning of quality.

    Intervals have their own columns in means.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    tests = further_tests(names)
    lengths = [column for test in ("", *tests) for column in text_columns(test)]
    if means:
        intervals = map(bleu_interval_column, INTERVALS)
        primary = [score_column(PRIMARY), *intervals, *(score_column(PRIMARY, test) for test in tests)]
    else:
        primary = [bleu_and_interval_column(test) for test in ("", *tests)]
    others = [score_column(metric) for metric in METRICS if metric != PRIMARY]
    columns = with_scores([*primary, *others, *external_columns(names), *lengths])
    start = next(index for index, column in enumerate(columns) if column.group != "identity")
    return [*columns[:start], *map(setting_column, varied_settings(rows)), *columns[start:]]


def _is_shown(column: Column, rows: Sequence[Row]) -> bool:
    values = distinct(rows, column.name)
    if column.shown == "where rows differ":
        return is_setting(column.name) or len(values) > 1
    if column.shown == "where known" or are_language_models(rows):  # nothing is translated
        return column.shown in ("where known", "always") and bool(values)
    return column.shown == "always"


def _chosen_column(name: str, rows: Sequence[Row]) -> Column:
    """Return the column with the heading ``name``, or else one of stored values."""
    tests = further_tests(rows[0])
    if any(f"model.{name}" in row for row in rows):
        return setting_column(f"model.{name}")
    if name not in rows[0] or is_setting(name) or name in {column.heading for column in list_columns(tests)}:
        return find_column(name, tests)

    def text(row: Mapping[str, Any]) -> str:
        value = row.get(name)
        if value is None:
            return UNKNOWN
        return f"{value:,.6g}" if isinstance(value, float) else str(value)

    left = name in COLUMNS and COLUMNS[name].left
    return Column(name, name, left=left, cell=text)


# Results as one table in Markdown, LaTeX, CSV or JSON.
#
# CSV and JSON have every column in full precision. Markdown and LaTeX have a choice of columns, with the
# conditions of the figures below. An unknown value is a dash (CSV: empty, JSON: null), never 0.


FORMS = ("markdown", "csv", "json", "latex")


def ensure_form(name: str) -> None:
    """Raise ValueError for an unknown format."""
    if name not in FORMS:
        raise ValueError(f"no table form {name!r}: choose {', '.join(FORMS)}")


def render_table(
    rows: "pd.DataFrame | Iterable[Result]",
    form: str = "markdown",
    columns: Sequence[str] | None = None,
    *,
    caption: str = "",
    runs: "pd.DataFrame | Iterable[Result]" = (),
    outcome: Iterable[str] = (),
) -> str:
    """Format ``rows`` as one table, in their order.

    Args:
        rows: results, or a frame as ``load_results`` gives it.
        form: markdown, csv, json or latex.
        columns: columns to show, each by its heading, such as "model" or "params (M)", or by its field in
            the frame, such as "label", which shows the stored value; by default all (CSV, JSON) or those
            that ``compare.results.columns`` selects (Markdown, LaTeX).
        caption: of a LaTeX table; by default the names of the experiments.
        runs: all runs, where ``rows`` has one row for several of them: conditions and warnings below the
            table are then those of the runs, and name the ones that failed or have not ended.
        outcome: sentences above a Markdown table, or comments above a LaTeX table.

    Returns:
        The table as text.

    Raises:
        ValueError: two rows have different signatures of a metric, rows are of language models and of
            translation, a column or form is unknown, or there are no rows.
    """
    import pandas as pd

    frame, all_runs = (
        results if isinstance(results, pd.DataFrame) else to_frame(results) for results in (rows, runs)
    )
    if frame.empty:
        raise ValueError("no results to put into a table")
    _check_signatures(frame if all_runs.empty else all_runs)
    _check_tasks(frame)
    chosen, fields = frame, list(map(str, frame.columns))
    if columns is not None:
        settings = {
            name: [setting_of(row, name) for row in frame_rows(frame)] for name in columns if is_setting(name)
        }
        frame = frame.assign(**settings)
        fields = list(map(str, frame.columns))
        chosen = frame[
            list(dict.fromkeys(name for column in columns for name in stored_fields(column, fields)))
        ]
    ensure_form(form)
    if form == "csv":
        return csv_text(chosen)
    if form == "json":
        return visible_lines(json_text(frame_rows(chosen))) + "\n"
    shown = frame_rows(frame)
    names = list(dict.fromkeys(frame["experiment"])) if "experiment" in fields else []
    if form == "latex" and columns is None and not are_language_models(shown):
        interval = ["combined [95%]"] if _are_means(shown) else []
        which = [name for name in ("experiment", "seed") if len(distinct(shown, name)) > 1]
        varied = varied_settings(shown, within_preset=True)
        scores = ["BLEU" if interval else "BLEU [95%]", *interval, "chrF", "train tokens/s"]
        columns = ["model", *which, *varied, *scores]
    table = result_table(shown, columns, frame_rows(all_runs), outcome)
    return markdown(table) if form == "markdown" else latex(table, names, caption)


def _check_signatures(frame: "pd.DataFrame") -> None:
    for metric, columns in signature_columns(frame.columns).items():
        for column in columns:
            signatures = frame[column].dropna().unique()
            if len(signatures) > 1:
                raise ValueError(
                    f"{column}: {metric_heading(metric)} is comparable under one signature only, "
                    f"found {signatures[0]} and {signatures[1]}; put these rows into tables of their own"
                )


def _check_tasks(frame: "pd.DataFrame") -> None:
    if not {"label", PRIMARY, "perplexity"} <= set(frame.columns):
        return
    modelling = frame[frame[PRIMARY].isna() & frame["perplexity"].notna()]
    if len(modelling) and frame[PRIMARY].notna().any():
        raise ValueError(
            f"{modelling['label'].iloc[0]} is a language model, whose perplexity does not compare with "
            "that of translation: put these rows into tables of their own"
        )


def frame_rows(frame: "pd.DataFrame") -> list[Row]:
    """Return the rows of ``frame`` as plain Python values; unknown ones are None."""
    has_value = frame.notna() & ~frame.isin([math.inf, -math.inf])
    rows = frame.astype(object).where(has_value, None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


# Shapes of a table: one row per run, or one row per model with means over seeds.


SHAPES = ("rows", "aggregated")


def load_table(
    folders: str | Path | Sequence[str | Path],
    shape: str = "rows",
    *,
    data_root: str = "",
    budget: Budget = None,
) -> "pd.DataFrame":
    """Load the results of experiments in one of the shapes.

    - rows: one row per run.
    - aggregated: one row per model with means over seeds and ``<column>_sd``; BLEU has three intervals, or
      without corpus and translations the one over seeds.

    Args:
        folders: one or more folders of experiments or of single runs.
        shape: rows or aggregated.
        data_root: the folder of the corpus, which aggregated reads; empty: that of the config.
        budget: one of several budgets, as for ``of_budget``, or "all".

    Returns:
        A data frame that ``render_table`` formats.

    Raises:
        ValueError: an unknown shape, or (aggregated) no finished run.
    """
    if shape not in SHAPES:
        raise ValueError(f"no table shape {shape!r}: choose {', '.join(SHAPES)}")
    if shape == "rows":
        return load_results(*as_paths(folders), budget=budget)
    import pandas as pd

    rows = []
    for folder, name in experiment_names(as_paths(folders)).items():
        results = read_results(folder)
        budgets = dict.fromkeys(run.budget for run in results if run.status == "done")
        chosen = sorted(filter(None, budgets)) if budget == "all" else [budget]
        for one in chosen or [None]:
            means = find_summary(folder, of_budget(results, one), data_root).means
            rows += [(folder, {"experiment": name, **row}) for row in means]
    return pd.DataFrame(fill_settings(fill_model_settings(rows)))


def default_shape(folders: Sequence[Path], budget: Budget = None) -> str:
    """Return the shape of a table for people: aggregated if a model has several seeds, else rows.

    Rows that failed or have not ended must be seen, and means need the plug-ins of the runs; both force rows.
    """
    if not all((folder / "experiment.json").is_file() for folder in folders):
        return "rows"
    results = {folder: read_results(folder) for folder in folders}
    if budget != "all":
        results = {folder: of_budget(runs, budget) for folder, runs in results.items()}
    whole = all(
        result.status == "done" and not plugin_problem(folder / result.run)
        for folder, runs in results.items()
        for result in runs
    )
    return "aggregated" if whole and any(map(has_means, results.values())) else "rows"


def find_summary(folder: Path, results: Sequence[Result], data_root: str = "") -> Summary:
    """Return the stored summary of an experiment's results, or else compute and store it.

    A summary without texts is computed again: they may be there now. A published or read-only folder stays as
    it is.
    """
    stored = stored_summary(folder, results)
    whole = None if stored is None or stored.lacks_texts else stored
    if whole is not None and not data_root:
        return whole
    from compare.analysis.summary import summarise  # slow to import

    budget = next((result.budget for result in results if result.budget), None)
    summary = summarise(folder, data_root=data_root, budget=budget)
    is_default = list(results) == of_budget(read_results(folder))  # the file is of no other budget
    if whole is None and summary != stored and is_default and not write_protection(folder):
        write_record(folder / SUMMARY, summary)
    return summary


# Tables, results.jsonl and plots of an experiment, in its folder: all repeat what result.json files hold.


LINES = "results.jsonl"


def render_views(folder: Path, results: Sequence[Result], summary: Summary | None) -> dict[str, str]:
    """Render the files of an experiment that only repeat its results; returns their contents by name."""
    import pandas as pd

    rows = {"table.csv": "csv", "table.json": "json"}
    tables = {name: render_table(results, form) for name, form in rows.items()}
    outcome = summary.outcome if summary is not None else ()
    shown = of_budget(results)
    if summary is not None and has_means(shown):
        means = fill_model_settings((folder, row) for row in summary.means)
        tables["table.md"] = render_table(pd.DataFrame(means), runs=shown, outcome=outcome)
    else:
        tables["table.md"] = render_table(shown, outcome=outcome)
    return {**tables, LINES: to_json_lines(results)}


def refresh_views(folder: Path) -> None:
    """Write outdated tables and results.jsonl of an experiment again.

    Published and read-only folders are left as they are, as are folders with a missing plug-in and those that
    another process is preparing.
    """
    if not (folder / "experiment.json").is_file() or write_protection(folder):
        return
    with suppress(Locked), lock_folder(folder):  # or results of before a run ended might replace later ones
        results, lines = read_results(folder), folder / LINES
        if not lines.is_file() or lines.read_text("utf-8", errors="replace") == to_json_lines(results):
            return  # written last, so the others are of these results too, or not yet there
        if any(plugin_problem(folder / result.run) for result in results):
            return
        _write(folder, results, only_known=True)


def write_views(folder: str | Path) -> None:
    """Write the summary, the tables and results.jsonl, and draw the plots of ``draw_plots``.

    Raises:
        ValueError: the folder holds no runs.
    """
    from compare.report.plots import draw_plots

    folder = Path(folder)
    with lock_folder(folder, wait=True):
        _write(folder, read_results(folder))
    written = draw_plots(folder)
    logger.info(f"tables in {folder}/table.*, {len(written)} plots in {folder}/plots")


def _write(folder: Path, results: Sequence[Result], *, only_known: bool = False) -> None:
    summary = None
    if any(result.status == "done" for result in results):
        logger.info("means over seeds, and tests of differences")
        summary = find_summary(folder, of_budget(results))
    for name, text in render_views(folder, results, summary).items():
        if not only_known or (folder / name).is_file():
            write_atomically(folder / name, text)
