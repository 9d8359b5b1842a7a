"""View of experiments in a terminal: the table that fits its width, and what `run` prints below it."""

import shlex
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from compare.analysis.seeds import describe_seeds
from compare.config.sections import EXTERNAL
from compare.report.conditions import (
    describe_ends,
    describe_models,
    distinct,
    find_warnings,
    list_left_out,
    name_models,
)
from compare.report.result_table import (
    Budget,
    default_shape,
    find_summary,
    frame_rows,
    load_table,
)
from compare.report.table_formats import table_text, terminal
from compare.results.columns import (
    COLUMNS,
    PRIMARY,
    are_language_models,
    bleu_and_interval_column,
    bleu_interval_column,
    further_tests,
    score_column,
    setting_column,
    varied_settings,
)
from compare.results.formatting import UNKNOWN, Column, Row, Table
from compare.results.store import (
    fill_model_settings,
    fill_settings,
    has_means,
    load_results,
    of_budget,
    read_results,
    write_protection,
)
from compare.system.messages import program_name
from compare.system.plugins import plugin_problem

# The table: columns that fit the width, outcome, warnings, the next step.


def show_experiment(
    folder: Path,
    *,
    width: int,
    only: Collection[str] = (),
    data_root: str = "",
    closing: bool = False,
    budget: int | None = None,
) -> str:
    """Format the results of an experiment for a terminal: means if models have several seeds.

    With ``closing``, the next command is left out, since ``show_closing`` follows.
    """
    results = of_budget(read_results(folder), budget)
    shown = fill_model_settings(
        (folder, result.flat()) for result in results if not only or result.label in only
    )
    problems = [problem for result in results if (problem := plugin_problem(folder / result.run))]
    if problems or not any(result.status == "done" for result in results):
        return terminal(
            screen_table(shown, shown, [f"no means: {problem}" for problem in problems[:1]]), width
        )
    summary = find_summary(folder, results, data_root)
    rows = fill_model_settings((folder, row) for row in summary.means if not only or row["label"] in only)
    outcome = [] if only and set(only) != {result.label for result in results} else summary.outcome
    table = screen_table(rows if has_means(results) else shown, shown, outcome)
    path, has_file = shlex.quote(str(folder)), (folder / "table.md").is_file()
    text = terminal(table, width) + _more(f"{folder}/table.md" if has_file else _table_command(path))
    out = " --out report.html" if write_protection(folder) else ""
    return text if closing else f"{text}next:\n  {program_name()} report {path}{out}\n"


def show_experiments(
    folders: Sequence[Path], *, width: int, data_root: str = "", budget: Budget = None
) -> str:
    """Show several experiments, budgets or single runs in one table."""
    shape = default_shape(folders, budget)
    rows = frame_rows(load_table(folders, shape, data_root=data_root, budget=budget))
    runs = frame_rows(load_results(*folders, budget=budget))
    paths = " ".join(shlex.quote(str(folder)) for folder in folders)
    return terminal(screen_table(rows, runs), width) + _more(_table_command(paths))


def _table_command(paths: str) -> str:
    return f"{program_name()} table --columns all {paths}"


def _more(where: str) -> str:
    return f"\nmore columns and conditions:\n  {where}\n"


def screen_table(rows: Sequence[Row], runs: Sequence[Row], outcome: Sequence[str] = ()) -> Table:
    """Make the table for a terminal, sorted by quality, the most important columns first.

    The ``rows`` stand for ``runs``; ``outcome`` has lines above the table.
    """
    ended = [run for run in runs if run["status"] == "done"]
    ordered = sorted(fill_settings(rows), key=lambda row: -(row.get(PRIMARY) or -1.0))
    if are_language_models(ended or rows):
        ordered = sorted(ordered, key=lambda row: row.get("perplexity") or float("inf"))
    ordered.sort(key=lambda row: row.get("budget") or 0)
    models = [f"{name}: {'; '.join(texts)}." for name, texts in describe_models(ended).items() if texts]
    return Table(
        "",
        ordered,
        layout=_screen_columns(ordered),
        outcome=outcome,
        conditions=[line for line in (*models, _shared(ended)) if line],
        warnings=[*list_left_out(runs), *find_warnings(ended)],
    )


MOST_SETTINGS = 3
"""Most settings of models that stand before the other columns, which may not fit the screen."""


def _screen_columns(rows: Sequence[Row]) -> list[Column]:
    within = varied_settings(rows, within_preset=True)
    varied = [name for name in within if name.startswith("model.")][:MOST_SETTINGS]
    early, late = (
        [replace(setting_column(name), title=name.removeprefix("model.")) for name in names]
        for names in (varied, [name for name in varied_settings(rows) if name not in varied])
    )
    if "seeds" in rows[0]:
        primary = [score_column(PRIMARY), bleu_interval_column("combined")]
    else:
        primary = [COLUMNS["seed"], bleu_and_interval_column()]
        primary = primary[len({row.get("seed") for row in rows}) == 1 :]
    columns = [COLUMNS["label"], *primary]
    if len({row.get("experiment") for row in rows}) > 1:
        columns.insert(1, COLUMNS["experiment"])
    if any(row.get("status", "done") != "done" for row in rows):
        columns.insert(1, COLUMNS["status"])
    if len({row.get("budget") for row in rows}) > 1:
        columns.insert(0, COLUMNS["budget"])
    columns += [replace(score_column(PRIMARY, test), title=test) for test in further_tests(rows[0])]
    columns += early
    columns += [COLUMNS["perplexity"] if are_language_models(rows) else _bare(score_column("chrf"))]
    columns += [
        _bare(COLUMNS["train_tokens_per_s"], "train tok/s"),
        _bare(COLUMNS["beam_sentences_per_s"], "sent/s"),
        _bare(COLUMNS["train_s"], "min"),
        _bare(COLUMNS["params"], "params", "M"),
    ]
    columns += late
    return [column for column in columns if any(column.text(row) != UNKNOWN for row in rows)]


def _bare(column: Column, heading: str = "", suffix: str = "") -> Column:
    """Return a column of bare values, without deviation and spread; large ones in thousands, "16.6k"."""

    def text(row: Mapping[str, Any]) -> str:
        value = row.get(column.name)
        if value is not None and not column.unit and value >= 10_000:
            return f"{value / 1000:,.1f}k"
        return UNKNOWN if value is None else column.text({column.name: value}) + suffix

    return Column(column.name, heading or column.heading, cell=text)


def _shared(runs: Sequence[Row]) -> str:
    updates, threads = (distinct(runs, name) for name in ("updates", "threads"))
    on_gpu = any("gpu" in device.lower() or "nvidia" in device.lower() for device in distinct(runs, "device"))
    trained = [run for run in runs if run.get("preset") != EXTERNAL]
    parts = [describe_seeds(zip(name_models(trained), (run["seed"] for run in trained), strict=True))]
    parts += [f"equal {quantity}" for quantity in distinct(runs, "matched")]
    parts += [f"{int(updates[0]):,} updates"] if len(updates) == 1 else []
    parts += [end for end in describe_ends(runs) if end.startswith("stopped")]
    parts += ["fine-tuned from the weights of other runs"] if distinct(runs, "init_hash") else []
    parts += [
        f"the first {cut} sentences of each test set" for cut in distinct(runs, "data.max_test") if cut != "0"
    ]
    plural = "s" if threads != ["1"] else ""
    is_of_training = len(threads) == 1 and not on_gpu and not distinct(runs, "trained_on")
    parts += [f"{threads[0]} CPU thread{plural}"] if is_of_training else []
    return ", ".join(part for part in parts if part) + "." if any(parts) else ""


# Text that `run` prints below its table: BLEU by length, one sentence, a picture, the next commands.


CLOSING_WIDTH, NAME_WIDTH = 97, 30
"""Characters of a line, and of a label that stands on the line of its translation."""


def show_closing(folder: Path, labels: Collection[str]) -> str:
    """Describe finished translation models below their table, and draw their quality by length.

    The sentence is the longest of the first test set, translated by the lowest seed of each model.
    """
    # Imported here: tables need neither torch nor matplotlib.
    from compare.analysis.finished_experiment import load_finished
    from compare.analysis.quality import by_length
    from compare.report.drawing import plots_folder, save_figure
    from compare.report.plots import PLOTS

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
