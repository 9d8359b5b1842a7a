"""The content of the report, and its rendering as one HTML file."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from compare.analysis.comparison import describe_smallest, headlines, smallest_differences
from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.intervals import ScoredTestSet, match_runs, score_tests
from compare.analysis.tables import Table
from compare.attention import viewer
from compare.attention.viewer import AttentionViewer, read_asset, render_page
from compare.report.conditions import find_warnings
from compare.report.html.results import choose_reference, result_table, run_comparisons, significance
from compare.report.html.sections import (
    NO_TEXTS,
    Methods,
    Section,
    alignment_section,
    analyses,
    methods,
    tuning_section,
)
from compare.report.html.sentences import Sentence, attention_viewer, draw_numbers, draw_sentences
from compare.results.columns import PRIMARY
from compare.results.store import refuse_writing
from compare.system.messages import explain
from compare.training.serialization import CHECKPOINTS
from data.files import write_atomically

# Content of the page, gathered from an experiment's folder before the layout.


logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """The content of the page."""

    title: str
    facts: Sequence[str]
    """Corpus, numbers of models, seeds and finished runs, and budget, each as a short text."""
    languages: tuple[str, str]
    """Source and target language."""
    summary: Sequence[str]
    """One sentence per model other than the best."""
    unknown: Sequence[str]
    """Limits of the evidence, and their reasons."""
    results: Table
    """One row per model, with the rows of its runs as "runs"."""
    reference: str
    """Model that the others are compared with; empty where nothing is compared."""
    sections: Sequence[Section]
    """Significance, the analyses, tuning if there was a search, and alignment."""
    viewer: AttentionViewer
    sentences: Sequence[Sentence]
    seed: int
    """Seed by which the sentences were drawn."""
    methods: Methods


def gather_content(
    folder: Path, *, baseline: str = "", tuning: Path | None = None, data_root: str = ""
) -> ReportContent:
    """Read an experiment and analyse it.

    Args:
        folder: the experiment's folder.
        baseline: label of the model to compare the others with; empty: the model with the highest BLEU.
        tuning: folder of the search that tuned the models; None: the experiment's own, if it has trials.
        data_root: the folder of the corpus; empty: that of the config.

    Raises:
        OSError: ``data_root`` cannot be read, or ``tuning`` has no trials.
        ValueError: no finished run, or a result or its settings cannot be read, no such baseline, or
            ``data_root`` is not the corpus of the runs.
    """
    finished = load_finished(folder, data_root=data_root, needs_texts=False)
    reference = choose_reference(finished, baseline)
    seed, test = finished.runs[0].run.train.seed, finished.corpus.tests[0]
    logger.info("report: scores of resampled test sets")
    scored: Mapping[str, ScoredTestSet] = {} if finished.no_texts else score_tests(finished)
    comparisons, not_compared = [], finished.no_texts and NO_TEXTS
    try:
        comparisons = run_comparisons(scored, reference) if scored else []
    except ValueError as error:
        not_compared = explain(error)
    if not_compared:
        tests = Section(name="significance", title="Significance", notes=[not_compared])
        summary = ["The models were not compared: see below."]
    else:
        smallest = describe_smallest(smallest_differences(match_runs(scored), len(comparisons)))
        tests = significance(
            comparisons, list(dict.fromkeys(row.label for row in finished.results)), smallest
        )
        summary = headlines(
            finished, [each for each in comparisons if (each.test, each.metric) == (test, PRIMARY)]
        )
    tuned = tuning_section(finished, tuning)
    others = analyses(finished)
    aligned, chosen = alignment_section(finished)
    numbers = draw_numbers(len(finished.corpus.splits[test].src), seed)
    return ReportContent(
        title=folder.resolve().name,
        facts=_facts(finished),
        languages=(finished.corpus.src_lang, finished.corpus.tgt_lang),
        summary=summary,
        unknown=unknown(finished),
        results=result_table(finished, scored, comparisons, reference),
        reference=reference if comparisons else "",
        sections=[tests, *others, *([tuned] if tuned else []), aligned],
        viewer=attention_viewer(finished, numbers, chosen),
        sentences=draw_sentences(finished, scored, seed),
        seed=seed,
        methods=methods(finished),
    )


def unknown(finished: FinishedExperiment) -> list[str]:
    """List the conclusions that the page does not support, with their reasons."""
    found = [
        f"{row.label}, seed {row.seed}: {row.status}" + (f" ({row.reason})" if row.reason else "")
        for row in finished.results
        if row.status != "done"
    ]
    if finished.no_texts:
        found.append(
            f"Texts cannot be read: {finished.no_texts} Intervals, paired tests, sentences and alignment are "
            "therefore not shown."
        )
    if not all((run.folder / CHECKPOINTS).is_dir() for run in finished.runs):
        found.append("Runs without weights, such as published ones, show neither attention nor alignment.")
    single = [label for label, runs in finished.labels.items() if len(runs) == 1]
    if single:
        who = "Every model" if len(single) == len(finished.labels) else ", ".join(single)
        found.append(f"{who} ran with one seed: what other seeds would give is not known.")
    if all(run.result.energy_j_per_1k_tokens is None for run in finished.runs):
        found.append("Energy was not read on this machine.")
    return found + find_warnings([run.result.flat() for run in finished.runs])


def _facts(finished: FinishedExperiment) -> list[str]:
    corpus = finished.corpus
    seeds, labels = ({getattr(row, name) for row in finished.results} for name in ("seed", "label"))
    budgets = dict.fromkeys(row.budget for row in finished.results if row.budget)
    sizes = [f"{name} {len(pairs.src):,}" for name, pairs in corpus.splits.items() if pairs.src]
    return [
        f"{corpus.name}, {corpus.src_lang} to {corpus.tgt_lang}"
        + (f": {', '.join(sizes)} pairs" if sizes else ""),
        f"{len(labels)} models, {len(seeds)} {'seeds' if len(seeds) > 1 else 'seed'}",
        f"{len(finished.runs)} of {len(finished.results)} runs finished",
        *(f"equal {budget}" for budget in budgets),
    ]


# Render the content of the report as one HTML file.


NAME = "report.html"
PACKAGE = "compare.report.html"


def build_report(
    folder: str | Path,
    *,
    baseline: str = "",
    tuning: str | Path | None = None,
    out: str | Path | None = None,
    data_root: str = "",
) -> Path:
    """Write an experiment's page, one self-contained file.

    Args:
        folder: the folder of an experiment with at least one finished run.
        baseline: the label to set the other models against; empty: that of the highest BLEU.
        tuning: folder that ``tune_experiment`` wrote; None: ``folder``, if it has a trials.jsonl.
        out: the file; by default report.html in ``folder``.
        data_root: the folder of the corpus; empty: that of the config.

    Returns:
        Path of the file.

    Raises:
        OSError: ``out`` cannot be written, or ``data_root`` not be read.
        ValueError: no finished run, or a result or its settings cannot be read, no such baseline,
            ``data_root`` is not the corpus of the runs, or ``out`` is not given for a published or read-only
            folder.
    """
    folder = Path(folder)
    if out is None:
        refuse_writing(folder, "name another file for its report with --out")
    path = folder / NAME if out is None else Path(out)
    if path.is_dir():
        raise ValueError(f"--out {path} is a folder: name a file, such as {path / NAME}")
    search = None if tuning is None else Path(tuning)
    content = gather_content(folder, baseline=baseline, tuning=search, data_root=data_root)
    write_atomically(path, render(content))
    logger.info(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return path


def render(content: ReportContent) -> str:
    """Render the page; text of models and data is escaped, and only this package's script may run."""
    return render_page(
        PACKAGE,
        "template.html.j2",
        scripts=[read_asset(viewer.PACKAGE, viewer.VIEWER_SCRIPT), read_asset(PACKAGE, "report.js")],
        styles=[read_asset(viewer.PACKAGE, viewer.VIEWER_STYLE), read_asset(PACKAGE, "report.css")],
        page=content,
        viewer=asdict(content.viewer),
    )
