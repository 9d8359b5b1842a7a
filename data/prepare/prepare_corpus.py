"""Preparation of a corpus folder from raw pairs in two passes: label each pair, then write the kept ones."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from data.parallel import available_cores
from data.prepare.filters import clean, clean_all
from data.prepare.first_pass import FirstPass, PreparationPlan, blocks, report_pairs, run_first_pass
from data.prepare.splitting import DROPPED, SPLITS, Labels
from data.progress import ProgressCallback, no_progress
from data.text.compression import BUFFER, display_name, open_text
from data.text.files import ensure_unchanged
from data.text.formats import Source
from data.text.new_folder import described, new_folder

MANIFEST = "manifest.json"
EXPERIMENT_FILE = "experiment.toml"
FORMAT = 1
"""Version of the manifest's format; raise it when a field changes its meaning."""

Starter = Callable[[FirstPass, Mapping[str, int]], str]
"""Composes the text of ``experiment.toml`` from the first pass and the number of pairs per split."""


def prepare_corpus(
    plan: PreparationPlan,
    out: str | Path,
    starter: Starter | None = None,
    *,
    progress: ProgressCallback = no_progress,
    workers: int | None = None,
) -> dict[str, Any]:
    """Filter and divide the pairs of ``plan`` into a new folder; the same plan gives the same bytes.

    Args:
        plan: files and settings.
        out: the new folder; it must be empty if it exists. It appears only when it is complete.
        starter: composes ``experiment.toml``; None: no such file.
        progress: shows how many pairs have been read and written.
        workers: number of processes that examine the pairs; see ``run_first_pass``.

    Returns:
        The manifest, also written to ``out``: settings, number of pairs dropped by each rule and kept in each
        split, bytes and sha256 of all files read and written.

    Raises:
        OSError: a file cannot be read or written, or ``out`` is not empty.
        ValueError: a line breaks the format, too few pairs are left, a fixed split has a blank side, or a
            file changed while it was read.
    """
    with new_folder(Path(out)) as folder:
        spool = folder / "spool"
        local = replace(plan, sources=[_spool_streams(source, spool) for source in plan.sources])
        with ensure_unchanged(*_paths(local)):
            found = run_first_pass(local, progress, workers=workers)
            _write_divided(local, found.labels, folder, progress)
            fixed_sizes = {
                name: _copy_fixed_split(name, source, plan.langs, folder)
                for name, source in plan.fixed_splits.items()
            }
            inputs = _describe(_paths(local))
        shutil.rmtree(spool, ignore_errors=True)
        outputs = sorted(folder.iterdir())
        manifest = {
            **summary(plan, found),
            "splits": found.sizes | fixed_sizes,
            "inputs": [
                {"path": display_name(path), **entry}
                for path, entry in zip(_paths(plan), inputs, strict=True)
            ],
            "outputs": dict(zip([path.name for path in outputs], _describe(outputs), strict=True)),
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")
        if starter is not None:
            (folder / EXPERIMENT_FILE).write_text(starter(found, manifest["splits"]), "utf-8")
    return manifest


def summary(plan: PreparationPlan, first_pass: FirstPass) -> dict[str, Any]:
    """Return the entries of the manifest that are known after the first pass: settings, numbers of pairs."""
    return {
        "format": FORMAT,
        "languages": list(plan.langs),
        "settings": {"seed": plan.seed, "valid": plan.valid, "test": plan.test, **asdict(plan.filters)},
        "read": len(first_pass.labels),
        "dropped": dict(first_pass.dropped),
        "splits": first_pass.sizes,
    }


def _paths(plan: PreparationPlan) -> list[Path]:
    """List all files that a plan reads."""
    return [path for source in (*plan.sources, *plan.fixed_splits.values()) for path in source.paths]


def _describe(paths: Sequence[Path]) -> list[dict[str, int | str]]:
    """Apply ``described`` to each file, to several at a time."""
    with ThreadPoolExecutor(available_cores()) as threads:
        return list(threads.map(described, paths))


def _spool_streams(source: Source, spool: Path) -> Source:
    """Copy to ``spool`` what can be read only once (standard input, pipes), and point the source there."""
    copies = {}
    for each in fields(source):
        path = getattr(source, each.name)
        if isinstance(path, Path) and not path.is_file():
            spool.mkdir(exist_ok=True)
            copies[each.name] = spool / f"{len(list(spool.iterdir()))}-standard-input"
            with open_text(path) as stream, copies[each.name].open("xb") as file:
                shutil.copyfileobj(stream, file, BUFFER)
    return replace(source, **copies)  # type: ignore[arg-type]  # only its own fields that are paths


def _write_divided(plan: PreparationPlan, labels: Labels, folder: Path, progress: ProgressCallback) -> None:
    """Write each kept pair to the files of its split."""

    def report(done: int) -> None:
        progress("writing", done, len(labels))

    with ExitStack() as stack:
        files = {
            label: [
                stack.enter_context((folder / f"{split}.{lang}").open("wb", BUFFER)) for lang in plan.langs
            ]
            for label, split in enumerate(SPLITS)
            if (labels == label).any()
        }
        done, end = 0, 0
        report(done)
        for block in blocks(plan.sources, plan.filters):
            end += len(block[0])
            if end > len(labels):
                break
            _write_block([clean_all(lines) for lines in block], labels[done:end], files)
            report_pairs(report, done, end - done)
            done = end
        if end != len(labels):
            raise ValueError(f"{_paths(plan)[0]}: has another number of pairs than when it was read first")


def _write_block(block: Sequence[list[str]], labels: Labels, files: Mapping[int, Sequence[BinaryIO]]) -> None:
    """Write the pairs of a block to the files of their splits.

    Args:
        block: the sources and the targets, cleaned.
        labels: the split of each pair, (N,).
        files: the two files of each split.
    """
    for label in np.flatnonzero(np.bincount(labels)):
        if label != DROPPED:
            chosen = (labels == label).tolist()
            for file, lines in zip(files[int(label)], block, strict=True):
                file.write("\n".join([*compress(lines, chosen), ""]).encode())


def _copy_fixed_split(name: str, source: Source, langs: tuple[str, str], folder: Path) -> int:
    """Copy a fixed valid or test set line by line; returns its number of pairs."""
    with (folder / f"{name}.{langs[0]}").open("wb") as src, (folder / f"{name}.{langs[1]}").open("wb") as tgt:
        count = 0
        for pair in source.rows():
            if not (clean(pair.src) and clean(pair.tgt)):
                raise ValueError(
                    f"{display_name(source.paths[0])}, line {pair.number}: a side of this pair is blank, "
                    f"and a given {name} set is never filtered; remove the pair from both files"
                )
            src.write(f"{pair.src}\n".encode())
            tgt.write(f"{pair.tgt}\n".encode())
            count += 1
    return count
