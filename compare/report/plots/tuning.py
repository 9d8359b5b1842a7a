"""Expected best validation score of a random search against its number of trials."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from compare.analysis.table import Row
from compare.report.plots.lines import by_label
from compare.report.plots.style import finish_figure, make_panels, series_style


def tuning_plot(rows: Sequence[Row]) -> Figure:
    """Plot the expected best score against trials by both estimators; ``rows`` of ``tuning_curve``."""
    models = by_label(rows)
    figure, panels = make_panels(2, legend_entries=len(models))
    columns = {
        "expected_bleu": "without replacement (Tang et al. 2020)",
        "expected_bleu_with_replacement": "with replacement (Dodge et al. 2019)",
    }
    for axes, (column, title) in zip(panels, columns.items(), strict=True):
        for index, points in enumerate(models.values()):
            x, y = [row["trials"] for row in points], [row[column] for row in points]
            axes.plot(x, y, **series_style(index))
        axes.set(title=title, xlabel="trials", ylabel="expected best validation BLEU", ylim=(0, None))
    return finish_figure(figure, list(models))
