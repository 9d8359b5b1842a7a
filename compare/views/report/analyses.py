"""The parts of the page that an analysis fills: its plots, its tables, or why it cannot be made."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from compare.analysis.behaviour import behaviour
from compare.analysis.copies import copies_and_numbers
from compare.analysis.efficiency import pareto, progress, time_to_quality
from compare.analysis.finished import Finished
from compare.analysis.lengths import by_distance, by_length
from compare.analysis.over_seeds import over_seeds
from compare.analysis.words import rare_words
from compare.views.figures import distance_plot, length_plot, pareto_plot, progress_plot, word_plot
from compare.views.figures.costs import SPENT, Rival
from compare.views.report.curves import learning_plot
from compare.views.report.drawings import draw
from compare.views.report.parts import Drawing, Grid, Part, Section, explain, first_to_last, grid
from compare.views.report.speed import speed

NO_TEXTS = "Not made: the texts cannot be read."

Make = Callable[[Finished], Iterator[Part]]


class _Plan(NamedTuple):
    """A section before it is made."""

    name: str
    title: str
    needs_texts: bool
    make: Make


def sections(finished: Finished, no_texts: str | None, say: Callable[[str], None]) -> list[Section]:
    """Every analysis of an experiment; one that cannot be made says why."""
    return [_section(plan, finished, no_texts, say) for plan in PLANS]


def _section(plan: _Plan, finished: Finished, no_texts: str | None, say: Callable[[str], None]) -> Section:
    if plan.needs_texts and no_texts:
        return Section(name=plan.name, title=plan.title, notes=[NO_TEXTS])
    say(f"report: {plan.title.lower()}")
    parts: list[Part] = []
    notes = []
    try:
        parts.extend(plan.make(finished))
    except (OSError, ValueError) as error:
        notes.append(f"Not made: {explain(error)}")
        say(f"report: {plan.title.lower()}: {notes[0]}")
    return Section(
        name=plan.name,
        title=plan.title,
        notes=notes,
        drawings=[part for part in parts if isinstance(part, Drawing)],
        grids=[part for part in parts if isinstance(part, Grid)],
    )


def _learning(finished: Finished) -> Iterator[Part]:
    rows = progress(finished).rows
    title = "Validation loss and BLEU against updates"
    description = (
        "Lines are means over seeds, bands go from the lowest to the highest. From first to last validation, "
        f"BLEU: {first_to_last(rows, 'bleu')}. Loss: {first_to_last(rows, 'loss')}."
    )
    yield draw(learning_plot(rows), "learning", title, description)


def _quality(finished: Finished) -> Iterator[Part]:
    rows = progress(finished).rows
    for cost, axis in SPENT.items():
        if cost == "updates" or any(row[cost] is None for row in rows):
            continue  # the learning curves show updates; not every machine reads its joules
        title = f"Validation BLEU against {axis}"
        description = (
            f"From first to last validation, BLEU: {first_to_last(rows, 'bleu')}. "
            f"What that had cost by then: {first_to_last(rows, cost)}."
        )
        yield draw(progress_plot(rows, cost), f"cost-{cost}", title, description, choice=cost)
    yield grid(over_seeds(time_to_quality(rows)), "What shares of the best BLEU cost")


def _pareto(finished: Finished) -> Iterator[Part]:
    table = pareto(finished)
    rivals: dict[Rival, tuple[str, str]] = {
        "beam_sentences_per_s": ("speed_front", "decoding speed"),
        "params": ("size_front", "number of parameters"),
    }
    for rival, (front, words) in rivals.items():
        title = f"Test BLEU against {words}"
        on = ", ".join(str(row["label"]) for row in table.rows if row[front])
        description = f"On the front, where no other model is better in one and as good in the other: {on}."
        yield draw(pareto_plot(table.rows, rival), f"pareto-{rival}", title, description)
    yield grid(table, "Who is on a front")


def _lengths(finished: Finished) -> Iterator[Part]:
    for make, plot, name, words in (
        (by_length, length_plot, "length", "length of the source"),
        (by_distance, distance_plot, "distance", "distance to the lengths of training"),
    ):
        table, title = make(finished), f"BLEU and chrF by {words}"
        description = f"From the first group to the last, BLEU: {first_to_last(table.rows, 'bleu')}."
        yield draw(plot(table.rows), name, title, description)
        yield grid(over_seeds(table), title)


def _words(finished: Finished) -> Iterator[Part]:
    test = finished.corpus.tests[0]
    table = rare_words(finished, test)
    title = "Recall and precision of words by how often training has them"
    description = (
        f"Recall from the rarest group to the most frequent: {first_to_last(table.rows, 'recall_percent')}."
    )
    yield draw(word_plot(table.rows), "words", title, description)
    yield grid(over_seeds(table), "Words by how often training has them")
    yield grid(over_seeds(copies_and_numbers(finished, test)), "Names and numbers")


def _faults(finished: Finished) -> Iterator[Part]:
    yield grid(over_seeds(behaviour(finished)), "Faults of the translations")


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
