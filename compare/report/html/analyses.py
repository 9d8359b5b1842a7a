"""Sections of the page that come from analyses: plots and tables, or the reason for a failure."""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.quality.behaviour import behaviour
from compare.analysis.quality.copies import copies_and_numbers
from compare.analysis.quality.efficiency import pareto, progress, time_to_quality
from compare.analysis.quality.lengths import by_distance, by_length
from compare.analysis.quality.rare_words import rare_words
from compare.analysis.seed_means import mean_over_seeds
from compare.report.html.curves import learning_plot
from compare.report.html.drawings import embed_figure
from compare.report.html.parts import Drawing, HtmlTable, Part, Section, first_to_last, html_table
from compare.report.html.speed import speed
from compare.report.plots import distance_plot, length_plot, pareto_plot, progress_plot, word_plot
from compare.report.plots.costs import SPENT, Rival
from compare.system.hints import explain

logger = logging.getLogger(__name__)

NO_TEXTS = "Not made: the texts cannot be read."

Make = Callable[[FinishedExperiment], Iterator[Part]]


class _Plan(NamedTuple):
    """A section of the page to be made: its heading, and the function that makes its content."""

    name: str
    title: str
    needs_texts: bool
    make: Make


def sections(finished: FinishedExperiment, no_texts: str | None) -> list[Section]:
    """Make one section per analysis; if an analysis fails, its section contains the reason."""
    return [_section(plan, finished, no_texts) for plan in PLANS]


def _section(plan: _Plan, finished: FinishedExperiment, no_texts: str | None) -> Section:
    if plan.needs_texts and no_texts:
        return Section(name=plan.name, title=plan.title, notes=[NO_TEXTS])
    logger.info(f"report: {plan.title.lower()}")
    parts: list[Part] = []
    notes = []
    try:
        parts.extend(plan.make(finished))
    except (OSError, ValueError) as error:
        notes.append(f"Not made: {explain(error)}")
        logger.info(f"report: {plan.title.lower()}: {notes[0]}")
    return Section(
        name=plan.name,
        title=plan.title,
        notes=notes,
        drawings=[part for part in parts if isinstance(part, Drawing)],
        grids=[part for part in parts if isinstance(part, HtmlTable)],
    )


def _learning(finished: FinishedExperiment) -> Iterator[Part]:
    rows = progress(finished).rows
    figures = {
        name: ends for name in ("bleu", "loss") if (ends := first_to_last(rows, name))
    }  # language models have no BLEU
    titles = {"bleu": "BLEU", "loss": "Loss"}
    title = f"Validation loss{' and BLEU' if 'bleu' in figures else ''} against updates"
    description = (
        "Lines are means over seeds, bands go from the lowest to the highest. From first to last validation, "
        + " ".join(f"{titles[name]}: {ends}." for name, ends in figures.items())
    )
    yield embed_figure(learning_plot(rows), "learning", title, description)


def _quality(finished: FinishedExperiment) -> Iterator[Part]:
    rows = progress(finished).rows
    for cost, axis in SPENT.items():
        if cost == "updates" or any(row[cost] is None for row in rows):
            continue  # the learning curves show updates; not every machine reads its joules
        title = f"Validation BLEU against {axis}"
        description = (
            f"From first to last validation, BLEU: {first_to_last(rows, 'bleu')}. "
            f"Cost up to these validations: {first_to_last(rows, cost)}."
        )
        yield embed_figure(progress_plot(rows, cost), f"cost-{cost}", title, description, choice=cost)
    yield html_table(mean_over_seeds(time_to_quality(rows)), "Cost of reaching shares of the best BLEU")


def _pareto(finished: FinishedExperiment) -> Iterator[Part]:
    table = pareto(finished)
    rivals: dict[Rival, tuple[str, str]] = {
        "beam_sentences_per_s": ("speed_front", "decoding speed"),
        "params": ("size_front", "number of parameters"),
    }
    for rival, (front, words) in rivals.items():
        title = f"Test BLEU against {words}"
        on = ", ".join(str(row["label"]) for row in table.rows if row[front])
        description = f"On the front, where no other model is better in one and as good in the other: {on}."
        yield embed_figure(pareto_plot(table.rows, rival), f"pareto-{rival}", title, description)
    yield html_table(table, "Models on the Pareto fronts")


def _lengths(finished: FinishedExperiment) -> Iterator[Part]:
    for make, plot, name, words in (
        (by_length, length_plot, "length", "length of the source"),
        (by_distance, distance_plot, "distance", "distance to the lengths of training"),
    ):
        table, title = make(finished), f"BLEU and chrF by {words}"
        description = f"From the first group to the last, BLEU: {first_to_last(table.rows, 'bleu')}."
        yield embed_figure(plot(table.rows), name, title, description)
        yield html_table(mean_over_seeds(table), title)


def _words(finished: FinishedExperiment) -> Iterator[Part]:
    test = finished.corpus.tests[0]
    table = rare_words(finished, test)
    title = "Recall and precision of words by training count"
    description = (
        f"Recall from the rarest group to the most frequent: {first_to_last(table.rows, 'recall_percent')}."
    )
    yield embed_figure(word_plot(table.rows), "words", title, description)
    yield html_table(mean_over_seeds(table), "Words by training count")
    yield html_table(mean_over_seeds(copies_and_numbers(finished, test)), "Names and numbers")


def _faults(finished: FinishedExperiment) -> Iterator[Part]:
    yield html_table(mean_over_seeds(behaviour(finished)), "Faults of the translations")


PLANS = (
    _Plan("learning-curves", "Learning curves", False, _learning),
    _Plan("time-to-quality", "Time to quality", False, _quality),
    _Plan("pareto", "Quality against speed and size", False, _pareto),
    _Plan("speed", "Speed", False, speed),
    _Plan("lengths", "Quality by length", True, _lengths),
    _Plan("rare-words", "Rare words, names and numbers", True, _words),
    _Plan("faults", "Repetition, truncation, length", True, _faults),
)
"""The sections in the order of the page."""
