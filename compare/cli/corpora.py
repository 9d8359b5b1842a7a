"""Commands for named corpora: data list, data get."""

import json
from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import AsJson, Quiet, print_visible
from compare.cli.data import data_app

Root = Annotated[Path, typer.Option(help="Folder for the corpora and the downloads.")]


@data_app.command("list")
def list_corpora(as_json: AsJson = False) -> int:
    """List the named corpora.

    --json also lists the URL and hash of every file.
    """
    from compare.report.corpus_catalogue import entries, render_catalogue

    print_visible(json.dumps(entries(), indent=2, ensure_ascii=False) if as_json else render_catalogue())
    return 0


@data_app.command()
def get(
    name: Annotated[str, typer.Argument(help="A corpus of `data list`.")],
    src: Annotated[str, typer.Option(help="Source language [default: the corpus' first pair].")] = "",
    tgt: Annotated[str, typer.Option(help="Target language.")] = "",
    root: Root = Path("corpora"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print files and URLs, download nothing.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Download a named corpus and write its folder.

    After an interruption, run the same command again to resume.

    Example: attnbench data get multi30k --src en --tgt fr
    """
    from compare.report.corpus_catalogue import addresses, fetched
    from compare.system.log import show_messages

    if dry_run:
        files = addresses(name, src, tgt)
        text = "\n".join(f"{file['file']}  {file['from'][0]}" for file in files)
        print_visible(json.dumps(files, indent=2) if as_json else text)
        return 0
    show_messages(quiet=quiet)
    folder = fetched(name, src, tgt, root, quiet=quiet)
    print_visible(json.dumps({"folder": str(folder)}) if as_json else folder)
    return 0
