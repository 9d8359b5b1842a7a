"""Commands on text: translate, score, align."""

import json
import logging
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
    PluginModules,
    Quiet,
    app,
    corpus_folder,
    load_all_plugins,
    print_visible,
)

if TYPE_CHECKING:
    from compare.analysis.gold_alignments import Gold
    from compare.decoding.sampling import Sampling


# Commands on text: translate, score.


@app.command()
def translate(
    runs: Annotated[
        list[Path], typer.Argument(help="Folder of a finished run, or of several: their ensemble.")
    ],
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

    One sentence per line. The probabilities of several runs are averaged. Several translations of a line are
    printed as NUMBER ||| TRANSLATION ||| SCORE: lines count from 0, and the score is the log-probability, of
    a search divided by the length penalty.

    Example: echo "The old woman sleeps." | attnbench translate runs/demo/bahdanau-seed1
    """
    from compare.results.result import without_nan
    from compare.results.run_folder import load_ensemble, load_model
    from compare.system.cpu import tune_cpu

    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    sampling = _sampling(sample, options, beam=beam, n_best=n_best)
    tune_cpu()
    model = load_ensemble(runs, device) if len(runs) > 1 else load_model(runs[0], device)
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
    systems: Annotated[
        list[Path],
        typer.Argument(help="Translations, detokenised, plain or .gz, or folders of finished runs."),
    ],
    ref: Annotated[
        list[Path] | None, typer.Option(help="References, plain or .gz; repeat for several references.")
    ] = None,
    src: Annotated[
        Path | None, typer.Option(help="Source text, for runs to translate, and for --external.")
    ] = None,
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
    test: Annotated[str, typer.Option(help="Test set of runs for --external [default: the first].")] = "",
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Probability that the runs give to the reference.")
    ] = False,
    ensemble: Annotated[
        bool, typer.Option("--ensemble", help="Average the probabilities of the runs, as one system.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the translations of the runs, RUN.hyp.")
    ] = None,
    device: Annotated[str, typer.Option(help="For runs: cpu or cuda.")] = "cpu",
    corpus: CorpusFolder = None,
    plugin: PluginModules = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Score translations, or finished runs on any test set.

    Files by sacreBLEU, whose options are taken: BLEU, chrF, TER. Runs translate --src as they did their own
    test sets, and all metrics are computed; with --probabilities, they score the reference instead: natural
    log-probability of each sentence and token, and perplexity. Without --ref, --external adds a metric of a
    program outside (comet needs uv), or of files with one score per line, to finished runs: tables and report
    have a column for it; see docs/experiments.md.

    Example: attnbench score lstm.de transformer.de --ref test.de --metrics bleu,chrf,ter
    """
    from compare.report.score_tables import render_scores
    from compare.system.log import show_messages

    show_messages(quiet=quiet)
    load_all_plugins(plugin)
    of_runs = {"--probabilities": probabilities, "--ensemble": ensemble, "--out": out is not None}
    are_runs = all(path.is_dir() for path in systems)
    chosen = [name for name, given in of_runs.items() if given]
    if not are_runs and (chosen or ref is None):
        raise ValueError(
            f"{chosen[0]} is for folders of finished runs" if chosen else "--ref is missing: name references"
        )
    if are_runs and not ref:
        from compare.integrations.external_metrics import add_run_scores

        if not external or chosen:
            raise ValueError("runs need --src and --ref, a text to translate and score, or else --external")
        scores = add_run_scores(systems, external, test=test, data_root=corpus_folder(corpus))
    elif are_runs:
        return _score_runs(
            systems,
            src,
            ref or [],
            out,
            device,
            probabilities=probabilities,
            ensemble=ensemble,
            as_json=as_json,
        )
    else:
        from compare.scoring.score import HEADLINE, ScoringOptions, score_files

        asked = [name for text in metrics or HEADLINE.metrics for name in text.replace(",", " ").split()]
        scoring = ScoringOptions(metrics=asked, tokenize=tokenize, lowercase=lowercase)
        scores = score_files(systems, ref or [], scoring)
        if external:
            from compare.integrations.external_metrics import add_external_scores

            scores = add_external_scores(scores, external, ref or [], src)
        elif src is not None:
            raise ValueError("--src has no effect without --external: leave it out")
    print_visible(render_scores(scores, as_json=as_json))
    return 0


def _score_runs(
    runs: list[Path],
    src: Path | None,
    ref: list[Path],
    out: Path | None,
    device: str,
    *,
    probabilities: bool,
    ensemble: bool,
    as_json: bool,
) -> int:
    """Let runs translate a text, or score given translations of it."""
    from compare.experiment.evaluation import score_model, score_runs
    from compare.report.score_tables import render_forced_scores, render_scores
    from compare.system.cpu import tune_cpu

    tune_cpu()
    if probabilities:
        if len(ref) > 1 or out is not None:
            raise ValueError("--probabilities takes one --ref, and translates nothing for --out")
        forced = score_model(runs, src, ref[0], ensemble=ensemble, device=device)
        print_visible(render_forced_scores(forced, as_json=as_json))
        return 0
    if src is None:
        raise ValueError("--src is missing: name the text that the runs translate")
    scores = score_runs(runs, src, ref, out=out, ensemble=ensemble, device=device)
    print_visible(render_scores(scores, as_json=as_json))
    return 0


def _sentences() -> Iterator[str]:
    """The lines of standard input."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise ValueError(f"standard input, line {number}: not UTF-8 ({error.reason})") from None


# Command on word alignments: align.


logger = logging.getLogger(__name__)

FirstWord = Annotated[int, typer.Option(min=0, max=1, help="Number of the first word in the gold links.")]


@app.command()
def align(
    systems: Annotated[
        list[Path], typer.Argument(help="Folders of finished runs, or files of links by word aligners.")
    ],
    gold: Annotated[Path, typer.Option(help="Gold links, Pharaoh or NAACL format, plain or .gz.")],
    src: Annotated[Path, typer.Option(help="Source text of the links, tokenised.")],
    tgt: Annotated[Path, typer.Option(help="Target text of the links, tokenised.")],
    first_word: FirstWord = 0,
    reverse: Annotated[
        bool, typer.Option("--reversed", help="Gold links are target-source, not source-target.")
    ] = False,
    turned: Annotated[bool, typer.Option("--turned", help="Same as --reversed.", hidden=True)] = False,
    links_first_word: Annotated[
        int, typer.Option(min=0, max=1, help="Number of the first word in the files of links.")
    ] = 0,
    links_reversed: Annotated[
        bool, typer.Option("--links-reversed", help="Files of links are target-source.")
    ] = False,
    symmetrize: Annotated[
        bool, typer.Option("--symmetrize", help="Also combine two files of links: both directions.")
    ] = False,
    method: Annotated[
        str, typer.Option(help="Method for runs: arg max, intersection, or a threshold (0.2).")
    ] = "arg max",
    links: Annotated[
        Path | None,
        typer.Option(help="Folder for the links of the runs' heads, Pharaoh format, RUN/HEAD.links."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Compare attention and word aligners with gold word alignments.

    Prints alignment error rate, precision and recall: of every head of a run, and of files of links by
    fast_align, eflomal, awesome-align (Pharaoh format) or GIZA++ (A3.final). For arg max also by how many
    source words a head's links must be moved for the lowest error rate ("shift"), and that error rate.

    Example: attnbench align runs/demo/bahdanau-seed1 eflomal.fwd --gold gold.talp --src test.en --tgt test.de
    """
    from compare.analysis.gold_alignments import read_gold
    from compare.analysis.proposed_links import count_proposed_links, read_proposed_links, symmetrise
    from compare.results.text import markdown_table
    from compare.system.log import show_messages

    show_messages(quiet=quiet)
    files = [path for path in systems if not path.is_dir()]
    if symmetrize and len(files) != 2:
        raise ValueError(
            f"--symmetrize combines two files of links, one per direction, found {len(files)}: name both"
        )
    reverse = reverse or turned
    pairs = read_gold(gold, *((tgt, src) if reverse else (src, tgt)), first_word=first_word)
    pairs = pairs.turned() if reverse else pairs
    if pairs.outside:
        logger.warning(f"{pairs.outside}; they count as gold links (see --reversed, --first-word)")
    proposed = {
        str(path): read_proposed_links(path, pairs, first_word=links_first_word, reverse=links_reversed)
        for path in files
    }
    for each in proposed.values():
        if each.outside:
            logger.warning(f"{each.outside}; they count as wrong (see --links-reversed, --links-first-word)")
    alignments = {name: each.links for name, each in proposed.items()}
    if symmetrize:
        alignments |= symmetrise(alignments)
    rows: list[dict[str, Any]] = []
    for path in systems:
        if path.is_dir():
            rows += ({"system": str(path)} | row for row in _attention_rows(path, pairs, method, links))
    rows += (
        {"system": name, "method": "links"} | count_proposed_links(found, pairs).scores()
        for name, found in alignments.items()
    )
    print_visible(json.dumps(rows, indent=2) if as_json else markdown_table(rows))
    return 0


def _attention_rows(run: Path, gold: "Gold", method: str, folder: Path | None) -> list[dict[str, Any]]:
    """Return one row per head of a run, and write the links of each into a folder, if there is one."""
    from compare.analysis.alignment import measure_alignment, write_link_files
    from compare.results.run_folder import load_model
    from compare.system.cpu import tune_cpu

    tune_cpu()
    translator = load_model(run)
    measured = measure_alignment(translator, gold)
    if measured is None:
        raise ValueError(f"{run}: this model has no attention to the source, from which links are derived")
    rows = measured.rows(method)
    if folder is not None:
        write_link_files(translator, gold, folder / run.resolve().name, method)
    return rows
