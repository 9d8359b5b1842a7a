"""Tables, results.jsonl and plots of an experiment, in its folder: all repeat what result.json files hold."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from compare.report.table import TableForm, find_summary, render_table
from compare.results.result import Result
from compare.results.store import read_results, to_json_lines, write_protection, write_record
from compare.results.summary import SUMMARY, Summary, has_means, stored_summary
from compare.system.plugins import plugin_problem
from compare.system.signals import Locked, lock_folder
from data.files import write_atomically

logger = logging.getLogger(__name__)

LINES = "results.jsonl"


def render_views(results: Sequence[Result], summary: Summary | None) -> dict[str, str]:
    """Render the files of an experiment that only repeat its results; returns their contents by name.

    The Markdown table is of means where models have several seeds; the others have all runs.
    """
    import pandas as pd

    rows = {"table.csv": TableForm.CSV, "table.json": TableForm.JSON}
    tables = {name: render_table(results, form) for name, form in rows.items()}
    if summary is not None and has_means(results):
        tables["table.md"] = render_table(pd.DataFrame(summary.means), runs=results)
    else:
        tables["table.md"] = render_table(results)
    return {**tables, LINES: to_json_lines(results)}


def refresh_views(folder: Path) -> None:
    """Write those tables and results.jsonl of an experiment again that exist but are out of date.

    A published or a read-only folder is left as it is, and so is one with a plug-in that is not here, or that
    another process is preparing: it writes what has become out of date.
    """
    if not (folder / "experiment.json").is_file() or write_protection(folder):
        return
    with suppress(Locked), lock_folder(folder):  # or results of before a run ended might replace later ones
        results, lines = read_results(folder), folder / LINES
        if lines.is_file() and lines.read_text(encoding="utf-8", errors="replace") == to_json_lines(results):
            return  # written last, so the others are of these results too
        if any(plugin_problem(folder / result.run) for result in results):
            return
        _write(folder, results, only_known=True)


def write_views(folder: str | Path) -> None:
    """Write the summary, the tables and results.jsonl, and draw the plots of ``draw_plots``.

    Args:
        folder: the folder of an experiment.

    Raises:
        ValueError: the folder holds no runs.
    """
    from compare.report.figures import draw_plots

    folder = Path(folder)
    with lock_folder(folder, wait=True):
        _write(folder, read_results(folder))
    written = draw_plots(folder)
    logger.info(f"tables in {folder}/table.*, {len(written)} plots in {folder}/plots")


def _write(folder: Path, results: Sequence[Result], *, only_known: bool = False) -> None:
    """Write the summary and the views; ``only_known``: only those that exist."""
    if any(result.status == "done" for result in results) and stored_summary(folder, results) is None:
        write_record(folder / SUMMARY, find_summary(folder, results))
    for name, text in render_views(results, stored_summary(folder, results)).items():
        if not only_known or (folder / name).is_file():
            write_atomically(folder / name, text)
