"""Commands that look at results: table, plot, check."""

import json
from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import AsJson, Folders, Quiet, app


@app.command()
def table(
    folders: Folders,
    form: Annotated[str, typer.Option(help="markdown, csv or json.")] = "markdown",
    columns: Annotated[str | None, typer.Option(help="Columns to show, separated by commas.")] = None,
    as_json: AsJson = False,
) -> int:
    """Print the results of experiments as one table."""
    from compare.results import load_results
    from compare.views.table import render

    chosen = columns.split(",") if columns else None
    print(render(load_results(*folders), "json" if as_json else form, chosen), end="")
    return 0


@app.command()
def plot(
    folder: Annotated[Path, typer.Argument(help="An experiment folder.")],
    sentence: Annotated[str | None, typer.Option(help="Draw the attention weights of this sentence.")] = None,
    line: Annotated[int, typer.Option(help="Draw those of this line of the test set.")] = 1,
    quiet: Quiet = False,
) -> int:
    """Draw learning curves and attention heat-maps as PNG and SVG into the folder's plots/."""
    from compare.progress import Reporter
    from compare.views.publish import draw

    for path in draw(folder, sentence=sentence, line=line, say=Reporter(quiet=quiet).say):
        print(path)
    return 0


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="A finished experiment.")],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Derive every figure of a finished experiment from its files again; status 1 if any differs."""
    from compare.analysis.check import check as compute
    from compare.progress import Reporter

    found = compute(folder, Reporter(quiet=quiet).say)
    differences = [str(finding) for finding in found.differences]
    summary = f"{len(found.findings)} figures and files compared, {len(differences)} differ"
    if as_json:
        print(json.dumps({"compared": len(found.findings), "differ": differences, "notes": found.notes}))
    else:
        print("\n".join([*differences, *found.notes, summary]))
    return 1 if differences else 0
