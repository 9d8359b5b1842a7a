"""Commands on corpora: data check, data prepare, data get, data list."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compare.cli.app import AsJson, Quiet, app, print_visible

if TYPE_CHECKING:
    from data.formats import Source


# Commands for the user's own corpora: data check, data prepare.


logger = logging.getLogger(__name__)

data_app = typer.Typer(
    help="Check, prepare and download corpora.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(data_app, name="data")

ALL = ""
"""Key of a corpus that is not divided into splits."""

Files = Annotated[
    list[Path] | None,
    typer.Argument(help="Source and target files in turn, tables, JSON lines, a folder, or - for stdin."),
]
Corpus = Annotated[list[Path] | None, typer.Argument(help="As in `data check`, or a corpus of `data list`.")]
SrcFiles = Annotated[list[Path] | None, typer.Option("--src", help="Source files; may be repeated.")]
TgtFiles = Annotated[list[Path] | None, typer.Option("--tgt", help="Their target files, in the same order.")]
Columns = Annotated[str, typer.Option(help="Two columns of a table: 1,2, or en,de by its first line.")]
Fields = Annotated[str, typer.Option(help="Fields of JSON lines, such as translation.en,translation.de.")]
Langs = Annotated[str, typer.Option(help="Languages, such as en,de [default: from the file names].")]


@data_app.command()
def check(
    files: Files = None,
    src: SrcFiles = None,
    tgt: TgtFiles = None,
    columns: Columns = "",
    fields: Fields = "",
    langs: Langs = "",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Measure a corpus and list suspicious lines.

    The exit status is 1 if a run would reject some of them.

    Example: attnbench data check corpus.de corpus.en
    """
    from compare.report.corpus import render_check
    from compare.system.log import Reporter, show_messages
    from data.checks import check_corpus as compute

    show_messages(quiet=quiet)
    splits, _ = _splits(files or [], src or [], tgt or [], columns, fields, langs)
    with Reporter(quiet=quiet).pairs() as progress:
        found = compute(splits, progress=progress)
    print_visible(
        json.dumps(found.to_json(), indent=2, ensure_ascii=False) if as_json else render_check(found)
    )
    return 1 if found.num_unusable else 0


@data_app.command()
def prepare(
    files: Corpus = None,
    out: Annotated[Path | None, typer.Option(help="The folder to create, or an empty one.")] = None,
    src: SrcFiles = None,
    tgt: TgtFiles = None,
    columns: Columns = "",
    fields: Fields = "",
    langs: Langs = "",
    valid: Annotated[
        int | None, typer.Option(min=1, help="Number of valid pairs [default: a tenth, 1 to 1,000].")
    ] = None,
    test: Annotated[
        int | None, typer.Option(min=1, help="Number of test pairs [default: a tenth, 1 to 1,000].")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing valid and test.")] = 1,
    max_words: Annotated[
        int, typer.Option(min=0, help="Drop pairs with more words on a side; 0: no limit.")
    ] = 0,
    max_ratio: Annotated[
        float, typer.Option(min=0, help="Drop pairs with a larger length ratio; 0: no limit.")
    ] = 0,
    drop_duplicates: Annotated[bool, typer.Option("--drop-duplicates", help="Drop repeated pairs.")] = False,
    drop_copies: Annotated[bool, typer.Option("--drop-copies", help="Drop untranslated pairs.")] = False,
    drop_broken: Annotated[bool, typer.Option("--drop-broken", help="Drop pairs with broken text.")] = False,
    drop_overlap: Annotated[
        bool, typer.Option("--drop-overlap", help="Drop training pairs that share a side with valid/test.")
    ] = False,
    root: Annotated[Path, typer.Option(help="Folder of named corpora, as in `data get`.")] = Path("corpora"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only read and count; write nothing.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Filter and split a corpus into a new folder.

    The folder has train, valid and test sets and an experiment.toml that is ready to run.

    Example: attnbench data prepare corpus.de corpus.en --out mine
    """
    from compare.config.starter import starter_experiment
    from compare.report.corpus import render_summary
    from compare.system.log import Reporter, show_messages
    from data.files import check_vacant
    from data.prepare import Filters, PreparationPlan, run_first_pass, summary
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
        _resolve_name(files or [], langs, root), src or [], tgt or [], columns, fields, langs
    )
    sources = splits.pop("train", None) or splits.pop(ALL)
    if splits and (valid or test):
        raise ValueError("--valid and --test divide one corpus, but this folder is divided: omit both")
    if drop_overlap and not splits:
        raise ValueError(
            "--drop-overlap is for a folder with valid and test sets: a corpus divided here has no overlap"
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
    show_messages(quiet=quiet)
    with Reporter(quiet=quiet).pairs() as progress:
        if dry_run or out is None:
            made = summary(plan, run_first_pass(plan, progress))
        else:
            made = make(
                plan,
                out,
                lambda first_pass, sizes: starter_experiment(found_langs, first_pass, sizes),
                progress=progress,
            )
    print_visible(json.dumps(made, indent=2, ensure_ascii=False) if as_json else render_summary(made))
    if out is not None and not dry_run:
        logger.info(f"next: attnbench run {out}/experiment.toml --out runs/{out.resolve().name}")
    return 0


def _resolve_name(files: list[Path], langs: str, root: Path) -> list[Path]:
    """Return ``files``, or the folder of the named corpus if they are the name of one."""
    from data.named import CORPORA, downloaded_folder
    from data.sources import parse_languages

    if len(files) != 1 or str(files[0]) not in CORPORA or files[0].exists():
        return files
    src, tgt = parse_languages(langs) if langs else ("", "")
    return [downloaded_folder(str(files[0]), src, tgt, root)]


def _splits(
    files: list[Path], src: list[Path], tgt: list[Path], columns: str, fields: str, langs: str
) -> "tuple[dict[str, tuple[Source, ...]], tuple[str, str]]":
    """Find the sources of each split, and the two languages, from the command line arguments."""
    from data.sources import find_sources, folder_sources, languages, parse_languages

    given_langs = parse_languages(langs) if langs else None
    if len(files) == 1 and files[0].is_dir():
        if src or tgt or columns or fields:
            raise ValueError(f"{files[0]} is a folder: --src, --tgt, --columns and --fields are for files")
        folder, found_langs = folder_sources(files[0], given_langs)
        return {name: (source,) for name, source in folder.items()}, found_langs
    sources = find_sources(files, src=src, tgt=tgt, columns=columns, fields=fields)
    return {ALL: sources}, given_langs or languages(sources)


# Commands for named corpora: data list, data get.


Root = Annotated[Path, typer.Option(help="Folder for the corpora and the downloads.")]


@data_app.command("list")
def list_corpora(as_json: AsJson = False) -> int:
    """List the named corpora.

    --json also lists the URL and hash of every file.
    """
    from compare.report.corpus import entries, render_catalogue

    print_visible(json.dumps(entries(), indent=2, ensure_ascii=False) if as_json else render_catalogue())
    return 0


@data_app.command()
def get(
    name: Annotated[str, typer.Argument(help="A corpus of `data list`.")],
    src: Annotated[str, typer.Option(help="Source language [default: the corpus' first pair].")] = "",
    tgt: Annotated[str, typer.Option(help="Target language.")] = "",
    root: Root = Path("corpora"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print files and URLs, download nothing.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Download a named corpus and write its folder.

    After an interruption, run the same command again to resume.

    Example: attnbench data get multi30k --src en --tgt fr
    """
    from compare.report.corpus import addresses, fetched
    from compare.system.log import show_messages

    if dry_run:
        files = addresses(name, src, tgt)
        text = "\n".join(f"{file['file']}  {file['from'][0]}" for file in files)
        print_visible(json.dumps(files, indent=2) if as_json else text)
        return 0
    show_messages(quiet=quiet)
    folder = fetched(name, src, tgt, root, quiet=quiet)
    print_visible(json.dumps({"folder": str(folder)}) if as_json else folder)
    return 0
