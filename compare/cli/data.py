"""Commands that deal with text before any model does: the group ``data``."""

import typer

from compare.cli.app import app

data_app = typer.Typer(no_args_is_help=True, help="Corpora: list, get.")
app.add_typer(data_app, name="data")
