"""Commands that hand a trained model on: export."""

import json
from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import AsJson, CorpusFolder, app, corpus_folder, print_visible


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    to: Annotated[str, typer.Option(help="torch, or ctranslate2 (Transformers).")],
    out: Annotated[Path, typer.Option(help="Output folder.")],
    lines: Annotated[int, typer.Option(min=0, help="Compare so many validation sentences; 0: all.")] = 0,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the exported model in the output folder.")
    ] = False,
    corpus: CorpusFolder = None,
    as_json: AsJson = False,
) -> int:
    """Export a trained model, and compare its translations.

    The exported model translates the validation set by greedy search, and so does the run's own.

    Example: attnbench export runs/demo/transformer-seed1 --to torch --out exported
    """
    from dataclasses import asdict

    from compare.integrations.export import export_model

    root = corpus_folder(corpus)
    found = export_model(run, out, to, lines=lines, data_root=root, replace=replace)
    if as_json:
        print_visible(json.dumps(asdict(found), indent=2))
    else:
        print_visible(f"{out}: {found.equal:,} of {found.lines:,} greedy translations equal those of {run}")
    return 0
