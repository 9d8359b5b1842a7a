"""Commands that show, check and publish results: table, plot, report, check, publish."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Literal

import typer

import compare
from compare.cli import options as cli
from compare.report.table_formats import terminal_width
from compare.system.log import show_messages
from data.text import visible


def _columns() -> Sequence[Mapping[str, Any]]:
    from compare.results.columns import explain_columns

    return explain_columns()


def _figures() -> Sequence[Mapping[str, Any]]:
    from compare.report.figures import FIGURES

    return [{"figure": name, "what it shows": title} for name, title in FIGURES.items()]


@cli.app.command(cls=cli.Command)
def table(
    folders: Annotated[list[Path], typer.Argument(help="Experiment folders, or folders of single runs.")],
    form: Annotated[
        str, typer.Option("--format", help="markdown, csv, json or latex [default: what fits a screen].")
    ] = "",
    shape: Annotated[
        str,
        typer.Option(help="rows (one per run) or aggregated (means over seeds) [default: by the format]."),
    ] = "",
    columns: Annotated[
        str,
        typer.Option(help="Headings or fields, separated by commas, or all [default: what fits a screen]."),
    ] = "",
    list_columns: Annotated[bool, cli.list_option("Explain all columns.", _columns)] = False,
    caption: Annotated[str, typer.Option(help="Caption of the LaTeX table.")] = "",
    budget: Annotated[
        str, typer.Option(help="One of train.budgets, or all [default: the largest finished].")
    ] = "",
    corpus: cli.CorpusFolder = "",
    as_json: cli.AsJson = False,
) -> int:
    r"""Print the results of experiments as one table.

    Without options, the table has the columns that fit a screen. Markdown and LaTeX show means over seeds if
    all runs are done, else one row per run; CSV and JSON have one row per run, with every field. LaTeX is a
    table to \input.

    Example: attnbench table runs/demo --columns "model,BLEU,train (min)" --format latex
    """
    from compare.report.result_table import (
        Budget,
        default_shape,
        ensure_form,
        find_summary,
        refresh_views,
    )
    from compare.report.screen import show_experiment, show_experiments
    from compare.results.store import of_budget, read_results

    show_messages()
    is_for_screen = not (as_json or form or columns or shape or caption)
    form = "json" if as_json else form or "markdown"
    ensure_form(form)
    if budget not in ("", "all") and not budget.isdecimal():
        raise ValueError(f"--budget {budget}: must be a number of updates, or all")
    chosen_budget = int(budget) if budget.isdecimal() else None
    shown_budget: Budget = "all" if budget == "all" else chosen_budget
    for folder in folders:
        refresh_views(folder)
    is_one = len(folders) == 1 and (folders[0] / "experiment.json").is_file()
    if caption and form != "latex":
        raise ValueError("--caption has no effect without --format latex: leave it out")
    if is_for_screen:
        width = terminal_width()
        if is_one and budget != "all":
            text = show_experiment(folders[0], width=width, data_root=corpus, budget=chosen_budget)
        else:
            text = show_experiments(folders, width=width, data_root=corpus, budget=shown_budget)
        cli.print_visible(text, end="")
        return 0
    if not shape:
        shape = "rows" if form in ("csv", "json") else default_shape(folders, shown_budget)
    frame = compare.load_table(folders, shape, data_root=corpus, budget=shown_budget)
    chosen = cli.parse_list("" if columns == "all" else columns)
    runs = () if shape == "rows" else compare.load_results(*folders, budget=shown_budget)
    outcome: list[str] = []
    if is_one and not chosen and budget != "all" and form in ("markdown", "latex"):
        with suppress(ValueError):  # no run is finished, or a plug-in is not here
            results = of_budget(read_results(folders[0]), chosen_budget)
            outcome = find_summary(folders[0], results, corpus).outcome
    text = compare.render_table(frame, form, chosen or None, caption=caption, runs=runs, outcome=outcome)
    cli.print_visible(text, end="")
    return 0


@cli.app.command(cls=cli.Command)
def plot(
    folder: Annotated[Path, typer.Argument(help="An experiment folder; for attention, also a run folder.")],
    kind: Annotated[
        str, typer.Argument(help="Draw only this figure of --list [default: curves and heat maps].")
    ] = "",
    forms: Annotated[
        str, typer.Option("--format", help="png, svg, pdf; attention also html [default: png,svg].")
    ] = "",
    sentence: Annotated[str | None, typer.Option(help="Draw the attention for this sentence.")] = None,
    translation: Annotated[
        str | None, typer.Option(help="Draw it for this translation [default: the model's own].")
    ] = None,
    line: Annotated[
        int | None, typer.Option(help="Draw the attention for this line of the test set [default: 1].")
    ] = None,
    model: Annotated[str, typer.Option("--only", help="Draw only the attention of this model or run.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="Output folder, or for one figure a file [default: plots/].")
    ] = None,
    corpus: cli.CorpusFolder = "",
    list_figures: Annotated[bool, cli.list_option("List the figures.", _figures)] = False,
    quiet: cli.Quiet = False,
) -> int:
    """Draw learning curves, attention or another figure.

    Attention shows every head; a file that ends in .html is an interactive viewer.

    Example: attnbench plot runs/demo --sentence "The old woman must open the door." --out heads.html
    """
    from compare.report.figures import ATTENTION
    from compare.report.plots import output_file
    from compare.report.result_table import refresh_views

    of_attention = any(option is not None for option in (sentence, translation, line, model or None))
    kind = kind or (ATTENTION if of_attention else "")
    if kind != ATTENTION and of_attention:
        raise ValueError(f"--sentence, --translation, --line and --only have no effect on {kind}")
    if forms and not kind:
        raise ValueError(
            "--format is for one figure, such as `attnbench plot FOLDER learning-updates`: name it"
        )
    if forms and (file := output_file(out)) and forms != file.suffix.removeprefix("."):
        raise ValueError(f"--out {out} already sets the format: leave --format out, or name a folder")
    if sentence is not None and line is not None:
        raise ValueError("--sentence and --line exclude each other: leave one out")
    formats = cli.parse_list(forms) or ["png", "svg"]
    if kind == ATTENTION:
        line = 1 if line is None else line
        written = compare.draw_attention(
            folder,
            sentence,
            translation=translation,
            line=line,
            model=model,
            formats=formats,
            out=out,
            data_root=corpus,
        )
    else:
        refresh_views(folder)
        if kind:
            written = compare.draw_figure(folder, kind, formats, out=out, data_root=corpus)
        else:
            written = compare.draw_plots(folder, out=out, data_root=corpus)
    for path in written:
        cli.print_visible(path)
    return 0


@cli.app.command(cls=cli.Command)
def report(
    folder: cli.Folder,
    tuning: Annotated[
        Path | None, typer.Option(help="Folder of the search to show [default: the experiment's].")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output file [default: the folder's report.html].")] = None,
    corpus: cli.CorpusFolder = "",
    quiet: cli.Quiet = False,
) -> int:
    """Write report.html: an experiment on one page.

    Results, significance tests, analyses and example sentences, in a single self-contained file.

    Example: attnbench report runs/demo
    """
    from compare.report.result_table import refresh_views

    cli.ensure_suffix(out, ".html")
    refresh_views(folder)
    cli.print_visible(compare.build_report(folder, tuning=tuning, out=out, data_root=corpus))
    return 0


@cli.app.command(cls=cli.Command)
def check(
    folder: cli.Folder,
    decode: Annotated[
        str,
        typer.Option(help="Lines per test set to translate again, or all.", show_default="none"),
    ] = "0",
    retrain: Annotated[
        bool, cli.flag("retrain", "Train the first logged updates of each run again.")
    ] = False,
    corpus: cli.CorpusFolder = "",
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Recompute the figures of each result from the files of its run.

    Prints differences from the recorded results, and the parts that cannot be checked. The exit status is 1
    if there are differences.

    Example: attnbench check runs/demo --decode 50
    """
    if decode != "all" and not decode.isdecimal():
        raise ValueError(f"--decode {decode}: must be a whole number of lines, such as 50, or all")
    lines = sys.maxsize if decode == "all" else int(decode)
    report = compare.check_experiment(folder, decode=lines, retrain=retrain, data_root=corpus)
    differences = [str(finding) for finding in report.differences]
    content = {
        "compared": len(report.findings),
        "differ": differences,
        "notes": report.notes,
        "not_checked": report.not_checked,
    }
    not_checked = [f"not checked: {line}" for line in report.not_checked]
    shown = map(visible, [*differences, *report.notes, *not_checked, report.summary])
    width = terminal_width()
    text = "\n".join(fill(line, width, subsequent_indent="  ", break_on_hyphens=False) for line in shown)
    cli.show(content, text, as_json=as_json)
    return 1 if differences else 0


@cli.app.command(cls=cli.Command)
def publish(
    folder: cli.Folder,
    out: Annotated[Path, typer.Option(help="Output folder, such as results/demo.")],
    tuning: Annotated[
        Path | None, typer.Option(help="Folder of the search (`attnbench tune`) to publish too.")
    ] = None,
    replace: Annotated[
        bool, cli.flag("replace", "Replace the published results in the output folder.")
    ] = False,
    weights: Annotated[
        Literal["fp32", "bf16"] | None,
        typer.Option(help="Include the weights of one seed per model; bf16: half the size."),
    ] = None,
    corpus: cli.CorpusFolder = "",
    quiet: cli.Quiet = False,
) -> int:
    """Copy results and translations for others.

    Others can show, check and score them with their own copy of the corpus. Unfinished runs are left out.

    Example: attnbench publish runs/demo --out results/demo
    """
    cli.print_visible(
        compare.publish_experiment(
            folder, out, tuning=tuning, replace=replace, weights=weights, data_root=corpus
        )
    )
    return 0
