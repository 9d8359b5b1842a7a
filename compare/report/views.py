"""Tables, results.jsonl and plots of an experiment, in its folder: all repeat what result.json files hold."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from compare.report.figures import draw_plots
from compare.report.table import TableForm, render_table
from compare.results.result import Result
from compare.results.store import read_results, to_json_lines, write_protection
from compare.system.plugins import plugin_problem
from compare.system.signals import Locked, lock_folder
from data.files import write_atomically

logger = logging.getLogger(__name__)

SUFFIX = {TableForm.MARKDOWN: "md", TableForm.CSV: "csv", TableForm.JSON: "json"}


def render_views(results: Sequence[Result]) -> dict[str, str]:
    """Render the files of an experiment that only repeat its results; returns their contents by name."""
    tables = {f"table.{suffix}": render_table(results, form) for form, suffix in SUFFIX.items()}
    return {**tables, "results.jsonl": to_json_lines(results)}


def refresh_views(folder: Path) -> None:
    """Write those tables and results.jsonl of an experiment again that exist but are out of date.

    A published or a read-only folder is left as it is, and so is one with a plug-in that is not here, or that
    another process is preparing: it writes what has become out of date.
    """
    if not (folder / "experiment.json").is_file() or write_protection(folder):
        return
    with suppress(Locked), lock_folder(folder):  # or results of before a run ended might replace later ones
        results = read_results(folder)
        if any(plugin_problem(folder / result.run) for result in results):
            return
        for name, text in render_views(results).items():
            path = folder / name
            if path.is_file() and path.read_text(encoding="utf-8", errors="replace") != text:
                write_atomically(path, text)


def write_views(folder: str | Path) -> None:
    """Write the tables and results.jsonl, and draw the plots of ``draw_plots``.

    Args:
        folder: the folder of an experiment.

    Raises:
        ValueError: the folder holds no runs.
    """
    folder = Path(folder)
    with lock_folder(folder, wait=True):
        for name, text in render_views(read_results(folder)).items():
            write_atomically(folder / name, text)
    written = draw_plots(folder)
    logger.info(f"tables in {folder}/table.*, {len(written)} plots in {folder}/plots")
