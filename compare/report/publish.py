"""Write an experiment's tables and plots into its folder."""

import logging
from pathlib import Path

import numpy as np

from compare.report.plots.plots import heatmap, learning_curves, save_figure
from compare.report.tables.table import TableForm, render_table
from compare.results.store import read_results
from compare.training.metrics_log import read_metrics
from data.text.files import write_atomically
from data.text.lines import read_lines

logger = logging.getLogger(__name__)

SUFFIX = {TableForm.MARKDOWN: "md", TableForm.CSV: "csv", TableForm.JSON: "json"}


def write_views(folder: Path) -> None:
    """Write table.md, table.csv, table.json, and what ``draw_plots`` draws."""
    results = read_results(folder)
    for form, suffix in SUFFIX.items():
        write_atomically(folder / f"table.{suffix}", render_table(results, form))
    written = draw_plots(folder)
    logger.info(f"tables in {folder}/table.*, {len(written)} plots in {folder}/plots")


def draw_plots(folder: Path, *, sentence: str | None = None, line: int = 1) -> list[Path]:
    """Draw learning curves of all runs, and heat-maps of the attention to one sentence.

    Args:
        folder: of an experiment.
        sentence: the source sentence; by default line ``line`` of the first test set.
        line: counted from 1.

    Returns:
        The PNG and SVG files written to ``folder``/plots.
    """
    done = [row for row in read_results(folder) if row.status == "done"]
    names = [row.run for row in done]
    several = len({row.seed for row in done}) > 1
    runs = {name if several else row.label: folder / name for name, row in zip(names, done, strict=True)}
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
    """One heat-map for each attention over the source, its heads averaged; none for a model without."""
    from compare.results.trained_model import load_model

    pair = load_model(run).attend(sentence)
    written: list[Path] = []
    for name, weights in pair.weights.items():
        if name.startswith("cross"):
            mean = weights.mean(axis=0).astype(np.float64)
            title = f"{label}, {name}" + (f", mean of {len(weights)} heads" if len(weights) > 1 else "")
            written += save_figure(
                heatmap(mean, pair.src, pair.tgt, title), folder / f"attention-{label}-{name}"
            )
    return written


def _test_line(folder: Path, line: int) -> str:
    """A source line of the first test set, as the experiment kept it."""
    lines = read_lines(folder / "test.src")
    if not 1 <= line <= len(lines):
        raise ValueError(f"line {line} is not in the test set of {folder}, which has {len(lines)} lines")
    return lines[line - 1]
