"""From the parts of a corpus to the files of its folder: fetch, unpack, write what belongs to each split."""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from data.download.archives import extract
from data.download.corpora.parts import Pair, Part, Side, pairs_of
from data.download.digests import file_digest
from data.download.download import download
from data.progress import ProgressCallback


class FileCounts(NamedTuple):
    """The pairs of a split."""

    kept: int
    blank: int
    """Left out, since a side is blank: ``read_corpus`` would refuse them."""


def gather(parts: Sequence[Part], downloads: Path, raw: Path, progress: ProgressCallback) -> dict[str, str]:
    """Download what the parts are made of and unpack it into ``raw``; the sha256 of each download."""
    sides = [side for part in parts for side in (part.src, part.tgt)]
    used = {}
    for remote in dict.fromkeys(side.remote for side in sides):
        path = download(remote, downloads, progress=progress)
        used[remote.name] = file_digest(path)
        members = {side.member: _place(raw, side) for side in sides if side.remote == remote}
        if "" in members:  # no archive, but the text itself
            _place(raw, Side(remote=remote)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, members.pop(""))
        if members:
            extract(path, members)
    return used


def _place(raw: Path, side: Side) -> Path:
    """Where the text of one side lies before it is read."""
    return raw / side.remote.name / side.member


def write_splits(parts: Sequence[Part], raw: Path, folder: Path, pair: Pair) -> dict[str, FileCounts]:
    """Write the splits to ``folder``, as NAME.LANG, from the texts that ``gather`` put in ``raw``."""
    kept: Counter[str] = Counter()
    blank: Counter[str] = Counter()
    files: dict[str, tuple[IO[str], IO[str]]] = {}
    try:
        for part in parts:
            for split, src, tgt in part.divide(pairs_of(part, _place(raw, part.src), _place(raw, part.tgt))):
                if split not in files:
                    files[split] = _open_both(folder, split, pair)
                if not (src.strip() and tgt.strip()):
                    blank[split] += 1
                    continue
                kept[split] += 1
                for file, text in zip(files[split], (src, tgt), strict=True):
                    file.write(f"{text}\n")
    finally:
        for opened in files.values():
            for file in opened:
                file.close()
    return {split: FileCounts(kept[split], blank[split]) for split in files}


def _open_both(folder: Path, split: str, pair: Pair) -> tuple[IO[str], IO[str]]:
    src, tgt = ((folder / f"{split}.{lang}").open("w", encoding="utf-8", newline="\n") for lang in pair)
    return src, tgt
