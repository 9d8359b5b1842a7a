"""Commands that take and judge text: translate, score, align."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from compare.cli.app import AsJson, Quiet, app


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


@app.command()
def align(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    gold: Annotated[Path, typer.Option(help="Gold links, Pharaoh or NAACL format, plain or .gz.")],
    src: Annotated[Path, typer.Option(help="The source text that they are of, tokenised.")],
    tgt: Annotated[Path, typer.Option(help="The target text, tokenised.")],
    first_word: Annotated[int, typer.Option(min=0, max=1, help="The number of a first word there.")] = 0,
    turned: Annotated[bool, typer.Option("--turned", help="Links are of target-source.")] = False,
    method: Annotated[
        str, typer.Option(help="arg max, intersection, or a threshold such as 0.2.")
    ] = "arg max",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Set a run's attention against word alignments made by others: AER, precision, recall of every head.

    Example: attnbench align runs/demo/bahdanau-seed1 --gold gold.talp.gz --src test.en.gz --tgt test.de.gz
    """
    from compare.analysis.alignment.gold import read_gold
    from compare.analysis.alignment.measured import measure
    from compare.analysis.tables import markdown
    from compare.progress import Reporter
    from compare.translate import load_model

    found = read_gold(gold, *((tgt, src) if turned else (src, tgt)), first_word=first_word)
    for line in found.skipped:
        Reporter(quiet=quiet).say(line)
    measured = measure(load_model(run), found.turned() if turned else found)
    if measured is None:
        raise ValueError(f"{run}: this model has no attention to align by")
    rows = measured.rows(method)
    print(json.dumps(rows, indent=2) if as_json else markdown(rows))
    return 0
