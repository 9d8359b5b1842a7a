"""Registry of the figures of a finished experiment, for drawing one by name."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from compare.analysis.efficiency import pareto, progress
from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.quality import by_distance, by_length, rare_words
from compare.analysis.tables import Row
from compare.analysis.tuning import tuning_curve
from compare.experiment.tune import TRIALS, read_trials
from compare.report.plots import (
    FORMATS,
    SPENT,
    Cost,
    Rival,
    distance_plot,
    learning_plot,
    length_plot,
    pareto_plot,
    plots_folder,
    progress_plot,
    save_figure,
    tuning_plot,
    word_plot,
)
from compare.system.messages import did_you_mean


class FigureKind(NamedTuple):
    """Description of a figure, and the function that draws it."""

    about: str
    draw: Callable[[FinishedExperiment], Figure]


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
    folder = Path(folder)
    if kind == ATTENTION:
        raise ValueError("draw_figure draws figures of the whole experiment: draw_attention draws a sentence")
    if kind not in FIGURES:
        raise ValueError(f"no figure {kind!r}; {did_you_mean(kind, [*FIGURES, ATTENTION])}")
    if unknown := [form for form in formats if form not in FORMATS]:
        raise ValueError(f"no format {unknown[0]!r}: choose from {', '.join(FORMATS)}")
    plots = plots_folder(folder, out)
    return save_figure(FIGURES[kind].draw(load_finished(folder, data_root=data_root)), plots / kind, formats)


def _progress_by_run(finished: FinishedExperiment) -> list[Row]:
    """Return the rows of ``progress``, each run under a name of its own."""
    names = {(run.result.label, run.result.seed): name for name, run in finished.named.items()}
    return [row | {"label": names[row["label"], row["seed"]]} for row in progress(finished).rows]


def _learning(against: Cost, finished: FinishedExperiment) -> Figure:
    return learning_plot(_progress_by_run(finished), against)


def _quality(against: Cost, finished: FinishedExperiment) -> Figure:
    return progress_plot(progress(finished).rows, against)


def _pareto(against: Rival, finished: FinishedExperiment) -> Figure:
    return pareto_plot(pareto(finished).rows, against)


def _words(finished: FinishedExperiment) -> Figure:
    return word_plot(rare_words(finished, finished.corpus.tests[0]).rows)


def _tuning(finished: FinishedExperiment) -> Figure:
    path = finished.folder / TRIALS
    trials = read_trials(finished.folder) if path.exists() else []
    if not trials:
        raise ValueError(
            f"{path}: no trials of a search: publish the experiment with --tuning FOLDER of attnbench tune"
        )
    return tuning_plot(tuning_curve(trials).rows)


FIGURES: dict[str, FigureKind] = {
    "learning-updates": FigureKind("validation loss and BLEU over updates", partial(_learning, "updates")),
    "learning-seconds": FigureKind("the same over seconds of training", partial(_learning, "seconds")),
    "length": FigureKind(
        "BLEU and chrF by words of the source", lambda each: length_plot(by_length(each).rows)
    ),
    "distance": FigureKind(
        "BLEU and chrF by distance to the lengths of training",
        lambda each: distance_plot(by_distance(each).rows),
    ),
    "rare-words": FigureKind("recall and precision of words by their count in training", _words),
    **{
        f"quality-{cost}": FigureKind(f"validation BLEU against {axis}", partial(_quality, cost))
        for cost, axis in SPENT.items()
    },
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
