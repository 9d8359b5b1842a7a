"""Commands that take and judge text: translate, score."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import AsJson, app


@app.command()
def translate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size [default: the run's].")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> int:
    """Translate standard input, a sentence a line, with a trained model.

    Example: echo "The old woman sleeps." | attnbench translate runs/demo/bahdanau-seed1
    """
    from compare.translate import load_model

    model = load_model(run, device)
    lines = [line.rstrip("\n") for line in sys.stdin]
    for translation in model.translate(lines, beam_size=beam):
        print(translation)
    return 0


@app.command()
def score(
    hypotheses: Annotated[Path, typer.Argument(help="Translations, detokenised, plain or .gz.")],
    ref: Annotated[Path, typer.Option(help="Reference translations, plain or .gz.")],
    ter: Annotated[bool, typer.Option("--ter", help="Compute TER too, which is slow.")] = False,
    as_json: AsJson = False,
) -> int:
    """Score translations against references: BLEU with its interval and signature, chrF."""
    from dataclasses import asdict

    from compare.score import score as compute
    from data.lines import read_lines

    result = compute(read_lines(hypotheses, allow_blank=True), read_lines(ref), ter=ter)
    print(json.dumps(asdict(result), indent=2) if as_json else str(result))
    return 0
