"""Commands that show, check and publish results: table, plot, report, check, publish."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import AsJson, CorpusFolder, Folders, Quiet, app, corpus_folder, print_visible
from data.text.control_characters import visible


def _explain_columns(asked: bool) -> None:
    """Print all columns and stop; called by typer for ``--list-columns``."""
    if asked:
        from compare.results.column_catalogue import explain_columns
        from compare.results.markdown import markdown_table

        print_visible(markdown_table(explain_columns(), left={"column", "field", "shown", "explanation"}))
        raise typer.Exit


@app.command()
def table(
    folders: Folders,
    form: Annotated[str, typer.Option(help="markdown, csv, json or latex.")] = "markdown",
    shape: Annotated[
        str,
        typer.Option(help="rows, aggregated (means), or wide (column per seed) [default: see above]."),
    ] = "",
    columns: Annotated[
        str | None, typer.Option(help="Columns to show: headings or fields, separated by commas.")
    ] = None,
    list_columns: Annotated[
        bool,
        typer.Option("--list-columns", callback=_explain_columns, is_eager=True, help="Explain all columns."),
    ] = False,
    caption: Annotated[str, typer.Option(help="Caption of the LaTeX table.")] = "",
    corpus: CorpusFolder = None,
    as_json: AsJson = False,
) -> int:
    r"""Print the results of experiments as one table.

    Markdown and LaTeX have the means of models with several seeds, if all runs are done, else one row per
    run; CSV and JSON have one row per run. LaTeX is a table to \input. In Markdown, ensembles stand below
    in a table of their own.

    Example: attnbench table runs/demo --columns "model,BLEU,train (min)" --form latex
    """
    from compare.report.tables.ensembles import ensembles_below
    from compare.report.tables.shapes import TableShape, default_shape, load_table
    from compare.report.tables.table import render_table
    from compare.report.views import refresh_views

    for folder in folders:
        refresh_views(folder)
    form = "json" if as_json else form
    if not shape:
        shape = TableShape.ROWS if form in ("csv", "json") else default_shape(folders)
    frame = load_table(folders, shape, data_root=corpus_folder(corpus))
    chosen = [name.strip() for name in columns.split(",")] if columns else None
    if chosen is None and shape == TableShape.WIDE:
        chosen = list(frame.columns)
    if caption and form != "latex":
        raise ValueError(f"--caption has no effect on {form}: add --form latex")
    text = render_table(frame, form, chosen, caption=caption)
    below = ensembles_below(folders) if form == "markdown" else ""
    print_visible(text + below, end="")
    return 0


@app.command()
def plot(
    folder: Annotated[Path, typer.Argument(help="An experiment folder.")],
    kind: Annotated[
        str, typer.Argument(help="Draw only this figure; `list` names them [default: curves and heat-maps].")
    ] = "",
    forms: Annotated[
        str, typer.Option("--format", help="Formats of a single figure: png, svg, pdf.")
    ] = "png,svg",
    sentence: Annotated[str | None, typer.Option(help="Draw the attention weights of this sentence.")] = None,
    line: Annotated[int, typer.Option(help="Draw the weights of this line of the test set.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Output folder [default: the folder's plots/].")] = None,
    corpus: CorpusFolder = None,
    quiet: Quiet = False,
) -> int:
    """Draw learning curves, attention or another figure.

    Example: attnbench plot runs/demo length --format pdf
    """
    from compare.report.plots.registry import FIGURES, draw_figure
    from compare.report.views import draw_plots, refresh_views
    from compare.system.log import show_messages

    if kind == "list":
        print_visible("\n".join(f"{name:<17} {figure.about}" for name, figure in FIGURES.items()))
        return 0
    refresh_views(folder)
    if kind:
        root = corpus_folder(corpus)
        written = draw_figure(folder, kind, forms.split(","), out=out, data_root=root)
        print_visible("\n".join(map(str, written)))
    else:
        show_messages(quiet=quiet)
        for path in draw_plots(folder, sentence=sentence, line=line, out=out):
            print_visible(path)
    return 0


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="An experiment folder.")],
    baseline: Annotated[
        str, typer.Option(help="Label to compare the others with [default: highest BLEU].")
    ] = "",
    tuning: Annotated[
        Path | None, typer.Option(help="Folder of attnbench tune to show [default: the experiment's].")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output file [default: the folder's report.html].")] = None,
    corpus: CorpusFolder = None,
    quiet: Quiet = False,
) -> int:
    """Write report.html: an experiment on one page.

    Results, significance tests, analyses and example sentences, in a single self-contained file.

    Example: attnbench report runs/demo
    """
    from compare.report.html import build_report
    from compare.report.views import refresh_views
    from compare.system.log import show_messages

    show_messages(quiet=quiet)
    refresh_views(folder)
    root = corpus_folder(corpus)
    print_visible(build_report(folder, baseline=baseline, tuning=tuning, out=out, data_root=root))
    return 0


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="A finished experiment.")],
    decode: Annotated[
        str, typer.Option(help="Translate so many lines per test set again, or all [default: none].")
    ] = "0",
    corpus: CorpusFolder = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Recompute every figure of an experiment from its files.

    Lists what differs from the recorded results, and what cannot be checked; the exit status is 1 if
    anything differs.

    Example: attnbench check runs/demo --decode 50
    """
    from compare.check.recompute import check_experiment as compute
    from compare.system.log import show_messages

    show_messages(quiet=quiet)
    found = compute(folder, decode=_lines(decode), data_root=corpus_folder(corpus))
    differences = [str(finding) for finding in found.differences]
    summary = f"{len(found.findings)} figures and files compared, {len(differences)} differ"
    if as_json:
        content = {
            "compared": len(found.findings),
            "differ": differences,
            "notes": found.notes,
            "not_checked": found.not_checked,
        }
        print_visible(json.dumps(content))
    else:
        not_checked = [f"not checked: {line}" for line in found.not_checked]
        print_visible("\n".join(map(visible, [*differences, *found.notes, *not_checked, summary])))
    return 1 if differences else 0


@app.command()
def publish(
    folder: Annotated[Path, typer.Argument(help="A finished experiment.")],
    out: Annotated[Path, typer.Option(help="Output folder, such as results/demo.")],
    tuning: Annotated[
        Path | None, typer.Option(help="Search to publish with it, by `attnbench tune`.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the published results in the output folder.")
    ] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Publish runs that have not ended, too.")
    ] = False,
) -> int:
    """Copy results and translations, without weights, for others.

    They can show, check and score them again, with their own copy of the corpus.

    Example: attnbench publish runs/demo --out results/demo
    """
    from compare.experiment.publish import publish_experiment

    print_visible(publish_experiment(folder, out, tuning=tuning, replace=replace, unfinished=unfinished))
    return 0


def _lines(text: str) -> int:
    """Parse a number of lines; "all" is more than any test set has."""
    if text == "all":
        return sys.maxsize
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"--decode {text}: must be a whole number of lines, such as 50, or all")
    return int(text)
