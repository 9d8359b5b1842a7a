"""Compare an experiment with those beside it that lack one technique each: a table, or a figure.

    python -m benchmarks.ablation results/multi30k-ablation FIGURE.png [--corpora FOLDER]

The others are in folders whose names begin alike, such as multi30k-ablation-without-dropout. FOLDER holds
the corpus, as FOLDER/multi30k. Differences are in BLEU on the first test set; Holm's correction is for all
changes of a model.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from matplotlib.figure import Figure

from compare.analysis.comparison import Comparison, compare_models
from compare.analysis.finished_experiment import FinishedExperiment, load_finished, load_runs
from compare.analysis.statistics import score_test_set
from compare.config.parse import load_experiment
from compare.models.styles import Style
from compare.report.drawing import REFERENCE_LINE, finish_figure, line_style, make_panels, save_figure

ALL = "all techniques"
ROW_SHIFT = 0.25
"""Distance between the models of one change; changes are 1 apart."""


class Variant(NamedTuple):
    """Score of a model in one experiment, and its difference from that with all techniques."""

    label: str
    change: str
    bleu: float
    """Mean over seeds."""
    difference: Comparison | None
    """None for the experiment with all techniques."""


def compare_variants(folder: Path, corpus: str) -> list[Variant]:
    """Compare every model of an experiment with itself in those beside it.

    Args:
        folder: of the experiment with all techniques.
        corpus: folder of the corpus; empty: that of the config.

    Raises:
        OSError: a file cannot be read.
        ValueError: a run failed or none is finished, or an experiment has another corpus.
    """
    full, start = load_finished(folder, data_root=corpus), f"{folder.name}-"
    changed = {
        path.name.removeprefix(start).replace("-", " "): load_finished(path, data_root=corpus)
        for path in sorted(folder.parent.glob(f"{start}*"))
    }
    for experiment in (full, *changed.values()):
        if failed := [result.run for result in experiment.results if result.status == "failed"]:
            names = ", ".join(failed)
            raise ValueError(f"{experiment.folder}: {names} failed: an ablation needs all runs")
        if experiment.corpus.content_hash != full.corpus.content_hash:
            raise ValueError(f"{experiment.folder} has another corpus than {folder}: they do not compare")
    return [variant for label in full.labels for variant in _variants(label, full, changed)]


def _variants(label: str, full: FinishedExperiment, changed: dict[str, FinishedExperiment]) -> list[Variant]:
    test = full.corpus.tests[0]
    outputs = {
        change: {run.result.seed: run.outputs[test] for run in experiment.labels[label]}
        for change, experiment in {ALL: full, **changed}.items()
        if label in experiment.labels
    }
    scored = score_test_set(test, full.corpus.splits[test].tgt, outputs)
    compared = compare_models({test: scored}, baseline=ALL)
    differences = {each.first: each for each in compared}
    return [
        Variant(label, change, fmean(run.score for run in runs.values()), differences.get(change))
        for change, runs in scored.models.items()
    ]


def draw_variants(variants: Sequence[Variant], styles: Mapping[str, Style]) -> Figure:
    """Draw the difference that each change makes to each model, with its 95% interval."""
    labels = list(dict.fromkeys(variant.label for variant in variants))
    changes = list(dict.fromkeys(variant.change for variant in variants if variant.difference))
    figure, (axes,) = make_panels(1, legend_entries=len(labels))
    for index, label in enumerate(labels):
        found = {variant.change: variant.difference for variant in variants if variant.label == label}
        drawn = [(row, each) for row, change in enumerate(changes) if (each := found.get(change))]
        rows = [row + ROW_SHIFT * (index - (len(labels) - 1) / 2) for row, _ in drawn]
        style = line_style(styles[label])
        axes.plot([each.difference for _, each in drawn], rows, **style | {"linestyle": ""})
        for row, (_, each) in zip(rows, drawn, strict=True):
            axes.hlines(row, *each.interval, colors=style["color"])
    axes.axvline(0, **REFERENCE_LINE)
    axes.set_yticks(range(len(changes)), changes)
    axes.invert_yaxis()
    axes.set(xlabel=f"BLEU, difference from {ALL} (95% interval)")
    return finish_figure(figure, labels)


def main() -> int:
    """Draw the figure; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="experiment with all techniques")
    parser.add_argument("figure", type=Path, help="PNG, SVG or PDF to write")
    parser.add_argument("--corpora", type=Path, help="folder of corpora")
    options = parser.parse_args()
    root = load_experiment(options.folder / "experiment.toml").data.root
    corpus = str(options.corpora / Path(root).name) if options.corpora and root else ""
    figure = draw_variants(compare_variants(options.folder, corpus), load_runs(options.folder).styles)
    save_figure(figure, options.figure.with_suffix(""), [options.figure.suffix.removeprefix(".")])
    return 0


if __name__ == "__main__":
    sys.exit(main())
