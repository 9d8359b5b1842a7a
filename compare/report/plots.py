"""Figures of a finished experiment, each by its name, and heat maps of the attention for one sentence."""

import hashlib
import logging
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.figure import Figure

from compare.analysis.cost import COSTS, cost_points, progress, time_to_quality
from compare.analysis.efficiency import SIZE, SPEED, pareto, tuning_curve
from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.quality import by_length, by_similarity, rare_words
from compare.analysis.statistics import check_label
from compare.experiment.prepare import load_corpus
from compare.experiment.tune import read_trials
from compare.protocol import attends_to_source
from compare.report.drawing import (
    FORMATS,
    RATES,
    Styles,
    cost_plot,
    curves_plot,
    groups_plot,
    pareto_plot,
    plots_folder,
    quality_bars,
    save_figure,
    tuning_plot,
)
from compare.report.figures import FIGURES
from compare.results.formatting import Row, Table
from compare.results.run_folder import RunFolder, load_model
from compare.results.store import Result, is_run, read_result, read_results
from compare.system.messages import did_you_mean
from compare.training.checkpoints import WEIGHTS
from data.files import write_atomically

if TYPE_CHECKING:
    from compare.attention.weights import SentenceAttention

logger = logging.getLogger(__name__)


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
        out: the file, whose ending is its format, or a folder; by default plots in ``folder``.
        data_root: the folder of the corpus; empty: that of the config.

    Returns:
        The files.

    Raises:
        ValueError: unknown figure or format, no finished run, a quantity that was not measured, or ``out`` is
            not given for a published or read-only folder.
    """
    folder = Path(folder)
    if kind not in PLOTS:
        raise ValueError(f"no figure {kind!r}; {did_you_mean(kind, FIGURES, 0.6)}")
    if file := output_file(out):
        formats = [file.suffix.removeprefix(".")]
    if unknown := [form for form in formats if form not in FORMATS]:
        raise ValueError(f"no format {unknown[0]!r}: choose from {', '.join(FORMATS)}")
    path = file.with_suffix("") if file else plots_folder(folder, out) / kind
    plan = PLOTS[kind]
    finished = load_finished(folder, data_root=data_root, needs_texts=plan.needs_texts)
    return save_figure(plan.plot(plan.table(finished).rows, finished.styles), path, formats)


class Plan(NamedTuple):
    """A figure of a whole experiment, for ``attnbench plot`` and for the report."""

    plot: Callable[[Sequence[Row], Styles], Figure]
    table: Callable[[FinishedExperiment], Table]
    """The analysis that the command draws; the report has its rows already."""
    needs_texts: bool = False


WORDS = "words of the source (sentences)"
NEAREST = "similarity of the source to the nearest training sentence (sentences)"
COUNTS = "times that training has a word (words in the reference)"
groups_of_sentences = partial(groups_plot, size="sentences")
PLOTS = {
    "learning-updates": Plan(partial(curves_plot, against="updates"), progress),
    "learning-minutes": Plan(partial(curves_plot, against="minutes"), progress),
    "length": Plan(
        partial(groups_of_sentences, group="source_words", title=WORDS), by_length, needs_texts=True
    ),
    "similarity": Plan(
        partial(groups_of_sentences, group="similarity", title=NEAREST), by_similarity, needs_texts=True
    ),
    "rare-words": Plan(
        partial(groups_plot, group="training_count", size="ref_words", title=COUNTS, columns=RATES),
        rare_words,
        needs_texts=True,
    ),
    "cost": Plan(partial(cost_plot, against="flops"), cost_points),
    "cost-loss": Plan(partial(cost_plot, against="flops", quality="loss"), cost_points),
    **{
        f"cost-{cost}": Plan(partial(cost_plot, against=cost), cost_points)
        for cost in COSTS
        if cost != "flops"
    },
    "time-to-quality": Plan(quality_bars, lambda finished: time_to_quality(cost_points(finished).rows)),
    "pareto-speed": Plan(partial(pareto_plot, against=SPEED), pareto),
    "pareto-size": Plan(partial(pareto_plot, against=SIZE), pareto),
    "tuning": Plan(tuning_plot, lambda finished: tuning_curve(read_trials(finished.folder))),
}
"""Figures of a whole experiment, by names of ``FIGURES``."""


def draw_plots(folder: str | Path, *, out: str | Path | None = None, data_root: str = "") -> list[Path]:
    """Draw curves of all models, and heat maps of their attention for the first test sentence.

    Heat maps need the corpus and weights; models without weights have none. ``draw_attention`` draws any
    sentence.

    Args:
        folder: the folder of an experiment.
        out: the folder of the plots; by default plots in ``folder``.
        data_root: the folder of the corpus, which must then be readable; empty: that of the config.

    Returns:
        The PNG and SVG files; none if no run is finished.

    Raises:
        ValueError: the folder holds no runs, or ``out`` is not given for a published or read-only folder.
    """
    folder = Path(folder)
    if (file := output_file(out)) and file.suffix.removeprefix(".") in ATTENTION_FORMATS:
        raise ValueError(f"{out} is one file, but several figures are drawn: name a folder, or one figure")
    plots = plots_folder(folder, out)
    if not any(result.status == "done" and not result.is_external for result in read_results(folder)):
        logger.info(f"{folder}: no finished run to plot")
        return []
    finished = load_finished(folder, data_root=data_root, needs_texts=False).trained
    written = []
    for name in ("learning-updates", "learning-minutes", *["cost"] * (len(finished.budgets) > 1)):
        plan = PLOTS[name]
        written += save_figure(plan.plot(plan.table(finished).rows, finished.styles), plots / name)
    if finished.no_texts:
        logger.info(f"no heat maps of attention: {finished.no_texts}")
        return written
    runs = {label: run for label, run in find_runs(folder).items() if (run / WEIGHTS).is_file()}
    if len(runs) < len(finished.labels):
        logger.info(f"{folder}: heat maps of attention need weights, which models here lack")
    sentence = finished.corpus.splits[finished.corpus.tests[0]].src[0]
    for label, attention in attend_with(runs, sentence).items():
        if any(map(attends_to_source, attention.weights)):
            written += save_figure(attention.plot(), plots / f"attention-{label}-line1")
    return written


# Heat maps of the attention of finished runs for one sentence: a test sentence, or one of the user's own.


PAGE = "html"
ATTENTION_FORMATS = (*FORMATS, PAGE)
SLUG_LENGTH = 24
"""Characters of the sentence in a file name; a part of its hash follows."""


def draw_attention(
    folder: str | Path,
    sentence: str | None = None,
    *,
    translation: str | None = None,
    line: int = 1,
    model: str = "",
    formats: Sequence[str] = ("png", "svg"),
    out: str | Path | None = None,
    data_root: str = "",
) -> list[Path]:
    """Translate one sentence with finished runs, and draw the attention of every head to the source.

    The viewer also has the attention within the source and within the translation.

    Args:
        folder: the folder of an experiment, or of a single run.
        sentence: the source sentence; by default line ``line`` of the first test set.
        translation: the translation to read it for, such as the reference; by default each model's own.
        line: number of the test sentence, counted from 1.
        model: label of a model, of which the lowest seed with weights counts, or name of a run; empty: all.
        formats: some of png, svg, pdf, and html, an interactive viewer of all models on one page.
        out: the file, whose ending is its format, or a folder; by default plots in the experiment's folder.
            There the names contain the model and the sentence, so that no figure replaces that of another.
        data_root: the folder of the corpus, if a test sentence is drawn; empty: that of the config.

    Returns:
        The files.

    Raises:
        ValueError: an empty sentence, no finished run, no such model, format or line, one image file for
            several models, a model without weights or, if it is the only one, without attention, or ``out``
            is not given for a published or read-only folder.
    """
    from compare.attention.weights import render_viewer

    folder = Path(folder)
    for argument in (sentence, translation):
        if argument is not None and (not argument.strip() or len(argument.splitlines()) > 1):
            raise ValueError(f"the sentence must be one line that is not empty, found {argument!r:.80}")
    runs = find_runs(folder, model)
    first = next(iter(runs.values()))
    file = output_file(out)
    if file:
        formats = [file.suffix.removeprefix(".")]
    if unknown := [form for form in formats if form not in ATTENTION_FORMATS]:
        raise ValueError(f"no format {unknown[0]!r}: choose from {', '.join(ATTENTION_FORMATS)}")
    if file and formats != [PAGE] and len(runs) > 1:
        raise ValueError(
            f"{file} can show one model, but there are {len(runs)}: choose one of {', '.join(runs)} with "
            f"--only, or a file that ends in .{PAGE}, which shows all"
        )
    plots = file.parent if file else plots_folder(first.parent, out)
    name = _slug(sentence) if sentence is not None else f"line{line}"
    if translation is not None:
        name += f"-{_slug(translation)}"
    text = read_test_line(first, line, data_root) if sentence is None else sentence
    attentions = attend_with(runs, text, translation)
    written: list[Path] = []
    if PAGE in formats:
        target = file or plots / f"attention-{'-'.join([model, name] if model else [name])}.{PAGE}"
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, render_viewer(text, list(attentions.values())))
        written.append(target)
    images = [form for form in formats if form != PAGE]
    for label, attention in attentions.items() if images else ():
        if len(attentions) > 1 and not any(map(attends_to_source, attention.weights)):
            logger.info(f"{label} has no attention to the source")
            continue
        path = file.with_suffix("") if file else plots / f"attention-{label}-{name}"
        written += save_figure(attention.plot(), path, images)
    return written


def attend_with(
    runs: Mapping[str, Path], sentence: str, translation: str | None = None
) -> dict[str, "SentenceAttention"]:
    """Return the attention of each run for a sentence, and for a translation if there is one, by name."""
    attentions = {}
    for name, run in runs.items():
        result, translator = read_result(run), load_model(run)
        attention = translator.attend(sentence, translation)
        details = [f"{result.updates:,} updates"]
        if result.bleu is not None:
            details.insert(0, f"BLEU {result.bleu:.1f}")
        attentions[name] = replace(attention, label=name, details=", ".join(details))
    return attentions


def read_test_line(run: Path, line: int, data_root: str) -> str:
    """Read one source line of the first test set of a run; ``line`` counts from 1."""
    corpus = load_corpus(RunFolder.read(run, data_root=data_root).run.data)
    lines = corpus.splits[corpus.tests[0]].src
    if not 1 <= line <= len(lines):
        raise ValueError(f"line {line} is not in {corpus.tests[0]}, which has {len(lines)} lines")
    return lines[line - 1]


def find_runs(folder: Path, model: str = "") -> dict[str, Path]:
    """Return the folders of finished runs by label, without external systems.

    The lowest seed with weights stands for a label, or without weights the lowest seed. ``model`` selects one
    label, or the run of that name.

    Raises:
        ValueError: no finished run, or no such model.
    """
    single = is_run(folder)
    results = [read_result(folder)] if single else read_results(folder)
    finished = [result for result in results if result.status == "done" and not result.is_external]
    if not finished:
        raise ValueError(f"{folder} holds no finished run")
    named = {result.run: result for result in finished}
    firsts: dict[str, Result] = {}
    paths = {result.run: folder if single else folder / result.run for result in finished}

    def order(result: Result) -> tuple[bool, int, int]:
        return not (paths[result.run] / WEIGHTS).is_file(), result.seed, -(result.budget or 0)

    for result in sorted(finished, key=order):
        firsts.setdefault(result.label, result)
    ordered = {result.label: firsts[result.label] for result in finished}
    if model:
        check_label(model, [*ordered, *named])
    chosen = {model: ordered.get(model) or named[model]} if model else ordered
    return {name: paths[result.run] for name, result in chosen.items()}


def output_file(out: str | Path | None) -> Path | None:
    """Return ``out`` if it names a file; None for a folder."""
    path = None if out is None else Path(out)
    return path if path and path.suffix and not path.is_dir() else None


def _slug(sentence: str) -> str:
    words = textwrap.shorten(re.sub(r"\W+", " ", sentence.lower()), SLUG_LENGTH, placeholder="")
    words = words.replace(" ", "-")
    digest = hashlib.sha256(sentence.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{words}-{digest}" if words else digest
