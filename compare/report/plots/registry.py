"""Registry of the figures of a finished experiment, for drawing one by name."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compare.report.plots.plots import FORMATS, plots_folder, save_figure
from compare.system.hints import did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from compare.analysis.finished_experiment import FinishedExperiment


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
    from compare.report.plots.plots import learning_curves
    from compare.training.metrics_log import read_metrics

    metrics = {name: read_metrics(run.folder / "metrics.jsonl") for name, run in finished.named.items()}
    return learning_curves(metrics, against=against)  # type: ignore[arg-type]


def _length(finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.quality.lengths import by_length
    from compare.report.plots import length_plot

    return length_plot(by_length(finished).rows)


def _distance(finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.quality.lengths import by_distance
    from compare.report.plots import distance_plot

    return distance_plot(by_distance(finished).rows)


def _words(finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.quality.rare_words import rare_words
    from compare.report.plots import word_plot

    return word_plot(rare_words(finished, finished.corpus.tests[0]).rows)


def _progress(against: str, finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.quality.efficiency import progress
    from compare.report.plots import progress_plot

    return progress_plot(progress(finished).rows, against)  # type: ignore[arg-type]


def _pareto(against: str, finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.quality.efficiency import pareto
    from compare.report.plots import pareto_plot

    return pareto_plot(pareto(finished).rows, against)  # type: ignore[arg-type]


def _tuning(finished: "FinishedExperiment") -> "Figure":
    from compare.analysis.tuning import tuning_curve
    from compare.experiment.tune.trial_log import TRIALS, read_trials
    from compare.report.plots.tuning import tuning_plot

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
