"""Registry of the figures of a finished experiment, and learning curves."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from compare.report.plots import finish_figure, make_panels, series_style
from compare.results.store import refuse_writing
from compare.system.messages import did_you_mean
from compare.training.metrics_log import lines_by_update
from data.files import write_atomically
from data.text import visible_lines

if TYPE_CHECKING:
    from compare.analysis.finished_experiment import FinishedExperiment


# Learning curves of runs, and files of figures; neither needs a display or global state.


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


# Registry of the figures of a finished experiment, for drawing one by name.


class FigureKind(NamedTuple):
    """Description of a figure, and the function that draws it."""

    about: str
    draw: Callable[["FinishedExperiment"], "Figure"]


def list_figures() -> list[str]:
    """Return the names of the figures that ``draw_figure`` draws."""
    return list(FIGURES)


def draw_figure(
    folder: str | Path,
    kind: str,
    formats: Sequence[str] = ("png", "svg"),
    *,
    out: str | Path | None = None,
    data_root: str = "",
) -> list[Path]:
    """Draw one figure of an experiment.

    Args:
        folder: the folder of the experiment.
        kind: name of the figure, one of ``list_figures()``.
        formats: some of png, svg and pdf.
        out: the folder of the files; by default plots in ``folder``.
        data_root: the folder of the corpus; empty: that of the config.

    Returns:
        The files.

    Raises:
        ValueError: unknown figure or format, no finished run, a quantity that was not measured, or ``out`` is
            not given for a published or read-only folder.
    """
    from compare.analysis.finished_experiment import load_finished

    folder = Path(folder)
    if kind == ATTENTION:
        raise ValueError("draw_figure draws figures of the whole experiment: draw_attention draws a sentence")
    if kind not in FIGURES:
        raise ValueError(f"no figure {kind!r}; {did_you_mean(kind, [*FIGURES, ATTENTION])}")
    if unknown := [form for form in formats if form not in FORMATS]:
        raise ValueError(f"no format {unknown[0]!r}: choose from {', '.join(FORMATS)}")
    plots = plots_folder(folder, out)
    return save_figure(FIGURES[kind].draw(load_finished(folder, data_root=data_root)), plots / kind, formats)


def _learning(against: str, finished: "FinishedExperiment") -> "Figure":
    from compare.training.metrics_log import read_metrics

    metrics = {name: read_metrics(run.folder / "metrics.jsonl") for name, run in finished.named.items()}
    return learning_curves(metrics, against=against)  # type: ignore[arg-type]


def _length(finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.quality import by_length
    from compare.report.plots import length_plot

    return length_plot(by_length(finished).rows)


def _distance(finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.quality import by_distance
    from compare.report.plots import distance_plot

    return distance_plot(by_distance(finished).rows)


def _words(finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.quality import rare_words
    from compare.report.plots import word_plot

    return word_plot(rare_words(finished, finished.corpus.tests[0]).rows)


def _progress(against: str, finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.efficiency import progress
    from compare.report.plots import progress_plot

    return progress_plot(progress(finished).rows, against)  # type: ignore[arg-type]


def _pareto(against: str, finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.efficiency import pareto
    from compare.report.plots import pareto_plot

    return pareto_plot(pareto(finished).rows, against)  # type: ignore[arg-type]


def _tuning(finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.tuning import tuning_curve
    from compare.experiment.tune import TRIALS, read_trials
    from compare.report.plots import tuning_plot

    path = finished.folder / TRIALS
    trials = read_trials(finished.folder) if path.exists() else []
    if not trials:
        raise ValueError(
            f"{path}: no trials of a search: publish the experiment with --tuning FOLDER of attnbench tune"
        )
    return tuning_plot(tuning_curve(trials).rows)


FIGURES: dict[str, FigureKind] = {
    "learning-updates": FigureKind("validation loss and BLEU over updates", partial(_learning, "update")),
    "learning-seconds": FigureKind("the same over seconds of training", partial(_learning, "seconds")),
    "length": FigureKind("BLEU and chrF by words of the source", _length),
    "distance": FigureKind("BLEU and chrF by distance to the lengths of training", _distance),
    "rare-words": FigureKind("recall and precision of words by their count in training", _words),
    "quality-seconds": FigureKind(
        "validation BLEU against seconds of training", partial(_progress, "seconds")
    ),
    "quality-updates": FigureKind("validation BLEU against updates", partial(_progress, "updates")),
    "quality-tokens": FigureKind("validation BLEU against tokens", partial(_progress, "tokens")),
    "quality-flops": FigureKind(
        "validation BLEU against operations of training", partial(_progress, "flops")
    ),
    "quality-joules": FigureKind(
        "validation BLEU against energy, where it was read", partial(_progress, "joules")
    ),
    "pareto-speed": FigureKind(
        "test BLEU against decoding speed, with the Pareto front", partial(_pareto, "beam_sentences_per_s")
    ),
    "pareto-size": FigureKind(
        "test BLEU against parameters, with the Pareto front", partial(_pareto, "params")
    ),
    "tuning": FigureKind("expected best validation BLEU against trials of the search", _tuning),
}
"""Figures of a whole experiment by name."""
ATTENTION = "attention"
"""Name of the heat maps of one sentence, which ``draw_attention`` draws."""
