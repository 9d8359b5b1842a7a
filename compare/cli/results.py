"""Commands that show, check and publish results: table, plot, report, check, publish."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import AsJson, CorpusFolder, Folders, Quiet, app, corpus_folder, print_visible
from data.text import visible


def _explain_columns(asked: bool) -> None:
    """Print all columns and stop; called by typer for ``--list-columns``."""
    if asked:
        from compare.results.columns import explain_columns
        from compare.results.text import markdown_table

        print_visible(markdown_table(explain_columns(), left={"column", "field", "shown", "explanation"}))
        raise typer.Exit


@app.command()
def table(
    folders: Folders,
    form: Annotated[
        str, typer.Option("--format", "--form", help="markdown, csv, json or latex.")
    ] = "markdown",
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
    run; CSV and JSON have one row per run. LaTeX is a table to \input.

    Example: attnbench table runs/demo --columns "model,BLEU,train (min)" --format latex
    """
    from compare.report.table import TableShape, default_shape, load_table, render_table, table_form
    from compare.report.views import refresh_views
    from compare.results.store import load_results
    from compare.system.log import show_messages

    show_messages()
    if as_json and form not in ("markdown", "json"):
        raise ValueError(f"--json and --format {form} exclude each other: leave one out")
    form = table_form("json" if as_json else form)
    if caption and form != "latex":
        raise ValueError(f"--caption has no effect on {form}: add --format latex")
    for folder in folders:
        refresh_views(folder)
    if not shape:
        shape = TableShape.ROWS if form in ("csv", "json") else default_shape(folders)
    frame = load_table(folders, shape, data_root=corpus_folder(corpus))
    chosen = [name.strip() for name in columns.split(",")] if columns else None
    if chosen is None and shape == TableShape.WIDE:
        chosen = list(frame.columns)
    runs = () if shape == TableShape.ROWS else load_results(*folders)
    print_visible(render_table(frame, form, chosen, caption=caption, runs=runs), end="")
    return 0


@app.command()
def plot(
    folder: Annotated[Path, typer.Argument(help="An experiment folder; for attention also that of a run.")],
    kind: Annotated[
        str, typer.Argument(help="Draw only this figure; `list` names them [default: curves and heat-maps].")
    ] = "",
    forms: Annotated[
        str | None, typer.Option("--format", help="png, svg, pdf; attention also html [default: png,svg].")
    ] = None,
    sentence: Annotated[str | None, typer.Option(help="Draw the attention for this sentence.")] = None,
    line: Annotated[
        int | None, typer.Option(help="Draw the attention for this line of the test set [default: 1].")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Draw the attention of this label or run.")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Attention between subwords, not words.")] = False,
    self_attention: Annotated[
        bool, typer.Option("--self-attention", help="Draw also attention within each side.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; for attention also a file [default: plots/].")
    ] = None,
    corpus: CorpusFolder = None,
    quiet: Quiet = False,
) -> int:
    """Draw learning curves, attention or another figure.

    Attention shows every head; a file that ends in .html is an interactive viewer.

    Example: attnbench plot runs/demo --sentence "The old woman sleeps." --model bahdanau --out heads.pdf
    """
    from compare.report.figures import ATTENTION, FIGURES, draw_attention, draw_figure
    from compare.report.views import draw_plots, refresh_views
    from compare.system.log import show_messages

    chosen = {
        "--sentence": sentence is not None,
        "--line": line is not None,
        "--model": model is not None,
        "--pieces": pieces,
        "--self-attention": self_attention,
    }
    if not kind and any(chosen.values()):
        kind = ATTENTION
    given = {**chosen, "--format": forms is not None, "--out": out is not None, "--set": bool(corpus)}
    _refuse_without_effect(kind, [option for option, is_given in given.items() if is_given], out)
    formats = (forms or "png,svg").split(",")
    if kind in ("", ATTENTION):
        show_messages(quiet=quiet)
    if kind == "list":
        abouts = {**{name: about for name, (about, _) in FIGURES.items()}, ATTENTION: _ATTENTION_HELP}
        written: Iterable[object] = [f"{name:<17} {about}" for name, about in abouts.items()]
    elif kind == ATTENTION:
        written = draw_attention(
            folder,
            sentence,
            line=1 if line is None else line,
            model=model or "",
            formats=formats,
            out=out,
            pieces=pieces,
            self_attention=self_attention,
        )
    else:
        refresh_views(folder)
        if kind:
            written = draw_figure(folder, kind, formats, out=out, data_root=corpus_folder(corpus))
        else:
            written = draw_plots(folder, out=out)
    for each in written:
        print_visible(each)
    return 0


_ATTENTION_HELP = "attention weights of each head, for --sentence or a --line of the test set"


def _refuse_without_effect(kind: str, given: Sequence[str], out: Path | None) -> None:
    """Refuse the options of ``plot`` that would have no effect on a figure.

    Raises:
        ValueError: naming the option.
    """
    from compare.report.figures import ATTENTION

    common = ["--out"]
    if kind == "list":
        allowed, what = [], "the list of figures"
    elif kind == ATTENTION:
        allowed, what = (
            [*common, "--format", "--sentence", "--line", "--model"],
            "the attention of a sentence",
        )
        allowed += ["--pieces", "--self-attention"]
    elif kind:
        allowed, what = [*common, "--format", "--set"], f"the figure {kind}"
    else:
        allowed, what = common, "all figures together: name one"
    for option in given:
        if option not in allowed:
            raise ValueError(f"{option} has no effect on {what}; leave it out")
    if "--sentence" in given and "--line" in given:
        raise ValueError("--sentence and --line both say what to draw: leave one of them out")
    if kind == ATTENTION and "--format" in given and out is not None and out.suffix and not out.is_dir():
        raise ValueError(f"--out {out} says the format already: leave out --format")


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
    if as_json:
        content = {
            "compared": len(found.findings),
            "differ": differences,
            "notes": found.notes,
            "not_checked": found.not_checked,
            "hashes_only": found.hashes_only,
        }
        print_visible(json.dumps(content))
    else:
        not_checked = [f"not checked: {line}" for line in found.not_checked]
        print_visible("\n".join(map(visible, [*differences, *found.notes, *not_checked, found.summary])))
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
    add: Annotated[
        bool, typer.Option("--add", help="Add to the published results in the output folder.")
    ] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Publish runs that have not ended, too.")
    ] = False,
    finished_only: Annotated[
        bool, typer.Option("--finished-only", help="Leave out runs that have not ended.")
    ] = False,
) -> int:
    """Copy results and translations, without weights, for others.

    They can show, check and score them again, with their own copy of the corpus.

    Example: attnbench publish runs/demo --out results/demo
    """
    from compare.experiment.publish import publish_experiment

    if unfinished and finished_only:
        raise ValueError("--unfinished takes the runs that --finished-only leaves out: give one of the two")
    if add and replace:
        raise ValueError("--add keeps what --replace deletes: give one of the two")
    published = publish_experiment(
        folder,
        out,
        tuning=tuning,
        replace=replace,
        add=add,
        unfinished=unfinished,
        finished_only=finished_only,
    )
    print_visible(published)
    return 0


def _lines(text: str) -> int:
    """Parse a number of lines; "all" is more than any test set has."""
    if text == "all":
        return sys.maxsize
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"--decode {text}: must be a whole number of lines, such as 50, or all")
    return int(text)
