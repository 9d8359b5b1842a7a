"""Quality by groups of sentences or words: by length, distance to training lengths, training count."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from compare.analysis.table import Row
from compare.report.plots.lines import by_label, draw_line, points_of
from compare.report.plots.style import finish_figure, make_panels

SCORES = {"bleu": "BLEU", "chrf": "chrF"}
RATES = {"recall_percent": "recall (%)", "precision_percent": "precision (%)"}


def length_plot(rows: Sequence[Row]) -> Figure:
    """Plot BLEU and chrF by source length; ``rows`` of ``compare.analysis.quality.lengths.by_length``."""
    return _plot(rows, "source_words", "sentences", SCORES, "words of the source (sentences)")


def distance_plot(rows: Sequence[Row]) -> Figure:
    """Plot BLEU and chrF by distance to the training lengths; ``rows`` of ``by_distance``."""
    title = "words of the source, against those of training (sentences)"
    return _plot(rows, "distance_words", "sentences", SCORES, title)


def word_plot(rows: Sequence[Row]) -> Figure:
    """Plot recall and precision by training count; ``rows`` of ``rare_words.rare_words``."""
    title = "times that training has a word (words in the reference)"
    return _plot(rows, "training_count", "ref_words", RATES, title)


def _plot(rows: Sequence[Row], group: str, size: str, columns: Mapping[str, str], title: str) -> Figure:
    """Draw one panel per column: its values over the groups, and each group's size below its name."""
    models = by_label(rows)
    sizes = {row[group]: row[size] for row in rows}
    figure, panels = make_panels(len(columns), legend_entries=len(models))
    for axes, (column, name) in zip(panels, columns.items(), strict=True):
        for index, model_rows in enumerate(models.values()):
            measured = [row for row in model_rows if row[column] is not None]
            values = ([row[column] for row in measured if row[group] == label] for label in sizes)
            draw_line(axes, points_of(enumerate(values)), index)
        axes.set_xticks(range(len(sizes)), [f"{label}\n({n:,})" for label, n in sizes.items()], fontsize=8)
        axes.set(xlabel=title, ylabel=name, xlim=(-0.3, len(sizes) - 0.7), ylim=(0, None))
    return finish_figure(figure, list(models))
