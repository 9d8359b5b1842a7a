"""Commands on text: translate, score, score-run, score-model."""

import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from compare.cli.app import AsJson, Quiet, app, print_visible


@app.command()
def translate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size [default: the run's].")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> int:
    """Translate standard input with a trained model.

    One sentence per line.

    Example: echo "The old woman sleeps." | attnbench translate runs/demo/bahdanau-seed1
    """
    from compare.results.trained_model import load_model
    from compare.system.cpu import tune_cpu

    tune_cpu()
    model = load_model(run, device)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as all our files are, whatever the terminal
    for translation in model.translate(list(_sentences()), beam_size=beam):
        print(translation)  # the text itself, whatever it holds
    return 0


class _ScoreCommand(TyperCommand):
    """The command ``score``, whose help lists the registered metrics."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Name the metrics in the help of ``--metrics``; other commands need not import them."""
        from compare.scoring.metrics import METRICS
        from compare.scoring.score import HEADLINE

        names = [f"{name} ({metric.note})" if metric.note else name for name, metric in METRICS.items()]
        for option in self.params:
            if isinstance(option, TyperOption) and option.name == "metrics":
                option.help = f"Some of {','.join(names)} [default: {','.join(HEADLINE.metrics)}]."
        super().format_help(ctx, formatter)


@app.command(cls=_ScoreCommand)
def score(
    hypotheses: Annotated[
        list[Path], typer.Argument(help="Translations by one or more systems, detokenised, plain or .gz.")
    ],
    ref: Annotated[list[Path], typer.Option(help="References, plain or .gz; repeat for several references.")],
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", "-m", help="Names of metrics."),
    ] = None,
    tokenize: Annotated[
        str, typer.Option(help="For BLEU: 13a, intl, char, zh, ja-mecab, ko-mecab or none.")
    ] = "13a",
    lowercase: Annotated[
        bool, typer.Option("--lowercase", "-lc", help="Compute case-insensitive BLEU.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Score translations: BLEU, chrF, TER, by sacreBLEU.

    Options are sacrebleu's. One system gives a JSON object, several a list of them.

    Example: attnbench score lstm.de transformer.de --ref test.de --metrics bleu,chrf,ter
    """
    from compare.report.tables.scores import render_scores
    from compare.scoring.score import HEADLINE, ScoringOptions, score_files

    asked = [name for text in metrics or HEADLINE.metrics for name in text.replace(",", " ").split()]
    scoring = ScoringOptions(metrics=asked, tokenize=tokenize, lowercase=lowercase)
    print_visible(render_scores(score_files(hypotheses, ref, scoring), as_json=as_json))
    return 0


@app.command("score-run")
def score_run(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    src: Annotated[Path, typer.Option(help="Source text, one sentence per line, plain or .gz.")],
    ref: Annotated[list[Path], typer.Option(help="References, plain or .gz; repeat for several references.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the translations, RUN.hyp.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Translate another test set with finished runs, and score it.

    Each run searches as it did for its own test sets. All metrics are computed.

    Example: attnbench score-run runs/demo/*-seed1 --src new.en --ref new.de
    """
    from compare.experiment.score_run import score_runs
    from compare.report.tables.scores import render_scores
    from compare.system.cpu import tune_cpu
    from compare.system.log import show_messages

    show_messages(quiet=quiet)
    tune_cpu()
    scores = score_runs(runs, src, ref, out=out, device=device)
    print_visible(render_scores(scores, as_json=as_json))
    return 0


@app.command("score-model")
def score_model(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    src: Annotated[Path, typer.Option(help="Source text, one sentence per line, plain or .gz.")],
    tgt: Annotated[Path, typer.Option(help="Translations to score, line by line.")],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Print how probable given translations are to a model.

    Log-probability (natural) of each sentence and each token, and the perplexity of the text.

    Example: attnbench score-model runs/demo/lstm-seed1 --src new.en --tgt new.de
    """
    from compare.experiment.forced_scoring import score_model as score
    from compare.report.tables.scores import render_forced_scores
    from compare.system.cpu import tune_cpu
    from compare.system.log import show_messages

    show_messages(quiet=quiet)
    tune_cpu()
    print_visible(render_forced_scores(score(runs, src, tgt, device=device), as_json=as_json))
    return 0


def _sentences() -> Iterator[str]:
    """The lines of standard input."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise ValueError(f"standard input, line {number}: not UTF-8 ({error.reason})") from None
