"""Commands on text: translate, score, add-scores, score-run, score-model, contrast."""

import json
import sys
from collections.abc import Iterator
from dataclasses import fields
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from compare.cli.app import (
    AsJson,
    CorpusFolder,
    Folders,
    PluginModules,
    Quiet,
    app,
    corpus_folder,
    load_all_plugins,
    print_visible,
)

if TYPE_CHECKING:
    from compare.decoding.sampling import Sampling


@app.command()
def translate(
    runs: Annotated[list[Path], typer.Argument(help="Folder of a finished run; several with --ensemble.")],
    ensemble: Annotated[
        bool, typer.Option("--ensemble", help="Average the probabilities of several runs.")
    ] = False,
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size [default: the run's].")] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Print the N best of the beam.")] = 1,
    sample: Annotated[int, typer.Option(min=0, help="Draw N translations instead of searching.")] = 0,
    temperature: Annotated[float, typer.Option(help="With --sample: divide the logits by this.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="With --sample: only the k most probable; 0: all.")] = 0,
    top_p: Annotated[
        float, typer.Option(help="With --sample: only the most probable, up to this sum.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="With --sample: seed of the draws.")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: AsJson = False,
) -> int:
    """Translate standard input with a trained model.

    One sentence per line. Several translations of a line are printed as NUMBER ||| TRANSLATION ||| SCORE:
    lines count from 0, and the score is the log-probability, of a search divided by the length penalty.

    Example: echo "The old woman sleeps." | attnbench translate runs/demo/bahdanau-seed1
    """
    from compare.results.result import without_nan
    from compare.results.trained_model import load_ensemble, load_model
    from compare.system.cpu import tune_cpu

    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    if len(runs) > 1 and not ensemble:
        raise ValueError(f"{len(runs)} runs: add --ensemble to average their probabilities, or give one run")
    sampling = _sampling(sample, options, beam=beam, n_best=n_best)
    tune_cpu()
    model = load_ensemble(runs, device) if ensemble else load_model(runs[0], device)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as all our files are, whatever the terminal
    lines = list(_sentences())
    if not (as_json or sampling or n_best > 1):
        texts = model.translate(lines, beam_size=beam)
    else:
        found = model.generate(lines, beam_size=beam, n_best=sample or n_best, sampling=sampling)
        texts = [
            each.text if sample == 1 else f"{number} ||| {each.text} ||| {each.score:.6f}"
            for number, several in enumerate(found)
            for each in several
        ]
    if as_json:
        records = [
            {"source": line, "translations": [{"text": each.text, "score": each.score} for each in several]}
            for line, several in zip(lines, found, strict=True)
        ]
        texts = [json.dumps(without_nan(records), indent=2, ensure_ascii=False)]
    for text in texts:
        print(text)  # the text itself, whatever it holds
    if unknown := model.count_unknown(lines):  # translations read as if these words had been understood
        text = f"warning: {unknown:,} of {len(lines):,} lines have words that the vocabulary lacks: the model"
        print_visible(f"{text} reads <unk> in their place", file=sys.stderr)
    return 0


def _sampling(number: int, options: dict[str, Any], *, beam: int | None, n_best: int) -> "Sampling | None":
    """Return the sampling that the options describe; None without ``--sample``.

    Raises:
        ValueError: options that have no effect together, or are out of range.
    """
    from compare.decoding.sampling import Sampling

    if number:
        if beam is not None or n_best > 1:
            raise ValueError("--sample draws translations, --beam and --n-best search: leave one of them out")
        return Sampling(**options)
    for field in fields(Sampling):
        if options[field.name] != field.default:
            option = field.name.replace("_", "-")
            raise ValueError(f"--{option} has no effect on search: add --sample N to draw translations")
    return None


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
    external: Annotated[
        list[str] | None,
        typer.Option(help="comet, NAME=COMMAND with {hyp}, or NAME=FILE. May be repeated."),
    ] = None,
    src: Annotated[Path | None, typer.Option(help="Source text, for --external.")] = None,
    plugin: PluginModules = None,
    as_json: AsJson = False,
) -> int:
    """Score translations: BLEU, chrF, TER, by sacreBLEU.

    Options are sacrebleu's. One system gives a JSON object, several a list of them. --external adds metrics
    of programs outside (comet needs uv), or of files with one score per line; see docs/experiments.md.

    Example: attnbench score lstm.de transformer.de --ref test.de --metrics bleu,chrf,ter
    """
    from compare.report.tables.scores import render_scores
    from compare.scoring.score import HEADLINE, ScoringOptions, score_files

    load_all_plugins(plugin)
    asked = [name for text in metrics or HEADLINE.metrics for name in text.replace(",", " ").split()]
    scoring = ScoringOptions(metrics=asked, tokenize=tokenize, lowercase=lowercase)
    scores = score_files(hypotheses, ref, scoring)
    if external:
        from compare.integrations.external_metrics import add_external_scores

        scores = add_external_scores(scores, external, ref, src)
    elif src is not None:
        raise ValueError("--src has no effect without --external: leave it out")
    print_visible(render_scores(scores, as_json=as_json))
    return 0


@app.command("add-scores")
def add_scores(
    folders: Folders,
    external: Annotated[
        list[str], typer.Option(help="comet, NAME=COMMAND with {hyp}, or NAME=FILE. May be repeated.")
    ],
    test: Annotated[str, typer.Option(help="Test set [default: the first].")] = "",
    corpus: CorpusFolder = None,
    as_json: AsJson = False,
) -> int:
    """Add a metric from outside to finished runs.

    Scores translations as `score --external` does, with source and reference of the corpus, and keeps the
    scores in the runs: tables and report have a column NAME, and check computes its mean again. {run} in the
    name of a file stands for the name of each run.

    Example: attnbench add-scores runs/demo --external comet
    """
    from compare.integrations.run_scores import add_run_scores
    from compare.report.tables.scores import render_scores

    scores = add_run_scores(folders, external, test=test, data_root=corpus_folder(corpus))
    print_visible(render_scores(scores, as_json=as_json))
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
    tgt: Annotated[Path, typer.Option(help="Translations to score, line by line.")],
    src: Annotated[Path | None, typer.Option(help="Source text; none for language models.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Score given translations by their probability.

    Log-probability (natural) of each sentence and each token, and the perplexity of the text.

    Example: attnbench score-model runs/demo/lstm-seed1 --src new.en --tgt new.de
    """
    from compare.experiment.forced_scoring import score_model as forced_scores
    from compare.report.tables.scores import render_forced_scores
    from compare.system.cpu import tune_cpu
    from compare.system.log import show_messages

    show_messages(quiet=quiet)
    tune_cpu()
    print_visible(render_forced_scores(forced_scores(runs, src, tgt, device=device), as_json=as_json))
    return 0


@app.command()
def contrast(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs, English to German.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the pairs.")] = 1_000_003,
    per_group: Annotated[int, typer.Option(min=1, help="Pairs per phenomenon and range of distances.")] = 50,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Test whether models prefer right translations.

    Pairs of a right and a wrong translation that differ in one point (agreement over a distance, place of the
    verb, choice of a word), made by the grammar of the built-in corpus.

    Example: attnbench contrast runs/demo/*-seed1
    """
    from compare.experiment.contrastive import contrast_runs
    from compare.report.tables.scores import render_contrasts
    from compare.system.cpu import tune_cpu
    from compare.system.log import show_messages

    show_messages(quiet=quiet)
    tune_cpu()
    found = contrast_runs(runs, seed=seed, per_group=per_group, device=device)
    print_visible(render_contrasts(found, as_json=as_json))
    return 0


def _sentences() -> Iterator[str]:
    """The lines of standard input."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise ValueError(f"standard input, line {number}: not UTF-8 ({error.reason})") from None
