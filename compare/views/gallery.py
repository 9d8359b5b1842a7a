"""Every figure of a finished experiment under its name, to be drawn alone."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compare.hint import hint
from compare.views.plots import FORMATS, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from compare.analysis.finished import Finished


class Kind(NamedTuple):
    """A figure that one call draws."""

    about: str
    draw: Callable[["Finished"], "Figure"]


def draw_kind(folder: Path, kind: str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Draw one figure of an experiment into ``folder``/plots; returns the files.

    Raises:
        ValueError: no such figure or format, no finished run, or figures that were not measured.
    """
    from compare.analysis.finished import load_finished

    if kind not in KINDS:
        raise ValueError(f"no figure {kind!r}; {hint(kind, KINDS)}")
    if unknown := [form for form in formats if form not in FORMATS]:
        raise ValueError(f"no format {unknown[0]!r}: choose of {', '.join(FORMATS)}")
    return save_figure(KINDS[kind].draw(load_finished(folder)), folder / "plots" / kind, formats)


def _learning(against: str, finished: "Finished") -> "Figure":
    from compare.metrics import read_metrics
    from compare.views.plots import learning_curves

    metrics = {name: read_metrics(run.folder / "metrics.jsonl") for name, run in finished.named.items()}
    return learning_curves(metrics, against=against)  # type: ignore[arg-type]


def _length(finished: "Finished") -> "Figure":
    from compare.analysis.lengths import by_length
    from compare.views.figures import length_plot

    return length_plot(by_length(finished).rows)


def _distance(finished: "Finished") -> "Figure":
    from compare.analysis.lengths import by_distance
    from compare.views.figures import distance_plot

    return distance_plot(by_distance(finished).rows)


def _words(finished: "Finished") -> "Figure":
    from compare.analysis.words import rare_words
    from compare.views.figures import word_plot

    return word_plot(rare_words(finished, finished.corpus.tests[0]).rows)


def _progress(against: str, finished: "Finished") -> "Figure":
    from compare.analysis.efficiency import progress
    from compare.views.figures import progress_plot

    return progress_plot(progress(finished).rows, against)  # type: ignore[arg-type]


def _pareto(against: str, finished: "Finished") -> "Figure":
    from compare.analysis.efficiency import pareto
    from compare.views.figures import pareto_plot

    return pareto_plot(pareto(finished).rows, against)  # type: ignore[arg-type]


KINDS: dict[str, Kind] = {
    "learning-updates": Kind("validation loss and BLEU over updates", partial(_learning, "update")),
    "learning-seconds": Kind("the same over seconds of training", partial(_learning, "seconds")),
    "length": Kind("BLEU and chrF by words of the source", _length),
    "distance": Kind("BLEU and chrF by distance to the lengths of training", _distance),
    "rare-words": Kind("recall and precision of words by their count in training", _words),
    "quality-seconds": Kind("validation BLEU against seconds of training", partial(_progress, "seconds")),
    "quality-updates": Kind("validation BLEU against updates", partial(_progress, "updates")),
    "quality-tokens": Kind("validation BLEU against tokens", partial(_progress, "tokens")),
    "quality-flops": Kind("validation BLEU against operations of training", partial(_progress, "flops")),
    "quality-joules": Kind("validation BLEU against energy, where it was read", partial(_progress, "joules")),
    "pareto-speed": Kind(
        "test BLEU against decoding speed, and who is on the front", partial(_pareto, "beam_sentences_per_s")
    ),
    "pareto-size": Kind("test BLEU against parameters, and who is on the front", partial(_pareto, "params")),
}
"""Each figure by name; the heat-maps of attention, one a model and sentence, are ``publish.draw``'s."""
