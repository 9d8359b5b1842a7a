"""Commands about data, presets and the machine: data check, data prepare, data get, models, doctor."""

import logging
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

import compare
from compare.cli import options as cli
from compare.report.table_formats import list_text
from compare.system.log import counting
from compare.system.messages import program_name

if TYPE_CHECKING:
    from data.formats import Source


logger = logging.getLogger(__name__)

data_app = typer.Typer(
    help="Check, prepare and download corpora.", no_args_is_help=True, rich_markup_mode=None
)
cli.app.add_typer(data_app, name="data")

SplitSize = Annotated[
    int | None, typer.Option(min=1, help="Size of this set in pairs [default: a tenth, at most 1,000].")
]
NAMED = Path("corpora")
"""Where `data get` puts named corpora by default, and `data prepare` finds them."""
ALL = ""
"""Key of a corpus without splits."""

Files = Annotated[
    list[Path] | None,
    typer.Argument(help="Source and target files in turn, tables, JSON lines, a folder, or - for stdin."),
]
Corpus = Annotated[
    list[Path] | None, typer.Argument(help="As in `data check`, or a name of `data get --list`.")
]
SrcFiles = Annotated[list[Path] | None, typer.Option("--src", help="Source files; may be repeated.")]
TgtFiles = Annotated[list[Path] | None, typer.Option("--tgt", help="Their target files, in the same order.")]
Columns = Annotated[
    str, typer.Option(help="Two columns of a table, by number (1,2) or by its first line (en,de).")
]
Fields = Annotated[str, typer.Option(help="Fields of JSON lines, such as translation.en,translation.de.")]
Langs = Annotated[str, typer.Option(help="Languages, such as en,de [default: from the file names].")]


@data_app.command(cls=cli.Command)
def check(
    files: Files = None,
    src: SrcFiles = None,
    tgt: TgtFiles = None,
    columns: Columns = "",
    fields: Fields = "",
    langs: Langs = "",
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Measure a corpus and list suspicious lines.

    The exit status is 1 if a run would reject any of them.

    Example: attnbench data check corpus.de corpus.en
    """
    from compare.report.corpus import render_check
    from data.checks import check_corpus as compute

    splits, _ = _splits(files or [], src or [], tgt or [], columns, fields, langs)
    with counting("pairs") as progress:
        report = compute(splits, progress=progress)
    cli.show(report.to_json(), render_check(report), as_json=as_json)
    return 1 if report.num_unusable else 0


@data_app.command(cls=cli.Command)
def prepare(
    files: Corpus = None,
    out: Annotated[Path | None, typer.Option(help="The folder to create, or an empty one.")] = None,
    src: SrcFiles = None,
    tgt: TgtFiles = None,
    columns: Columns = "",
    fields: Fields = "",
    langs: Langs = "",
    valid: SplitSize = None,
    test: SplitSize = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing valid and test.")] = 1,
    max_words: Annotated[int, typer.Option(min=0, help="Drop pairs with more words on a side; 0: none.")] = 0,
    max_ratio: Annotated[
        float, typer.Option(min=0, help="Drop pairs with a larger length ratio; 0: none.")
    ] = 0,
    drop_duplicates: Annotated[bool, cli.flag("drop-duplicates", "Drop repeated pairs.")] = False,
    drop_copies: Annotated[bool, cli.flag("drop-copies", "Drop untranslated pairs.")] = False,
    drop_broken: Annotated[bool, cli.flag("drop-broken", "Drop pairs with broken text.")] = False,
    drop_overlap: Annotated[
        bool, cli.flag("drop-overlap", "Drop training pairs that share a side with valid/test.")
    ] = False,
    dry_run: cli.DryRun = False,
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Filter and split a corpus into a new folder.

    The folder has train, valid and test sets and an experiment.toml that is ready to run.

    Example: attnbench data prepare corpus.de corpus.en --out mine
    """
    from compare.config.starter import starter_experiment
    from compare.report.corpus import render_findings, render_summary
    from data.checks import check_corpus
    from data.files import check_vacant
    from data.prepare import Filters, PreparationPlan, preview_corpus
    from data.prepare import prepare_corpus as make

    if out is not None:
        check_vacant(out)
    elif not dry_run:
        raise ValueError("--out is missing: name the new folder, or give --dry-run")
    filters = Filters(
        max_words=max_words,
        max_ratio=max_ratio,
        drop_copies=drop_copies,
        drop_broken=drop_broken,
        drop_duplicates=drop_duplicates,
        drop_overlap=drop_overlap,
    )
    splits, found_langs = _splits(
        _resolve_name(files or [], langs), src or [], tgt or [], columns, fields, langs
    )
    sources = splits.pop("train", None) or splits.pop(ALL)
    if splits and (valid or test):
        raise ValueError("this folder is divided already: leave out --valid and --test")
    if drop_overlap and not splits:
        raise ValueError(
            "--drop-overlap needs a folder with valid and test sets: a corpus that is divided here has no "
            "overlap"
        )
    fixed_splits = {name: source for name, (source,) in splits.items()}
    plan = PreparationPlan(
        sources=sources,
        langs=found_langs,
        filters=filters,
        fixed_splits=fixed_splits,
        valid=valid,
        test=test,
        seed=seed,
    )
    with counting("pairs") as progress:
        if dry_run or out is None:
            made = preview_corpus(plan, progress)
        else:
            made = make(plan, out, partial(starter_experiment, found_langs), progress=progress)
    is_preview = out is None or dry_run
    cli.show(made, render_summary(made, warnings=is_preview), as_json=as_json)
    if out is not None and not is_preview:  # with the same warnings, among others
        written, _ = _splits([out], [], [], "", "", ",".join(found_langs))
        with counting("pairs") as progress:
            findings = render_findings(check_corpus(written, progress=progress))
        if findings and not as_json:
            cli.print_visible(findings)
        config, runs = quote(f"{out}/experiment.toml"), quote(str(Path("runs", out.resolve().name)))
        logger.info(f"next: {program_name()} run {config} --out {runs}")
    return 0


def _resolve_name(files: list[Path], langs: str) -> list[Path]:
    """Return ``files``, or the folder of the corpus that they name."""
    from data.formats import parse_languages
    from data.named import CORPORA, downloaded_folder

    if len(files) != 1 or str(files[0]) not in CORPORA or files[0].exists():
        return files
    src, tgt = parse_languages(langs) if langs else ("", "")
    return [downloaded_folder(str(files[0]), src, tgt, NAMED)]


def _splits(
    files: list[Path], src: list[Path], tgt: list[Path], columns: str, fields: str, langs: str
) -> "tuple[dict[str, tuple[Source, ...]], tuple[str, str]]":
    """Return the sources of each split, and the two languages."""
    from data.formats import find_sources, folder_sources, languages, parse_languages

    given_langs = parse_languages(langs) if langs else None
    if len(files) == 1 and files[0].is_dir():
        if src or tgt or columns or fields:
            raise ValueError(f"{files[0]} is a folder: --src, --tgt, --columns and --fields are for files")
        folder, found_langs = folder_sources(files[0], given_langs)
        return {name: (source,) for name, source in folder.items()}, found_langs
    sources = find_sources(files, src=src, tgt=tgt, columns=columns, fields=fields)
    named = languages(sources)
    if given_langs and (given_langs[0] == named[1] or given_langs[1] == named[0]):
        raise ValueError(
            f"--langs {langs} contradicts the names of the files, which are in {' and '.join(named)}: give "
            "files and languages in the same order"
        )
    return {ALL: sources}, given_langs or named


@data_app.command(cls=cli.Command)
def get(
    name: Annotated[str | None, typer.Argument(help="A corpus of --list.")] = None,
    src: Annotated[str, typer.Option(help="Source language [default: the corpus' first pair].")] = "",
    tgt: Annotated[str, typer.Option(help="Target language.")] = "",
    out: Annotated[Path, typer.Option(help="Parent of the corpus folder.")] = NAMED,
    list_corpora: cli.ListAll = False,
    dry_run: cli.DryRun = False,
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """Download a named corpus and write its folder.

    After an interruption, the same command resumes. --dry-run prints files and URLs; --list --json prints
    those of all corpora, with their hashes.

    Example: attnbench data get multi30k --src en --tgt fr
    """
    from compare.report.corpus import addresses, entries, render_catalogue
    from data.named import fetch

    if name is None or list_corpora:
        cli.show(entries(), render_catalogue(), as_json=as_json)
        return 0
    if dry_run:
        files = addresses(name, src, tgt)
        text = "\n".join(f"{file['file']}  {file['from'][0]}" for file in files)
        cli.show(files, text, as_json=as_json)
        return 0
    with counting("MB") as progress:
        folder = fetch(name, src, tgt, out, progress)
    cli.show({"folder": str(folder)}, str(folder), as_json=as_json)
    return 0


@cli.app.command(cls=cli.Command)
def models(
    name: Annotated[str | None, typer.Argument(help="The preset to describe [default: list all].")] = None,
    list_presets: cli.ListAll = False,
    vocabulary: Annotated[int, typer.Option(min=5, help="Size of each vocabulary.")] = 8000,
    verify: Annotated[
        bool, cli.flag("verify", "Test that the model of the preset obeys the rules for models.")
    ] = False,
    plugin: cli.PluginModules = None,
    quiet: cli.Quiet = False,
    as_json: cli.AsJson = False,
) -> int:
    """List the presets, or describe one.

    A description shows settings, departures from the paper, formulas, and modules with their weights.
    --verify builds a small model and runs it on a few sentences. It checks steps against forward, causality,
    padding, batch neighbours, beams, saved weights and FLOPs. The exit status is 1 if a check fails.

    Example: attnbench models luong-local-p
    """
    if name is None or list_presets:
        if verify:
            raise ValueError(
                "--verify checks one preset: name it, such as attnbench models bahdanau --verify"
            )
        from compare.models import read_preset_files

        described = read_preset_files()
        if plugin:  # it may have registered others
            from compare.models.presets import PRESETS

            described = {preset: vars(PRESETS[preset]) for preset in PRESETS}
        shown = ("about", "source", "paper_size")
        presets = [
            {"preset": preset} | {field: values.get(field, False) for field in shown}
            for preset, values in described.items()
        ]
        cli.show(presets, _preset_list(presets), as_json=as_json)
        return 0
    if verify:
        verdicts = compare.verify_preset(name)
        rows = [
            {"check": verdict.check, "outcome": "ok" if verdict.holds else verdict.problem}
            for verdict in verdicts
        ]
        cli.show(verdicts, list_text(rows), as_json=as_json)
        return 0 if all(verdict.holds for verdict in verdicts) else 1
    from compare.models.presets import render_description

    description = compare.describe_preset(name, vocabulary)
    cli.show(description, render_description(description), as_json=as_json)
    return 0


def _preset_list(presets: list[dict[str, Any]]) -> str:
    tables = [
        list_text(
            [
                {"preset": preset["preset"], "what it is": preset["about"], "source": preset["source"]}
                for preset in presets
                if preset["paper_size"] == paper_size
            ]
        )
        for paper_size in (False, True)
    ]
    note = "attnbench models NAME shows the size, settings and formulas of one preset"
    return "\n\n".join([tables[0], "with the sizes of their papers:", tables[1], note])


@cli.app.command(cls=cli.Command)
def doctor(as_json: cli.AsJson = False) -> int:
    """Describe this machine and name what is missing."""
    from compare.system.doctor import render_diagnoses

    findings = compare.diagnose()
    cli.show(findings, render_diagnoses(findings), as_json=as_json)
    return 1 if any(item.level == "missing" for item in findings) else 0
