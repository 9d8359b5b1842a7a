"""Tables, results.jsonl and plots of an experiment, in its folder: all repeat what result.json files hold."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from compare.analysis.efficiency import validation_rows
from compare.report.figures import draw_test_line
from compare.report.plots import learning_plot, plots_folder, save_figure
from compare.report.table import TableForm, render_table
from compare.results.result import Result
from compare.results.run_folder import RunFolder
from compare.results.store import read_results, to_json_lines, write_protection
from compare.system.plugins import plugin_problem
from compare.system.signals import Locked, lock_folder
from compare.training.serialization import CHECKPOINTS
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


def draw_plots(folder: str | Path, *, line: int = 1, out: str | Path | None = None) -> list[Path]:
    """Draw learning curves of all runs, and heat maps of each run's attention for one test sentence.

    Runs without weights, such as those of a published folder, have no heat maps. ``draw_attention`` draws
    any sentence.

    Args:
        folder: the folder of an experiment.
        line: number of the sentence in the first test set, counted from 1.
        out: the folder of the plots; by default plots in ``folder``.

    Returns:
        The PNG and SVG files; none if no run is finished.

    Raises:
        ValueError: the folder holds no runs, the test set has no such line, or ``out`` is not given for a
            published or read-only folder.
    """
    folder = Path(folder)
    plots = plots_folder(folder, out)
    finished = [result for result in read_results(folder) if result.status == "done"]
    several_seeds = len({result.seed for result in finished}) > 1
    names = [result.run if several_seeds else result.label for result in finished]
    runs = {name: folder / result.run for name, result in zip(names, finished, strict=True)}
    if not runs:
        logger.info(f"{folder}: no finished run to plot")
        return []
    attending = {label: run for label, run in runs.items() if (run / CHECKPOINTS).is_dir()}
    if not any(RunFolder.read(run).run.translates for run in runs.values()):
        attending = {}
        logger.info(f"{folder}: language models attend to no source: no heat maps")
    elif len(attending) < len(runs):
        logger.info(f"{folder}: heat maps of attention need weights, which runs here lack")
    rows = [
        row | {"label": name}
        for name, result in zip(names, finished, strict=True)
        for row in validation_rows(result, folder / result.run)
    ]
    written = save_figure(learning_plot(rows), plots / "learning-curves")
    written += save_figure(learning_plot(rows, "seconds"), plots / "learning-curves-seconds")
    return written + (draw_test_line(attending, folder, line, plots) if attending else [])
