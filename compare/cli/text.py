"""Commands that use trained models: translate, score, align, export."""

import logging
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

import compare
from compare.cli import options as cli
from compare.report.table_formats import draw, table_text, terminal_width
from compare.results.formatting import Row, describe_p, listing
from compare.scoring import METRICS
from data.text import STDIN, read_lines

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from compare.analysis.statistics import PairedDifference
    from compare.experiment.likelihood import ForcedScores
    from compare.scoring import SystemScores


@cli.app.command(cls=cli.Command)
def translate(
    runs: cli.Runs,
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size [default: the run's].")] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Print the N best of the beam.")] = 1,
    sample: Annotated[int, typer.Option(min=0, help="Draw N translations instead of searching.")] = 0,
    temperature: Annotated[
        float | None, typer.Option(help="With --sample: divide the logits by this number.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="With --sample: draw from the k most probable tokens.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="With --sample: draw from the most probable tokens up to this total probability."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With --sample: seed of the draws [default: 1].")] = None,
    device: cli.Device = "cpu",
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Translate standard input with a trained model.

    The input has one sentence per line. The probabilities of several runs are averaged. With --n-best or
    --sample, lines are NUMBER ||| TRANSLATION ||| SCORE: numbers count from 0, and the score is the
    log-probability, divided by the length penalty in a search.

    Example: echo "The old woman must open the door." | attnbench translate runs/demo/bahdanau-seed1
    """
    from compare.results.store import json_text
    from compare.system.device import tune_cpu

    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    overrides: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if sample and (beam is not None or n_best > 1):
        raise ValueError("--sample excludes --beam and --n-best: leave one of them out")
    if overrides and not sample:
        option = next(iter(overrides)).replace("_", "-")
        raise ValueError(f"--{option} has no effect on search: add --sample N to draw translations")
    sampling = compare.Sampling(**overrides) if sample else None
    if texts := [str(run) for run in runs if " " in str(run) and not run.exists()]:
        raise ValueError(
            f"{texts[0]}: no such folder; text comes from standard input: "
            f"echo {quote(texts[0])} | attnbench translate RUN"
        )
    tune_cpu()
    model = compare.load_ensemble(runs, device) if len(runs) > 1 else compare.load_model(runs[0], device)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # like every file, whatever the terminal uses
    if sys.stdin.isatty():
        cli.print_visible("enter one sentence per line; Ctrl-D ends the input", file=sys.stderr)
    lines = read_lines(STDIN, allow_blank=True)
    translations = model.generate(lines, beam_size=beam, n_best=sample or n_best, sampling=sampling)
    if as_json:
        records = [
            {
                "source": line,
                "translations": [
                    {"text": translation.text, "score": translation.score} for translation in several
                ],
            }
            for line, several in zip(lines, translations, strict=True)
        ]
        print(json_text(records))
    else:
        for number, several in enumerate(translations):
            for translation in several:  # the text itself, whatever it holds
                several_asked = max(sample, n_best) > 1
                print(
                    f"{number} ||| {translation.text} ||| {translation.score:.6f}"
                    if several_asked
                    else translation.text
                )
    return 0


@cli.app.command(cls=cli.Command)
def score(
    systems: Annotated[
        list[Path],
        typer.Argument(help="Translations, detokenised, plain or .gz, or folders of finished runs."),
    ],
    ref: Annotated[list[Path] | None, typer.Option(help="References; for several, repeat --ref.")] = None,
    src: Annotated[
        Path | None, typer.Option(help="Source text, which runs and some external metrics need.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", "-m", help="Metrics: bleu, chrf, chrf++, ter [default: bleu,chrf]."),
    ] = None,
    tokenize: Annotated[
        str, typer.Option(help="For BLEU: 13a, intl, char, zh, ja-mecab, ko-mecab or none.")
    ] = "13a",
    lowercase: Annotated[bool, typer.Option("--lowercase", "-lc", help="Case-insensitive BLEU.")] = False,
    external: Annotated[
        list[str] | None,
        typer.Option(help="comet, or NAME=FILE with one score per line. May be repeated."),
    ] = None,
    test: Annotated[str, typer.Option(help="Test set of runs for --external [default: the first].")] = "",
    probabilities: Annotated[
        bool, cli.flag("probabilities", "Print the probability that the runs give to the reference.")
    ] = False,
    ensemble: Annotated[
        bool, cli.flag("ensemble", "Average the probabilities of the runs: one system.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the translations of the runs, RUN.hyp.")
    ] = None,
    device: cli.Device = "cpu",
    corpus: cli.CorpusFolder = "",
    plugin: cli.PluginModules = None,
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Score translations, or finished runs on any test set.

    sacreBLEU scores files of translations with BLEU, chrF or TER; a paired test compares the BLEU of several.
    Runs translate --src with their own settings, and all metrics are computed. With --probabilities, runs
    score the reference instead: log-probabilities of sentences and tokens, and perplexity. Without --ref,
    --external adds a metric such as comet (which needs uv) to finished runs, for tables and report; see
    docs/experiments.md.

    Example: attnbench score lstm.de transformer.de --ref test.de --metrics bleu,chrf,ter
    """
    from compare.scoring import HEADLINE
    from compare.system.device import tune_cpu
    from compare.system.messages import ensure_folder

    entered: dict[str, Any] = {"--src": src, "--metrics": metrics, "--tokenize": tokenize != "13a"}
    entered |= {"--lowercase": lowercase, "--external": external, "--test": test, "--set": corpus}
    entered |= {"--probabilities": probabilities, "--ensemble": ensemble, "--out": out}
    entered["--device"] = device != "cpu"

    def ensure_only(what: str, *names: str) -> None:
        for name, value in entered.items():
            if value and name not in names:
                raise ValueError(f"{name} has no effect with {what}: leave it out")

    differences = []
    for path in systems:
        if not path.exists():
            if not path.suffix:
                ensure_folder(path)
            packed = path.with_name(f"{path.name}.gz")
            hint = f"; there is {packed}" if packed.exists() else ""
            raise FileNotFoundError(f"{path}: no such file{hint}")
    if not all(path.is_dir() for path in systems):
        if any(path.is_dir() for path in systems):
            raise ValueError("give finished runs or files of translations, not both")
        if not ref:
            raise ValueError("--ref is missing: name a file of references")
        for_external = ["--src"] if external else []
        ensure_only("translations", "--metrics", "--tokenize", "--lowercase", "--external", *for_external)
        asked = [name for text in metrics or HEADLINE.metrics for name in text.replace(",", " ").split()]
        options = compare.ScoringOptions(metrics=asked, tokenize=tokenize, lowercase=lowercase)
        scores = compare.score_files(systems, ref, options)
        if len(scores) > 1 and "bleu" in asked:
            differences = compare.compare_files(systems, ref, options)
        scores = compare.add_external_scores(scores, external, ref, src) if external else scores
    elif not ref:
        if not external:
            raise ValueError("runs need --src and --ref, or --external")
        ensure_only("runs without --ref", "--external", "--test", "--set")
        scores = compare.add_run_scores(systems, external, test=test, data_root=corpus)
    elif probabilities:
        if len(ref) > 1:
            raise ValueError("--probabilities takes one --ref")
        ensure_only("--probabilities", "--probabilities", "--src", "--ensemble", "--device")
        tune_cpu()
        forced = compare.score_model(systems, src, ref[0], ensemble=ensemble, device=device)
        _show_forced_scores(forced, as_json=as_json)
        return 0
    else:
        if src is None:
            raise ValueError("--src is missing: name the text that the runs translate")
        ensure_only("runs and --ref", "--src", "--ensemble", "--out", "--device")
        tune_cpu()
        scores = compare.score_runs(systems, src, ref, out=out, ensemble=ensemble, device=device)
    _show_scores(scores, differences, as_json=as_json)
    return 0


def _show_scores(
    scores: Mapping[str, "SystemScores"], differences: Sequence["PairedDifference"], *, as_json: bool
) -> None:
    """Print one system's scores on a line each, several as a table with signatures and tests."""
    from compare.analysis.statistics import ALPHA, RANDOMISATIONS

    records: list[dict[str, Any]] = [
        {"system": name, **system.columns(), "warnings": system.warnings} for name, system in scores.items()
    ]
    for record in records if differences else ():
        record["differences"] = [test._asdict() for test in differences if record["system"] in test[:2]]
    first = next(iter(scores.values()))
    columns = first.columns()
    signatures = {metric.heading: columns.get(f"{name}_signature") for name, metric in METRICS.items()}
    signatures |= {name: columns[f"{name}_signature"] for name in first.external()}
    notes = [f"{heading}: {text}" for heading, text in signatures.items() if text]
    if differences:
        notes.append(f"BLEU on this test set ({RANDOMISATIONS:,} randomisations, Holm's correction):")
    short = _shortest_names(list(scores))
    for test in differences:
        verdict = "differ" if test.p < ALPHA else "no difference shown"
        pair = f"{short[test.first]} and {short[test.second]}: {test.difference:+.2f}"
        notes.append(f"{pair}, {describe_p(test.p)}: {verdict}")
    table = listing(
        [_score_row(short[name], system) for name, system in scores.items()],
        conditions=notes,
        warnings=[f"{short[name]}: {text}" for name, system in scores.items() for text in system.warnings],
    )
    text = draw(table, terminal_width()).rstrip("\n") if len(scores) > 1 else str(first)
    cli.show(records if len(records) > 1 else records[0], text, as_json=as_json)


def _shortest_names(paths: Sequence[str]) -> dict[str, str]:
    """Cut paths to as few last parts as distinguish them."""
    for length in range(1, max(len(Path(path).parts) for path in paths) + 1):
        names = ["/".join(Path(path).parts[-length:]) for path in paths]
        if len(set(names)) == len(paths):
            return dict(zip(paths, names, strict=True))
    return {path: path for path in paths}


def _score_row(name: str, system: "SystemScores") -> Row:
    columns = system.columns()
    row: Row = {"system": name}
    for metric, definition in METRICS.items():
        if (score := columns.get(metric)) is None:
            continue
        row[definition.heading] = score
        if interval := system.interval(metric):
            row["[95%]" if "[95%]" not in row else f"{definition.heading} [95%]"] = interval
    row |= system.external()
    return row if system.length_ratio is None else {**row, "length ratio": system.length_ratio}


def _show_forced_scores(scores: Mapping[str, "ForcedScores"], *, as_json: bool) -> None:
    """Print the log-probabilities of sentences and pieces of one run, or the perplexities of several."""
    lines = []
    first = next(iter(scores.values()))
    for sentence in first.sentences:
        pieces = zip(sentence.pieces, sentence.logp, strict=True)
        lines.append(f"{sentence.total:.4f}\t{' '.join(f'{piece}:{logp:.4f}' for piece, logp in pieces)}")
    sums = first.sums
    lines.append(
        f"perplexity {sums.perplexity:.4f} per token ({sums.tokens:,} tokens, {sums.unknown:,} unknown), "
        f"{sums.char_perplexity:.4f} per character ({sums.characters:,} characters)"
    )
    rows = [
        {
            "run": name,
            "log-probability": round(-result.sums.nll, 2),
            "tokens": result.sums.tokens,
            "unknown": result.sums.unknown,
            "perplexity": round(result.sums.perplexity, 4),
            "perplexity per character": round(result.sums.char_perplexity, 4),
        }
        for name, result in scores.items()
    ]
    text = table_text(rows, width=terminal_width()) if len(scores) > 1 else "\n".join(lines)
    records = [{"run": name, **result.to_json()} for name, result in scores.items()]
    cli.show(records if len(records) > 1 else records[0], text, as_json=as_json)


@cli.app.command(cls=cli.Command)
def align(
    systems: Annotated[
        list[Path], typer.Argument(help="Folders of finished runs, or files of links by word aligners.")
    ],
    gold: Annotated[Path, typer.Option(help="Gold links, Pharaoh format, plain or .gz.")],
    src: Annotated[Path, typer.Option(help="Source text of the links, tokenised.")],
    tgt: Annotated[Path, typer.Option(help="Target text of the links, tokenised.")],
    first_word: Annotated[
        int, typer.Option(min=0, max=1, help="Number of the first word in the gold links: 0 or 1.")
    ] = 0,
    reverse: Annotated[
        bool, cli.flag("reversed", "Gold links are target-source, not source-target.")
    ] = False,
    method: Annotated[
        str, typer.Option(help="Method for runs: arg max, intersection, or a threshold (0.2).")
    ] = "arg max",
    links: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for links of the runs' heads, Pharaoh: RUN/HEAD.links."),
    ] = None,
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Compare attention and word aligners with gold word alignments.

    Prints alignment error rate, precision and recall: of every head of a run, and of files of links by
    fast_align, eflomal or awesome-align (Pharaoh format, source-target).

    Example: attnbench align runs/demo/bahdanau-seed1 eflomal.fwd --gold gold.talp --src test.en --tgt test.de
    """
    from compare.analysis.alignment import write_link_files
    from compare.system.device import tune_cpu

    runs = [path for path in systems if path.is_dir()]
    if links is not None and len({run.resolve().name for run in runs}) < len(runs):
        raise ValueError("two runs have the same name, so --out would mix their files: align one at a time")
    if links is not None and not runs:
        raise ValueError("--out has no effect without a run: leave it out")
    pairs = compare.read_gold(gold, src, tgt, first_word=first_word, reverse=reverse)
    alignments = {
        str(path): compare.read_proposed_links(path, pairs) for path in systems if not path.is_dir()
    }
    tune_cpu()
    rows: list[dict[str, Any]] = []
    for run in runs:
        translator = compare.load_model(run)
        measured = compare.measure_alignment(translator, pairs)
        if measured is None:
            raise ValueError(
                f"{run}: this model has no attention to the source, so there are no links to derive"
            )
        rows += [{"system": str(run)} | row for row in measured.rows(method)]
        if links is not None:
            write_link_files(translator, pairs, links / run.resolve().name, method)
    for name, alignment in alignments.items():
        rows.append(
            {"system": name, "method": "links"} | compare.count_proposed_links(alignment, pairs).scores()
        )
    short = _shortest_names([str(system) for system in systems])
    shown = [row | {"system": short[row["system"]]} for row in rows]
    cli.show(rows, table_text(shown, width=terminal_width()), as_json=as_json)
    return 0


@cli.app.command(cls=cli.Command)
def export(
    runs: Annotated[list[Path], typer.Argument(help="Folder of a finished run; for a page up to four.")],
    out: Annotated[Path, typer.Option(help="Output folder, or the page, a file that ends in .html.")],
    lines: Annotated[int, typer.Option(min=0, help="Number of validation sentences to compare; 0: all.")] = 0,
    precision: Annotated[
        str | None, typer.Option(help="Precision of the weights in a page: int8 or fp16 [default: int8].")
    ] = None,
    example: Annotated[
        list[str] | None, typer.Option(help="A sentence to try in a page. May be repeated.")
    ] = None,
    corpus: cli.CorpusFolder = "",
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Export a Transformer to CTranslate2, or models to a page.

    The exported Transformer and the run translate the validation set by greedy search; the number of equal
    translations is printed. The page is one file that translates what its reader types, with up to four
    models side by side, and shows their attention.

    Example: attnbench export runs/demo/bahdanau-seed1 runs/demo/transformer-seed1 --out live.html
    """
    if out.suffix == ".html":
        if lines:
            raise ValueError("--lines has no effect on a page: leave it out")
        page = compare.export_page(
            runs, out, precision=precision or "int8", examples=example or [], data_root=corpus
        )
        cli.show({"page": str(page), "bytes": page.stat().st_size}, str(page), as_json=as_json)
        return 0
    if precision or example or len(runs) > 1:
        raise ValueError(f"--precision, --example and several runs are for a page: end --out {out} in .html")
    report = compare.export_model(runs[0], out, lines=lines, data_root=corpus)
    text = f"{out}: {report.equal:,} of {report.lines:,} greedy translations equal those of {runs[0]}"
    cli.show(report, text, as_json=as_json)
    return 0
