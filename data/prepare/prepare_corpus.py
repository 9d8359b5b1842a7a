"""Make a corpus folder of raw pairs in two passes, one that decides on each pair and one that writes."""

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from data.prepare.filters import cleaned
from data.prepare.first_pass import FirstPass, PreparationPlan, pairs, run_first_pass
from data.prepare.splitting import DROPPED, SPLITS, Labels
from data.progress import ProgressCallback, no_progress
from data.text.compression import BUFFER, display_name, open_text
from data.text.files import ensure_unchanged
from data.text.formats import Source
from data.text.new_folder import described, new_folder

MANIFEST = "manifest.json"
STARTER = "experiment.toml"
FORMAT = 1
"""Of the manifest: raise it when a field changes its meaning."""

Starter = Callable[[FirstPass, Mapping[str, int]], str]
"""Makes the text of ``experiment.toml`` from the survey and the pairs of each split."""


def prepare_corpus(
    plan: PreparationPlan, out: Path, starter: Starter, *, progress: ProgressCallback = no_progress
) -> dict[str, Any]:
    """Filter and divide the pairs of ``plan`` into a new folder ``out``; the same plan gives the same bytes.

    Returns:
        The manifest, which stands in ``out`` too: the settings, how many pairs each rule dropped and each
        split has, bytes and sha256 of all files that were read and written.

    Raises:
        OSError: a file cannot be read or written, or ``out`` holds something already.
        ValueError: what ``run_first_pass`` raises, or a file changed while it was read.
    """
    with new_folder(out) as folder:
        spool = folder / "spool"
        local = replace(plan, sources=[_spooled(source, spool) for source in plan.sources])
        with ensure_unchanged(*_paths(local)):
            found = run_first_pass(local, progress)
            _write_divided(local, found.labels, folder, progress)
            held = {name: _write_held(name, source, plan.langs, folder) for name, source in plan.held.items()}
            read = [described(path) for path in _paths(local)]
        shutil.rmtree(spool, ignore_errors=True)
        manifest = {
            **summary(plan, found),
            "splits": found.sizes | held,
            "inputs": [
                {"path": display_name(path), **each} for path, each in zip(_paths(plan), read, strict=True)
            ],
            "outputs": {path.name: described(path) for path in sorted(folder.iterdir())},
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")
        (folder / STARTER).write_text(starter(found, manifest["splits"]), "utf-8")
    return manifest


def summary(plan: PreparationPlan, found: FirstPass) -> dict[str, Any]:
    """What was asked for and what came of it, as far as the first pass knows; JSON can hold it."""
    return {
        "format": FORMAT,
        "languages": list(plan.langs),
        "settings": {"seed": plan.seed, "valid": plan.valid, "test": plan.test, **asdict(plan.filters)},
        "read": len(found.labels),
        "dropped": dict(found.dropped),
        "splits": found.sizes,
    }


def _paths(plan: PreparationPlan) -> list[Path]:
    """All files that a plan reads."""
    return [path for source in (*plan.sources, *plan.held.values()) for path in source.paths]


def _spooled(source: Source, spool: Path) -> Source:
    """``source`` with a copy in ``spool`` of what can be read only once, such as standard input."""
    copies = {}
    for field in fields(source):
        path = getattr(source, field.name)
        if isinstance(path, Path) and not path.is_file():
            spool.mkdir(exist_ok=True)
            copies[field.name] = spool / f"{len(list(spool.iterdir()))}-standard-input"
            with open_text(path) as stream, copies[field.name].open("xb") as file:
                shutil.copyfileobj(stream, file, BUFFER)
    return replace(source, **copies)  # type: ignore[arg-type]  # only its own fields that are paths


def _write_divided(plan: PreparationPlan, labels: Labels, folder: Path, progress: ProgressCallback) -> None:
    """Write each pair that is kept to the files of its split."""

    def report(done: int) -> None:
        progress("writing", done, len(labels))

    with ExitStack() as stack:
        files = [
            [stack.enter_context((folder / f"{split}.{lang}").open("wb", BUFFER)) for lang in plan.langs]
            for label, split in enumerate(SPLITS)
            if (labels == label).any()
        ]
        for label, pair in zip(labels.tobytes(), pairs(plan.sources, plan.filters, report), strict=True):
            if label != DROPPED:
                for file, text in zip(files[label], pair, strict=True):
                    file.write(f"{text}\n".encode())


def _write_held(name: str, source: Source, langs: tuple[str, str], folder: Path) -> int:
    """Take a fixed valid or test set over, line by line as it is; gives its number of pairs."""
    with (folder / f"{name}.{langs[0]}").open("wb") as src, (folder / f"{name}.{langs[1]}").open("wb") as tgt:
        for row in source.rows():
            if not (cleaned(row.src) and cleaned(row.tgt)):
                raise ValueError(
                    f"{display_name(source.paths[0])}, line {row.number}: a side of this pair is blank, "
                    f"and a {name} set is taken over as it is; take the pair out of both files"
                )
            src.write(f"{row.src}\n".encode())
            tgt.write(f"{row.tgt}\n".encode())
    return row.number
