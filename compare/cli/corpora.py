"""Commands for corpora that have names: data list, data get."""

import json
from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import AsJson, Quiet
from compare.cli.data import data_app

Root = Annotated[Path, typer.Option(help="Holds a folder for each corpus and pair, and the downloads.")]


@data_app.command("list")
def list_corpora(as_json: AsJson = False) -> int:
    """List the corpora that can be had by name: languages, sizes, licence, citation, addresses, hashes."""
    from compare.report.corpus_catalogue import entries, render_catalogue

    print(json.dumps(entries(), indent=2, ensure_ascii=False) if as_json else render_catalogue())
    return 0


@data_app.command()
def get(
    name: Annotated[str, typer.Argument(help="A corpus of `data list`.")],
    src: Annotated[str, typer.Option(help="Translate from [default: the corpus' first pair].")] = "",
    tgt: Annotated[str, typer.Option(help="Translate to.")] = "",
    root: Root = Path("corpora"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be fetched from where.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Download a named corpus, verify it, make it a folder to train on; run again to go on after a break.

    Example: attnbench data get multi30k --src en --tgt fr
    """
    from compare.report.corpus_catalogue import addresses, fetched
    from compare.system.log import show_messages

    if dry_run:
        found = addresses(name, src, tgt)
        print(
            json.dumps(found, indent=2)
            if as_json
            else "\n".join(f"{e['file']}  {e['from'][0]}" for e in found)
        )
        return 0
    show_messages(quiet=quiet)
    folder = fetched(name, src, tgt, root, quiet=quiet)
    print(json.dumps({"folder": str(folder)}) if as_json else folder)
    return 0
