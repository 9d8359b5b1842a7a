"""Plots of runs: learning curves, and what a model attended to; no display and no global state needed.

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

from data.text.files import write_atomically

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours that differ for colour-blind readers too (Okabe and Ito 2008)."""
MARKERS = "osD^vPX*"
FORMATS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 150},
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}
"""What each form of a figure needs to be the same bytes again."""
CELL_INCHES = 0.27
"""Room for one token of a heat map at 9 points."""

Metrics = Sequence[Mapping[str, Any]]
"""Lines of a metrics.jsonl, as ``compare.training.metrics_log.read_metrics`` gives them."""


def learning_curves(
    runs: Mapping[str, Metrics], *, against: Literal["update", "seconds"] = "update"
) -> Figure:
    """Validation loss and BLEU of each run, by label, against updates or seconds of training."""
    if not runs:
        raise ValueError("no runs to plot")
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, key, title in zip(
        panels, ("loss", "bleu"), ("Validation loss", "Validation BLEU"), strict=True
    ):
        for number, metrics in enumerate(runs.values()):
            _draw_curve(axes, metrics, key, against, number)
        axes.set_title(title)
        axes.set_xlabel("updates" if against == "update" else "seconds of training")
        axes.set_ylabel("nats per token" if key == "loss" else "BLEU")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[1].set_ylim(bottom=0)
    legend = figure.legend(panels[0].lines, list(runs), loc="outside lower center", ncols=min(len(runs), 5))
    for text in legend.get_texts():
        text.set_parse_math(False)  # a label may hold a $
    return figure


def _draw_curve(axes: Axes, metrics: Metrics, key: str, against: str, number: int) -> None:
    """Add one run's ``key`` to ``axes``; where a resumed run logged an update twice, the later line holds."""
    lines = {line["update"]: line for line in metrics if line["kind"] == "valid"}
    points = [(line[against], line[key]) for _, line in sorted(lines.items()) if line.get(key) is not None]
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=PALETTE[number % len(PALETTE)],
        marker=MARKERS[number % len(MARKERS)],
        markersize=4,
        linewidth=1.5,
    )


def heatmap(
    weights: NDArray[np.floating[Any]], src_tokens: Sequence[str], tgt_tokens: Sequence[str], title: str
) -> Figure:
    """Attention weights (T, S), one row a target token, as shades from 0 (white) to 1."""
    if weights.shape != (len(tgt_tokens), len(src_tokens)):
        raise ValueError(
            f"weights of shape {weights.shape} do not fit "
            f"{len(tgt_tokens)} target and {len(src_tokens)} source tokens"
        )
    width, height = CELL_INCHES * len(src_tokens), CELL_INCHES * len(tgt_tokens)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))  # labels and scale stand outside: save_figure widens the page
    image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(src_tokens)), _shown(src_tokens), rotation=90, fontsize=9, parse_math=False)
    axes.set_yticks(range(len(tgt_tokens)), _shown(tgt_tokens), fontsize=9, parse_math=False)
    axes.set_xticks(np.arange(len(src_tokens) - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(tgt_tokens) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="#DDDDDD", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set_title(title, fontsize=10, loc="left", parse_math=False)
    scale = figure.add_axes((1 + 0.1 / width, 0, 0.12 / width, 1))
    figure.colorbar(image, cax=scale, ticks=[0, 0.5, 1]).ax.tick_params(labelsize=8, length=2)
    return figure


def _shown(tokens: Sequence[str]) -> list[str]:
    """``tokens`` with the sign for "no space before" as one that matplotlib's own font has."""
    return [token.replace("￭", "▪") for token in tokens]


@contextmanager
def reproducible_svg() -> Iterator[None]:
    """Write SVG the same way each time, its text as text: small, searchable, in any font the reader has."""
    with mpl.rc_context({"svg.hashsalt": "attnbench", "svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def save_figure(figure: Figure, path: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write ``path``.png, .svg or .pdf; the same figure gives the same bytes again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix in formats:
        buffer = BytesIO()
        with reproducible_svg():
            figure.savefig(buffer, format=suffix, bbox_inches="tight", **FORMATS[suffix])
        target = path.with_name(f"{path.name}.{suffix}")  # a label may hold a dot
        write_atomically(target, buffer.getvalue())
        written.append(target)
    return written
