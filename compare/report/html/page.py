"""The report: results and significance, its content, and its rendering as one HTML file."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compare.analysis.comparison import (
    Comparison,
    choose_reference,
    compare_all,
    compared_with,
)
from compare.analysis.cost import budget_table, cost_points
from compare.analysis.finished_experiment import FinishedExperiment, load_finished
from compare.analysis.seeds import describe_seeds
from compare.analysis.similarity import NEAREST, nearest_row
from compare.analysis.statistics import ALPHA, POWER, ScoredTestSet, aggregate_seeds
from compare.attention.viewer import AttentionViewer, read_asset, render_page
from compare.report.conditions import find_warnings, list_left_out
from compare.report.html.examples import Sentence, attention_viewer, draw_numbers, draw_sentences
from compare.report.html.sections import (
    Methods,
    Part,
    Section,
    alignment_section,
    analyses,
    make_section,
    methods,
    tuning_section,
)
from compare.report.result_table import default_columns, find_summary
from compare.results.columns import (
    COLUMNS,
    INTERVALS,
    PRIMARY,
    are_language_models,
    bleu_interval_column,
    score_column,
)
from compare.results.formatting import UNKNOWN, Column, Table
from compare.results.store import Result, fill_model_settings, is_setting, refuse_writing
from data.files import write_atomically

logger = logging.getLogger(__name__)

# Significance and results.


def significance(comparisons: Sequence[Comparison]) -> Iterator[Part]:
    """Yield the rule for a win, and all comparisons."""
    yield (
        f"One model beats another if p < {ALPHA}, both have several seeds, and no run of either failed. The "
        "test is Welch's t test over seeds, to which the variance over test sentences is added. Holm's "
        f"correction covers the {len(comparisons)} comparisons on this page. BLEU on {comparisons[0].test} "
        "decides; other scores and test sets are only shown."
    )
    yield Table(
        "Differences in mean BLEU between two models, with the 95% interval and p-value of the test, and "
        "the p-value after Holm's correction. A true difference of the detectable size would be significant "
        f"with {POWER:.0%} probability.",
        [
            {
                "model": comparison.first,
                "against": comparison.second,
                "seeds": " and ".join(map(str, dict.fromkeys(comparison.seeds))),
                "difference": comparison.difference,
                "95% interval": f"{comparison.interval.low:.2f} to {comparison.interval.high:.2f}",
                "p": comparison.p_alone,
                "p by Holm": comparison.p,
                "detectable difference": comparison.smallest,
                "verdict": comparison.verdict,
            }
            for comparison in comparisons
        ],
        "Every comparison",
        optional={"seeds", "p"},
    )


def describe_verdict(side: Comparison) -> str:
    """Format a comparison: ▲ first wins, ▼ loses, △ ▽ the same for one seed, ≈ alike, else no mark."""
    if side.failed:
        return "runs failed"
    marks = {"decided": "▲▼", "one seed": "△▽", "alike": "≈≈"}.get(side.kind)
    mark = f"{marks[side.difference < 0]} " if marks else ""
    low, high = (f"{end:+.1f}".replace("-", "−") for end in side.interval)
    difference = f"{side.difference:+.1f}".replace("-", "−")
    return f"{mark}{difference} [{low}, {high}]"


# Result table of the page: one row per model, which unfolds into one row per run.


SHOWN = ("params", "length_ratio", "train_tokens_per_s", "beam_sentences_per_s", "train_s", "status")
"""Columns shown at first, beside BLEU, its widest interval, the verdict and chrF: they fit 1280 pixels."""


def result_table(
    finished: FinishedExperiment,
    scored: Mapping[str, ScoredTestSet],
    comparisons: Sequence[Comparison],
    reference: str,
) -> Table:
    """Build the result table, whose rows hold the rows of their runs as "runs".

    Without texts, ``scored`` is empty, and without comparisons, ``comparisons``.
    """
    folder, results = finished.folder, finished.results
    means = {
        row["label"]: row
        for row in fill_model_settings((folder, row) for row in aggregate_seeds(finished, scored))
    }
    rows_of_runs = fill_model_settings((folder, result.flat()) for result in results)
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.label, []).append(result)
    against = f"against {reference}"
    verdicts = compared_with(comparisons, reference)
    differences = {reference: 0.0} | {label: comparison.difference for label, comparison in verdicts.items()}
    rows: list[dict[str, Any]] = [
        {
            **means.get(label, {}),
            "label": label,
            "title": COLUMNS["label"].text({"label": label, "preset": of_label[0].preset}),
            "status": _status(of_label),
            against: differences.get(label),
            "runs": [{**row, "label": None} for row in rows_of_runs if row["label"] == label],
        }
        for label, of_label in groups.items()
    ]
    if not finished.no_texts:
        rows.append({**nearest_row(finished), "title": NEAREST, "status": "baseline", "runs": []})
    every = [*rows, *(run for row in rows for run in row["runs"])]

    def text(row: Mapping[str, Any]) -> str:
        comparison = verdicts.get(row["label"])
        return (
            describe_verdict(comparison) if comparison else "itself" if row["label"] == reference else UNKNOWN
        )

    columns = [
        column
        for column in default_columns(every, means=True)
        if (column.group != "identity" or is_setting(column.name))
        and column.shown != "if chosen"
        and any(column.text(row) != UNKNOWN for row in every)
    ]
    intervals = [column for kind in INTERVALS if (column := bleu_interval_column(kind)) in columns]
    if verdicts:
        columns.insert(1 + columns.index(intervals[-1]), Column(against, against, group="quality", cell=text))
    if any(result.status != "done" for result in finished.results):
        columns.append(COLUMNS["status"])
    at_once = {score_column(PRIMARY).heading, score_column("chrf").heading, against}
    at_once |= {column.heading for column in (*intervals[-1:], *(COLUMNS[name] for name in SHOWN))}
    if are_language_models(run for row in rows for run in row["runs"]):
        at_once.add(COLUMNS["perplexity"].heading)
    optional = {column.heading for column in columns} - at_once
    return Table("", rows, layout=columns, optional=optional)


def _status(results: Sequence[Result]) -> str:
    others = [COLUMNS["status"].text(result.flat()) for result in results if result.status != "done"]
    if len(results) == 1 or not others:
        return others[0] if others else "done"
    return "; ".join([f"{len(results) - len(others)} of {len(results)} done", *dict.fromkeys(others)])


# Content of the page, gathered from an experiment's folder before the layout.


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """The content of the page."""

    title: str
    facts: Sequence[str]
    languages: tuple[str, str]
    summary: Sequence[str]
    budgets: Table | None
    """BLEU by model and budget; None with one budget."""
    unknown: Sequence[str]
    """Limits of the evidence."""
    results: Table
    """One row per model, with the rows of its runs as "runs"."""
    reference: str
    """The model that the others are compared with; empty if nothing is compared."""
    sections: Sequence[Section]
    viewer: AttentionViewer
    sentences: Sequence[Sentence]
    seed: int
    """Seed of the random choice of sentences."""
    methods: Methods


def gather_content(folder: Path, *, tuning: Path | None = None, data_root: str = "") -> ReportContent:
    """Read and analyse an experiment; arguments and errors as for ``build_report``."""
    finished = load_finished(folder, data_root=data_root, needs_texts=False)
    reference = choose_reference(finished)
    seed, test = finished.runs[0].run.train.seed, finished.corpus.tests[0]
    tuned = tuning_section(finished, tuning)  # first, as it may refuse ``tuning``
    logger.info("report: scores of resampled test sets")
    scored, comparisons, summary = compare_all(finished)
    budgets = None
    if finished.is_largest_budget:
        budgets = budget_table(cost_points(finished).rows)
        summary = find_summary(folder, finished.results, data_root).outcome
    parts = significance(comparisons) if comparisons else summary
    tests = make_section("significance", "Significance", parts)
    cost, *others = analyses(finished)
    aligned, chosen = alignment_section(finished)
    table = result_table(finished, scored, comparisons, reference)
    return ReportContent(
        title=folder.resolve().name,
        facts=_facts(finished),
        languages=(finished.corpus.src_lang, finished.corpus.tgt_lang),
        summary=summary,
        budgets=budgets,
        unknown=unknown(finished),
        results=table,
        reference=reference if comparisons else "",
        sections=[cost, tests, *others, *([tuned] if tuned else []), aligned],
        viewer=attention_viewer(finished, draw_numbers(len(finished.corpus.splits[test].src), seed), chosen),
        sentences=draw_sentences(finished, seed),
        seed=seed,
        methods=methods(finished),
    )


def unknown(finished: FinishedExperiment) -> list[str]:
    """List conclusions that the page does not support, with reasons."""
    notes = list_left_out([result.flat() for result in finished.results])
    if finished.no_texts:
        notes.append(
            f"{finished.no_texts} So intervals, tests, analyses of texts, sentences and alignment are "
            "not shown."
        )
    trained = finished.trained
    if bare := sum(not run.weights.is_file() for run in trained.runs):
        notes.append(
            f"{bare} of {len(trained.runs)} runs have no weights, as published ones: they show no attention, "
            "and alignment is not measured."
        )
    single = [label for label, runs in trained.labels.items() if len(runs) == 1]
    if single:
        who = "Every model" if len(single) == len(trained.labels) else ", ".join(single)
        notes.append(f"{who} finished with one seed: the variation between seeds is unknown.")
    if trained.runs and all(run.result.energy_j_per_1k_tokens is None for run in trained.runs):
        notes.append("This machine does not report energy.")
    return notes + find_warnings([run.result.flat() for run in finished.runs])


def _facts(finished: FinishedExperiment) -> list[str]:
    corpus = finished.corpus
    labels = {row.label for row in finished.results}
    seeds = describe_seeds((row.label, row.seed) for row in finished.results if not row.is_external)
    matched = dict.fromkeys(row.matched for row in finished.results if row.matched)
    sizes = [f"{name} {len(pairs.src):,}" for name, pairs in corpus.splits.items() if pairs.src]
    return [
        f"{corpus.name}, {corpus.src_lang} to {corpus.tgt_lang}"
        + (f": {', '.join(sizes)} pairs" if sizes else ""),
        f"{len(labels)} models, {seeds}",
        f"{len(finished.runs)} of {len(finished.results)} runs finished",
        *(f"equal {quantity}" for quantity in matched),
        *(
            [f"budgets of {', '.join(f'{budget:,}' for budget in finished.budgets)} updates"]
            * bool(finished.budgets)
        ),
    ]


# Render the content of the report as one HTML file.


NAME = "report.html"
PACKAGE = "compare.report.html"


def build_report(
    folder: str | Path,
    *,
    tuning: str | Path | None = None,
    out: str | Path | None = None,
    data_root: str = "",
) -> Path:
    """Write an experiment's page, one self-contained file.

    Args:
        folder: the folder of an experiment with at least one finished run.
        tuning: folder that ``tune_experiment`` wrote; None: ``folder``, if it has a trials.jsonl.
        out: the file; by default report.html in ``folder``.
        data_root: the folder of the corpus; empty: that of the config.

    Returns:
        Path of the file.

    Raises:
        OSError: ``out`` cannot be written, or ``data_root`` not be read.
        ValueError: no finished run, or a result or its settings cannot be read, ``data_root`` is not the
            corpus of the runs, or ``out`` is not given for a published or read-only folder.
    """
    folder = Path(folder)
    if out is None:
        refuse_writing(folder, "name another file for its report with --out")
    path = folder / NAME if out is None else Path(out)
    if path.is_dir():
        raise ValueError(f"--out {path} is a folder: name a file, such as {path / NAME}")
    search = None if tuning is None else Path(tuning)
    content = gather_content(folder, tuning=search, data_root=data_root)
    write_atomically(path, render(content))
    logger.info(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return path


def render(content: ReportContent) -> str:
    """Render the page; text of models and data is escaped, and only this package's script may run."""
    return render_page(
        PACKAGE,
        "template.html.j2",
        scripts=[read_asset(PACKAGE, "report.js")],
        styles=[read_asset(PACKAGE, "report.css")],
        page=content,
        viewer=asdict(content.viewer),
    )
