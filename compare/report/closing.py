"""What `run` prints below its table: BLEU by length, one sentence, a picture, the next commands."""

import os
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from statistics import fmean

from compare.analysis.finished_experiment import load_finished
from compare.analysis.quality import by_length
from compare.report.drawing import plots_folder, save_figure
from compare.report.plots import PLOTS
from compare.results.table import Row

CLOSING_WIDTH, NAME_WIDTH = 97, 30
"""Characters of its lines, and of a label in them."""


def show_closing(folder: Path) -> str:
    """Describe a finished experiment of translation below its table, and draw its quality by length.

    The sentence is the longest one of the first test set, translated by the lowest seed of each model.
    """
    finished = load_finished(folder, needs_texts=False)
    if finished.no_texts:  # as those of language models
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
    left = min(max(map(len, texts)), NAME_WIDTH) + 2
    sentences = [
        f"{_cut(name):<{left}}{textwrap.shorten(text, CLOSING_WIDTH - left, placeholder=' ...')}"
        for name, text in texts.items()
    ]
    program, model = program_name(), firsts[next(reversed(finished.trained.labels))].folder
    commands = [
        f"{program} report {shlex.quote(str(folder))}",
        f"echo {shlex.quote(encoded[line])} | {program} translate {shlex.quote(str(model))}",
    ]
    parts = [
        length_chart(rows),
        "\n".join(sentences),
        f"picture: {picture}",
        "next:\n  " + "\n  ".join(commands),
    ]
    return "\n" + "\n\n".join(parts) + "\n"


def length_chart(rows: Sequence[Row]) -> str:
    """Draw BLEU by length as text, one line per model; mean over seeds.

    Args:
        rows: of ``by_length``.
    """
    names = list(dict.fromkeys(row["source_words"] for row in rows))
    models = {row["label"]: [each for each in rows if each["label"] == row["label"]] for row in rows}
    left = min(max(map(len, models)), NAME_WIDTH) + 2
    cell = min(16, (CLOSING_WIDTH - left) // len(names))
    lines = ["BLEU by words of the source", " " * left + "".join(f"{name:<{cell}}" for name in names)]
    for label, found in models.items():
        means = [fmean(row["bleu"] for row in found if row["source_words"] == name) for name in names]
        bars = [f"{mean:3.0f} {'#' * round(mean / 100 * (cell - 5))}" for mean in means]
        lines.append(f"{_cut(label):<{left}}" + "".join(f"{bar:<{cell}}" for bar in bars))
    return "\n".join(line.rstrip() for line in lines)


def _cut(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 3]}..."


def program_name() -> str:
    """Return how this shell starts the program: its name if that is found, else its path."""
    script = Path(sys.executable).with_name("attnbench")
    if (found := which("attnbench")) and Path(found).parent == script.parent:
        return "attnbench"
    if script.is_file():
        return shlex.quote(os.path.relpath(script))
    return f"{shlex.quote(sys.executable)} -m compare"
