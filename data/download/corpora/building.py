"""Files of a named corpus: download and unpack its parts, then write each split."""

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
    """Numbers of pairs of a split."""

    kept: int
    blank: int
    """Pairs left out because a side is blank: ``read_corpus`` would refuse them."""


def gather(parts: Sequence[Part], downloads: Path, raw: Path, progress: ProgressCallback) -> dict[str, str]:
    """Download the files of ``parts`` to ``downloads`` and unpack them to ``raw``.

    Returns:
        The sha256 of each download by its name.
    """
    sides = [side for part in parts for side in (part.src, part.tgt)]
    used = {}
    for remote in dict.fromkeys(side.remote for side in sides):
        path = download(remote, downloads, progress=progress)
        used[remote.name] = file_digest(path)
        members = {side.member: _raw_path(raw, side) for side in sides if side.remote == remote}
        if "" in members:  # the download is the text itself, not an archive
            _raw_path(raw, Side(remote=remote)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, members.pop(""))
        if members:
            extract(path, members)
    return used


def _raw_path(raw: Path, side: Side) -> Path:
    """Return the path of the unpacked text of one side."""
    return raw / side.remote.name / side.member


def write_splits(parts: Sequence[Part], raw: Path, folder: Path, pair: Pair) -> dict[str, FileCounts]:
    """Write the splits to ``folder`` as NAME.LANG, from the texts that ``gather`` has put in ``raw``."""
    kept: Counter[str] = Counter()
    blank: Counter[str] = Counter()
    files: dict[str, tuple[IO[str], IO[str]]] = {}
    try:
        for part in parts:
            for split, src, tgt in part.divide(
                pairs_of(part, _raw_path(raw, part.src), _raw_path(raw, part.tgt))
            ):
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
