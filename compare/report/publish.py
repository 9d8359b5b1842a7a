"""Writing of an experiment's tables and plots into its folder."""

import logging
from pathlib import Path

import numpy as np

from compare.report.plots.plots import heatmap, learning_curves, save_figure
from compare.report.tables.table import TableForm, render_table
from compare.results.store import read_results
from compare.training.metrics_log import read_metrics
from data.text.files import ensure_regular, write_atomically
from data.text.lines import read_lines

logger = logging.getLogger(__name__)

SUFFIX = {TableForm.MARKDOWN: "md", TableForm.CSV: "csv", TableForm.JSON: "json"}


def write_views(folder: Path) -> None:
    """Write table.md, table.csv and table.json, and draw the plots of ``draw_plots``."""
    results = read_results(folder)
    for form, suffix in SUFFIX.items():
        write_atomically(folder / f"table.{suffix}", render_table(results, form))
    written = draw_plots(folder)
    logger.info(f"tables in {folder}/table.*, {len(written)} plots in {folder}/plots")


def draw_plots(folder: Path, *, sentence: str | None = None, line: int = 1) -> list[Path]:
    """Draw learning curves of all runs, and heat maps of each run's attention for one sentence.

    Args:
        folder: of an experiment.
        sentence: the source sentence; by default line ``line`` of the first test set.
        line: counted from 1.

    Returns:
        The PNG and SVG files written to ``folder``/plots.
    """
    finished = [result for result in read_results(folder) if result.status == "done"]
    several_seeds = len({result.seed for result in finished}) > 1
    runs = {(result.run if several_seeds else result.label): folder / result.run for result in finished}
    if not runs:
        logger.info(f"{folder}: no finished run to plot")
        return []
    sentence = _test_line(folder, line) if sentence is None else sentence
    metrics = {label: read_metrics(run / "metrics.jsonl") for label, run in runs.items()}
    plots = folder / "plots"
    written = save_figure(learning_curves(metrics), plots / "learning-curves")
    written += save_figure(learning_curves(metrics, against="seconds"), plots / "learning-curves-seconds")
    for label, run in runs.items():
        written += _draw_attention(label, run, sentence, plots)
    return written


def _draw_attention(label: str, run: Path, sentence: str, folder: Path) -> list[Path]:
    """Draw one heat map per attention over the source, averaged over its heads."""
    from compare.results.trained_model import load_model

    pair = load_model(run).attend(sentence)
    written: list[Path] = []
    for name, weights in pair.weights.items():
        if name.startswith("cross"):
            mean = weights.mean(axis=0).astype(np.float64)
            title = f"{label}, {name}" + (f", mean of {len(weights)} heads" if len(weights) > 1 else "")
            figure = heatmap(mean, pair.src, pair.tgt, title)
            written += save_figure(figure, folder / f"attention-{label}-{name}")
    return written


def _test_line(folder: Path, line: int) -> str:
    """Read one source line of the first test set from the experiment's folder."""
    ensure_regular(folder / "test.src")
    lines = read_lines(folder / "test.src")
    if not 1 <= line <= len(lines):
        raise ValueError(f"line {line} is not in the test set of {folder}, which has {len(lines)} lines")
    return lines[line - 1]
