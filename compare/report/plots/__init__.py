"""Figures of an analysis: one function per figure, which draws the rows of the analysis' table."""

from compare.report.plots.costs import pareto_plot, progress_plot
from compare.report.plots.groups import distance_plot, length_plot, word_plot

__all__ = ["distance_plot", "length_plot", "pareto_plot", "progress_plot", "word_plot"]
