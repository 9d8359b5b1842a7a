"""Plots of runs: learning curves and heat maps of attention; they need no display and no global state.

Shapes: S source and T target positions.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from compare.report.plots.style import finish_figure, make_panels, series_style
from compare.results.write_protection import refuse_writing
from data.text.control_characters import visible_lines
from data.text.files import write_atomically

FORMATS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 150},
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}
"""Options of each file format; without dates the same figure gives the same bytes."""
CELL_INCHES = 0.27
"""Side of a heat map's cell, which holds one token at 9 points."""

Metrics = Sequence[Mapping[str, Any]]
"""Lines of a metrics.jsonl; see ``compare.training.metrics_log.read_metrics``."""


def learning_curves(
    runs: Mapping[str, Metrics], *, against: Literal["update", "seconds"] = "update"
) -> Figure:
    """Plot validation loss and BLEU of each run, by label, against updates or seconds of training.

    Language models have no BLEU, and so only the loss.

    Raises:
        ValueError: there are no runs.
    """
    if not runs:
        raise ValueError("no runs to plot")
    columns = [("loss", "Validation loss", "nats per token"), ("bleu", "Validation BLEU", "BLEU")]
    if all(line.get("bleu") is None for lines in runs.values() for line in lines if line["kind"] == "valid"):
        del columns[1]  # of language models
    figure, panels = make_panels(len(columns), legend_entries=len(runs))
    for axes, (key, title, unit) in zip(panels, columns, strict=True):
        for index, metrics in enumerate(runs.values()):
            _draw_curve(axes, metrics, key, against, index)
        axes.set_title(title)
        axes.set_xlabel("updates" if against == "update" else "seconds of training")
        axes.set_ylabel(unit)
    for axes in panels[1:]:
        axes.set_ylim(bottom=0)
    return finish_figure(figure, list(runs))


def _draw_curve(axes: Axes, metrics: Metrics, key: str, against: str, index: int) -> None:
    """Draw one run's ``key``; where a resumed run logged an update twice, the later line counts."""
    lines = {line["update"]: line for line in metrics if line["kind"] == "valid"}
    points = [(line[against], line[key]) for _, line in sorted(lines.items()) if line.get(key) is not None]
    axes.plot([x for x, _ in points], [y for _, y in points], **series_style(index))


def heatmap(
    weights: NDArray[np.floating[Any]], src_tokens: Sequence[str], tgt_tokens: Sequence[str], title: str
) -> Figure:
    """Draw attention weights (T, S), one row per target token, as shades from 0 (white) to 1.

    Raises:
        ValueError: the weights do not fit the tokens.
    """
    if weights.shape != (len(tgt_tokens), len(src_tokens)):
        raise ValueError(
            f"weights of shape {weights.shape} do not fit "
            f"{len(tgt_tokens)} target and {len(src_tokens)} source tokens"
        )
    width, height = CELL_INCHES * len(src_tokens), CELL_INCHES * len(tgt_tokens)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))  # labels and colour bar lie outside: save_figure widens the page
    image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(src_tokens)), _printable(src_tokens), rotation=90, fontsize=9, parse_math=False)
    axes.set_yticks(range(len(tgt_tokens)), _printable(tgt_tokens), fontsize=9, parse_math=False)
    axes.set_xticks(np.arange(len(src_tokens) - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(tgt_tokens) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="#DDDDDD", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set_title(title, fontsize=10, loc="left", parse_math=False)
    scale = figure.add_axes((1 + 0.1 / width, 0, 0.12 / width, 1))
    figure.colorbar(image, cax=scale, ticks=[0, 0.5, 1]).ax.tick_params(labelsize=8, length=2)
    return figure


def _printable(tokens: Sequence[str]) -> list[str]:
    """Replace the mark for "no space before" by one that matplotlib's own font has."""
    return [token.replace("￭", "▪") for token in tokens]


def plots_folder(folder: Path, out: str | Path | None) -> Path:
    """Return the folder for an experiment's plots: ``out``, or by default plots in ``folder``.

    Raises:
        ValueError: ``out`` is None, but ``folder`` is published or read-only.
    """
    if out is not None:
        return Path(out)
    refuse_writing(folder, "name another folder for its plots with --out")
    return folder / "plots"


@contextmanager
def reproducible_svg() -> Iterator[None]:
    """Make SVG files deterministic, and keep text as text: small, searchable, in the reader's font."""
    with mpl.rc_context({"svg.hashsalt": "attnbench", "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def valid_svg(content: bytes) -> bytes:
    """Escape control characters in matplotlib's SVG: copied from labels, they would make the XML invalid."""
    return visible_lines(content.decode()).encode()


def save_figure(figure: Figure, path: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write ``path``.png, .svg or .pdf, atomically; the same figure always gives the same bytes.

    Args:
        figure: what to write.
        path: without suffix; its folder is created.
        formats: of ``FORMATS``.

    Returns:
        The files written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix in formats:
        buffer = BytesIO()
        with reproducible_svg():
            figure.savefig(buffer, format=suffix, bbox_inches="tight", **FORMATS[suffix])
        target = path.with_name(f"{path.name}.{suffix}")  # a label may hold a dot
        write_atomically(target, valid_svg(buffer.getvalue()) if suffix == "svg" else buffer.getvalue())
        written.append(target)
    return written
