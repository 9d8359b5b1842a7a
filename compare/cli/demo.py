"""The command demo: a page in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import app, print_visible


@app.command()
def demo(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs, or of experiments.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: a free one.")] = 7860,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> int:
    """Show two models and their attention in the browser.

    Type a sentence, and see both translations and the weights of every head side by side, until Ctrl-C.
    Needs the extra demo: pip install 'attnbench[demo]'.

    Example: attnbench demo runs/demo/bahdanau-seed1 runs/demo/transformer-seed1
    """
    from compare.integrations.demo_page import serve_page
    from compare.system.cpu import tune_cpu

    tune_cpu()
    serve_page(
        runs,
        port=port,
        device=device,
        announce=lambda address: print_visible(f"{address} shows the page; Ctrl-C ends it", flush=True),
    )
    return 0
