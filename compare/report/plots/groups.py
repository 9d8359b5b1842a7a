"""Quality by groups of sentences or words: lengths, distances to training, counts in training."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from compare.analysis.table import Row
from compare.report.plots.lines import by_label, draw_line, finish, make_panels, points_of


def length_plot(rows: Sequence[Row]) -> Figure:
    """BLEU and chrF by words of the source; ``rows`` of ``compare.analysis.quality.lengths.by_length``."""
    return _plot(
        rows, "source_words", "sentences", {"bleu": "BLEU", "chrf": "chrF"}, "words of the source (sentences)"
    )


def distance_plot(rows: Sequence[Row]) -> Figure:
    """BLEU and chrF by distance to the lengths of training; ``rows`` of ``by_distance``."""
    names = {"bleu": "BLEU", "chrf": "chrF"}
    return _plot(
        rows,
        "distance_words",
        "sentences",
        names,
        "words of the source, against those of training (sentences)",
    )


def word_plot(rows: Sequence[Row]) -> Figure:
    """Recall and precision by count in training; ``rows`` of ``rare_words.rare_words``."""
    names = {"recall_percent": "recall (%)", "precision_percent": "precision (%)"}
    return _plot(
        rows, "training_count", "ref_words", names, "times that training has a word (words in the reference)"
    )


def _plot(rows: Sequence[Row], group: str, size: str, columns: Mapping[str, str], title: str) -> Figure:
    """A panel a column: its values over the groups, each with its size below its name."""
    models = by_label(rows)
    sizes = {row[group]: row[size] for row in rows}
    figure, panels = make_panels(len(columns), len(models))
    for axes, (column, name) in zip(panels, columns.items(), strict=True):
        for number, own in enumerate(models.values()):
            known = [row for row in own if row[column] is not None]
            values = ([row[column] for row in known if row[group] == found] for found in sizes)
            draw_line(axes, points_of(enumerate(values)), number)
        axes.set_xticks(range(len(sizes)), [f"{found}\n({n:,})" for found, n in sizes.items()], fontsize=8)
        axes.set(xlabel=title, ylabel=name, xlim=(-0.3, len(sizes) - 0.7), ylim=(0, None))
    return finish(figure, list(models))
