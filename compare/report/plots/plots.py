"""Learning curves of runs, and files of figures; neither needs a display or global state."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from compare.report.plots.style import finish_figure, make_panels, series_style
from compare.results.write_protection import refuse_writing
from compare.training.metrics_log import lines_by_update
from data.text.control_characters import visible_lines
from data.text.files import write_atomically

FORMATS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 150},
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}
"""Options of each file format; without dates the same figure gives the same bytes."""

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
    """Draw one run's ``key``."""
    lines = lines_by_update(metrics, "valid").values()
    points = [(line[against], line[key]) for line in lines if line.get(key) is not None]
    axes.plot([x for x, _ in points], [y for _, y in points], **series_style(index))


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
