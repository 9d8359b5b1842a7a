"""Text that `run` prints below its table: BLEU by length, one sentence, a picture, the next commands."""

import shlex
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from compare.analysis.finished_experiment import load_finished
from compare.analysis.quality import by_length
from compare.report.drawing import plots_folder, save_figure
from compare.report.plots import PLOTS
from compare.report.render import table_text
from compare.results.table import Row
from compare.system.messages import program_name

CLOSING_WIDTH, NAME_WIDTH = 97, 30
"""Characters of a line, and of a label that stands on the line of its translation."""


def show_closing(folder: Path, labels: Collection[str]) -> str:
    """Describe finished translation models below their table, and draw their quality by length.

    The sentence is the longest of the first test set, translated by the lowest seed of each model.
    """
    finished = load_finished(folder, needs_texts=False)
    finished = replace(finished, runs=tuple(run for run in finished.runs if run.result.label in labels))
    if finished.no_texts:  # language models translate nothing
        return ""
    rows = by_length(finished).rows
    figure = PLOTS["length"].plot(rows, finished.styles)
    picture, *_ = save_figure(figure, plots_folder(folder, None) / "length")
    test = finished.corpus.tests[0]
    sources, encoded = finished.sources(test), finished.corpus.splits[test].src
    line = max(range(len(sources)), key=lambda index: len(sources[index].split()))
    texts = {"source": sources[line], "reference": finished.references(test)[line]}
    firsts = {label: min(runs, key=lambda run: run.result.seed) for label, runs in finished.labels.items()}
    texts |= {label: run.outputs[test][line] for label, run in firsts.items()}
    left = max(map(len, texts)) + 2
    above = left - 2 > NAME_WIDTH  # long labels have a line of their own
    left = 2 if above else left
    sentences = [
        (f"{name}\n  " if above else f"{name:<{left}}")
        + textwrap.shorten(text, CLOSING_WIDTH - left, placeholder=" ...")
        for name, text in texts.items()
    ]
    program, model = program_name(), firsts[next(reversed(finished.trained.labels))].folder
    commands = [
        f"{program} report {shlex.quote(str(folder))}",
        f"echo {shlex.quote(encoded[line])} | {program} translate {shlex.quote(str(model))}",
    ]
    parts = [
        length_table(rows),
        "\n".join(sentences),
        f"picture: {picture}",
        "next:\n  " + "\n  ".join(commands),
    ]
    return "\n" + "\n\n".join(parts) + "\n"


def length_table(rows: Sequence[Row]) -> str:
    """Format mean BLEU over seeds by length, one line per model; ``rows`` are those of ``by_length``."""
    heading = "BLEU by words of the source"
    scores: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        scores.setdefault(row["label"], {}).setdefault(row["source_words"], []).append(row["bleu"])
    lines = [
        {heading: label, **{words: f"{fmean(values):.0f}" for words, values in by_words.items()}}
        for label, by_words in scores.items()
    ]
    return table_text(lines, {heading}, CLOSING_WIDTH)
