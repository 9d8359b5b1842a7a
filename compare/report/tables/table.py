"""Results as one table in Markdown, LaTeX, CSV or JSON.

CSV and JSON have every column in full precision. Markdown and LaTeX have a choice of columns, with the
conditions of the figures below. An unknown value is a dash (CSV: empty, JSON: null), never 0.
"""

import json
import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from compare.report.conditions import metric_heading, signature_columns
from compare.report.tables.latex import latex
from compare.report.tables.layout import layout_table
from compare.report.tables.markdown import markdown
from compare.results.column_catalogue import stored_fields
from compare.results.csv_table import csv_table
from compare.results.store import Result, to_frame
from data.text.control_characters import visible_lines

if TYPE_CHECKING:
    import pandas as pd


class TableForm(StrEnum):
    """Formats of tables."""

    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


def table_form(name: str) -> TableForm:
    """Return the format of that name; ValueError if there is none."""
    if name not in set(TableForm):
        raise ValueError(f"no table form {name!r}: choose {', '.join(TableForm)}")
    return TableForm(name)


def render_table(
    rows: "pd.DataFrame | Iterable[Result]",
    form: str = "markdown",
    columns: Sequence[str] | None = None,
    *,
    caption: str = "",
    runs: "pd.DataFrame | Iterable[Result]" = (),
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

    Returns:
        The table as text.

    Raises:
        ValueError: two rows have different signatures of a metric, rows are of language models and of
            translation, a column or form is unknown, or there are no rows.
    """
    import pandas as pd

    frame, all_runs = (each if isinstance(each, pd.DataFrame) else to_frame(each) for each in (rows, runs))
    if frame.empty:
        raise ValueError("no results to put into a table")
    _check_signatures(frame if all_runs.empty else all_runs)
    _check_tasks(frame)
    fields = list(map(str, frame.columns))
    chosen = frame
    if columns is not None:
        chosen = frame[list(dict.fromkeys(name for each in columns for name in stored_fields(each, fields)))]
    match table_form(form):
        case TableForm.CSV:
            return csv_table(chosen)
        case TableForm.JSON:
            text = json.dumps(_rows(chosen), indent=2, ensure_ascii=False, allow_nan=False)
            return visible_lines(text) + "\n"
        case TableForm.MARKDOWN:
            return markdown(layout_table(_rows(frame), columns, _rows(all_runs)))
        case TableForm.LATEX:
            names = list(dict.fromkeys(frame["experiment"])) if "experiment" in fields else []
            return latex(layout_table(_rows(frame), columns, _rows(all_runs)), names, caption)


def _check_signatures(frame: "pd.DataFrame") -> None:
    """Reject scores with different signatures, which cannot be compared."""
    for metric, columns in signature_columns(frame.columns).items():
        for column in columns:
            signatures = frame[column].dropna().unique()
            if len(signatures) > 1:
                raise ValueError(
                    f"{column}: {metric_heading(metric)} is comparable under one signature only, "
                    f"found {signatures[0]} and {signatures[1]}; put these rows into tables of their own"
                )


def _check_tasks(frame: "pd.DataFrame") -> None:
    """Reject rows of language models, which have perplexity but no search, beside others."""
    if not {"label", "beam", "perplexity"} <= set(frame.columns):
        return
    modelling = frame[frame["beam"].isna() & frame["perplexity"].notna()]
    if len(modelling) and frame["beam"].notna().any():
        raise ValueError(
            f"{modelling['label'].iloc[0]} is a language model, whose perplexity does not compare with "
            "that of translation: put these rows into tables of their own"
        )


def _rows(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return the rows of ``frame`` as plain Python values, None for unknown ones."""
    known = frame.notna() & ~frame.isin([math.inf, -math.inf])
    rows = frame.astype(object).where(known, None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]
