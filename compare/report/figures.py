"""Figures of a finished experiment, each by its name, and heat maps of the attention for one sentence."""

import hashlib
import logging
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from compare.analysis.efficiency import COSTS, SIZE, SPEED, pareto, progress, tuning_curve
from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.quality import by_distance, by_length, rare_words
from compare.experiment.tune import TRIALS, read_trials
from compare.report.plots import (
    FORMATS,
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
from compare.results.result import Result
from compare.results.store import is_run, read_result, read_results
from compare.system.messages import did_you_mean
from data.files import ensure_regular, write_atomically
from data.text import read_lines

if TYPE_CHECKING:
    from compare.attention.sentence_attention import SentenceAttention

logger = logging.getLogger(__name__)


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
    _, draw = FIGURES[kind]
    return save_figure(draw(load_finished(folder, data_root=data_root)), plots / kind, formats)


def _learning(against: str, finished: FinishedExperiment) -> Figure:
    """Draw learning curves, each run under a name of its own."""
    names = {(run.result.label, run.result.seed): name for name, run in finished.named.items()}
    rows = [row | {"label": names[row["label"], row["seed"]]} for row in progress(finished).rows]
    return learning_plot(rows, against)


def _quality(against: str, finished: FinishedExperiment) -> Figure:
    return progress_plot(progress(finished).rows, against)


def _tuning(finished: FinishedExperiment) -> Figure:
    path = finished.folder / TRIALS
    trials = read_trials(finished.folder) if path.exists() else []
    if not trials:
        raise ValueError(
            f"{path}: no trials of a search: publish the experiment with --tuning FOLDER of attnbench tune"
        )
    return tuning_plot(tuning_curve(trials).rows)


FIGURES: dict[str, tuple[str, Callable[[FinishedExperiment], Figure]]] = {
    "learning-updates": ("validation loss and BLEU over updates", partial(_learning, "updates")),
    "learning-seconds": ("the same over seconds of training", partial(_learning, "seconds")),
    "length": ("BLEU and chrF by words of the source", lambda each: length_plot(by_length(each).rows)),
    "distance": (
        "BLEU and chrF by distance to the lengths of training",
        lambda each: distance_plot(by_distance(each).rows),
    ),
    "rare-words": (
        "recall and precision of words by their count in training",
        lambda each: word_plot(rare_words(each, each.corpus.tests[0]).rows),
    ),
    **{
        f"quality-{cost}": (
            f"validation BLEU against {axis}",
            partial(_quality, cost),
        )
        for cost, axis in COSTS.items()
    },
    "pareto-speed": (
        "test BLEU against decoding speed, with the Pareto front",
        lambda each: pareto_plot(pareto(each).rows, SPEED),
    ),
    "pareto-size": (
        "test BLEU against parameters, with the Pareto front",
        lambda each: pareto_plot(pareto(each).rows, SIZE),
    ),
    "tuning": ("expected best validation BLEU against trials of the search", _tuning),
}
"""Figures of a whole experiment by name: what each shows, and the function that draws it."""
ATTENTION = "attention"
"""Name of the heat maps of one sentence, which ``draw_attention`` draws."""


# Heat maps of the attention of finished runs for one sentence: a test sentence, or one of the user's own.


PAGE = "html"
"""Format of the interactive viewer."""
ATTENTION_FORMATS = (*FORMATS, PAGE)
SLUG_LENGTH = 24
"""Characters of the sentence in a file name; a part of its sha256 follows."""


def draw_attention(
    folder: str | Path,
    sentence: str | None = None,
    *,
    line: int = 1,
    model: str = "",
    formats: Sequence[str] = ("png", "svg"),
    out: str | Path | None = None,
    pieces: bool = False,
    self_attention: bool = False,
) -> list[Path]:
    """Translate one sentence with finished runs, and draw the attention weights of every head and layer.

    Args:
        folder: the folder of an experiment, or of a single run.
        sentence: the source sentence; by default line ``line`` of the first test set.
        line: number of the test sentence, counted from 1.
        model: label of a model, of which the lowest seed counts, or name of a run; empty: all models.
        formats: some of png, svg, pdf, and html, an interactive viewer of all models on one page.
        out: the file, whose ending is its format, or a folder; by default plots in the experiment's folder.
            There the names contain the model and the sentence, so that no figure replaces that of another.
        pieces: draw the pieces of the vocabulary instead of words.
        self_attention: also draw the attention within the source and within the translation, which the
            viewer always has.

    Returns:
        The files.

    Raises:
        ValueError: an empty sentence, no finished run, no such model, format or line, one image file for
            several models, a model without weights or, if it is the only one, without attention, or ``out``
            is not given for a published or read-only folder.
    """
    from compare.attention.viewer import render_viewer

    folder = Path(folder)
    if sentence is not None and (not sentence.strip() or len(sentence.splitlines()) > 1):
        raise ValueError(f"the sentence must be one line that is not empty, found {sentence!r:.80}")
    runs = find_runs(folder, model)
    experiment = next(iter(runs.values())).parent
    file = _output_file(out)
    if file:
        formats = [file.suffix.removeprefix(".")]
    if unknown := [form for form in formats if form not in ATTENTION_FORMATS]:
        raise ValueError(f"no format {unknown[0]!r}: choose from {', '.join(ATTENTION_FORMATS)}")
    if file and formats != [PAGE] and len(runs) > 1:
        raise ValueError(
            f"{file} can show one model, but there are {len(runs)}: choose one of {', '.join(runs)} with "
            f"--model, or a file that ends in .{PAGE}, which shows all"
        )
    plots = file.parent if file else plots_folder(experiment, out)
    name = _slug(sentence) if sentence is not None else f"line{line}"
    text = read_test_line(experiment, line) if sentence is None else sentence
    found = attend_with(runs, text)
    written: list[Path] = []
    if PAGE in formats:
        target = file or plots / f"attention-{'-'.join([model, name] if model else [name])}.{PAGE}"
        page = render_viewer(text, [(each if pieces else each.words()).viewed() for each in found.values()])
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, page)
        written.append(target)
    images = [form for form in formats if form != PAGE]
    for label, attention in found.items():
        if images:
            if len(found) > 1 and not _can_be_drawn(attention, self_attention):
                logger.info(f"{label} has no attention to the source")
                continue
            path = file.with_suffix("") if file else plots / f"attention-{label}-{name}"
            figure = attention.plot(pieces=pieces, self_attention=self_attention)
            written += save_figure(figure, path, images)
    return written


def attend_with(runs: Mapping[str, Path], sentence: str) -> dict[str, "SentenceAttention"]:
    """Return the attention of each run for a sentence, under the names given."""
    from compare.results.run_folder import load_model

    return {name: replace(load_model(run).attend(sentence), label=name) for name, run in runs.items()}


def draw_test_line(runs: Mapping[str, Path], experiment: Path, line: int, plots: Path) -> list[Path]:
    """Draw the attention of runs, by the names given, for a sentence of the first test set."""
    written: list[Path] = []
    for label, attention in attend_with(runs, read_test_line(experiment, line)).items():
        if _can_be_drawn(attention):
            written += save_figure(attention.plot(), plots / f"attention-{label}-line{line}")
    return written


def read_test_line(experiment: Path, line: int) -> str:
    """Read one source line of the first test set from the experiment's folder."""
    ensure_regular(experiment / "test.src")
    lines = read_lines(experiment / "test.src")
    if not 1 <= line <= len(lines):
        raise ValueError(f"line {line} is not in the test set of {experiment}, which has {len(lines)} lines")
    return lines[line - 1]


def _can_be_drawn(attention: "SentenceAttention", self_attention: bool = False) -> bool:
    """Return whether the model has an attention that a figure shows."""
    return any(self_attention or layer.name.startswith("cross") for layer in attention.layers())


def find_runs(folder: Path, model: str = "") -> dict[str, Path]:
    """Return the folders of finished runs, those of the lowest seed by label.

    Args:
        folder: an experiment or a single run.
        model: only this label, or the run of this name; empty: all labels.

    Raises:
        ValueError: no finished run, or no such model.
    """
    single = is_run(folder)
    results = [read_result(folder)] if single else read_results(folder)
    finished = [result for result in results if result.status == "done"]
    if not finished:
        raise ValueError(f"{folder} holds no finished run")
    named = {result.run: result for result in finished}
    firsts: dict[str, Result] = {}
    for result in sorted(finished, key=lambda result: result.seed):
        firsts.setdefault(result.label, result)
    ordered = {result.label: firsts[result.label] for result in finished}
    if model and model not in ordered and model not in named:
        raise ValueError(
            f"no finished model is labelled {model!r}; {did_you_mean(model, [*ordered, *named])}"
        )
    chosen = {model: ordered.get(model) or named[model]} if model else ordered
    return {name: folder if single else folder / result.run for name, result in chosen.items()}


def _output_file(out: str | Path | None) -> Path | None:
    """Return ``out`` if it names a file; None for a folder."""
    path = None if out is None else Path(out)
    return path if path and path.suffix and not path.is_dir() else None


def _slug(sentence: str) -> str:
    """Return the first words of a sentence and a part of its sha256, as a part of a file name."""
    words = textwrap.shorten(re.sub(r"\W+", " ", sentence.lower()), SLUG_LENGTH, placeholder="")
    words = words.replace(" ", "-")
    digest = hashlib.sha256(sentence.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{words}-{digest}" if words else digest
