"""Command on word alignments: align."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compare.cli.app import AsJson, Quiet, app, print_visible

if TYPE_CHECKING:
    from compare.analysis.alignment.gold import Gold

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
    from compare.analysis.alignment.gold import read_gold
    from compare.analysis.alignment.proposed_links import count_proposed_links, read_proposed_links
    from compare.analysis.alignment.symmetrisation import symmetrise
    from compare.results.markdown import markdown_table
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
    from compare.analysis.alignment.link_files import write_link_files
    from compare.analysis.alignment.measurement import measure_alignment
    from compare.results.trained_model import load_model
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
