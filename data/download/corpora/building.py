"""From the parts of a corpus to its folder: download and unpack the texts, write the files of each split."""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from data.download.archives import extract
from data.download.corpora.parts import Pair, Part, Side, pairs_of
from data.download.download import download
from data.progress import ProgressCallback
from data.text.files import hash_file


class FileCounts(NamedTuple):
    """Number of pairs of a split."""

    kept: int
    blank: int
    """Pairs left out because a side is blank: ``read_corpus`` would reject them."""


def gather(parts: Sequence[Part], downloads: Path, raw: Path, progress: ProgressCallback) -> dict[str, str]:
    """Download the files of the parts and unpack them.

    Args:
        parts: the parts of a corpus.
        downloads: folder for the downloads.
        raw: folder for the unpacked texts.
        progress: called with each file's name and bytes.

    Returns:
        The sha256 of each download, by file name.

    Raises:
        ValueError: a download or an archive is damaged.
        OSError: no mirror has the right file, or a file cannot be written.
    """
    sides = [side for part in parts for side in (part.src, part.tgt)]
    digests = {}
    for remote in dict.fromkeys(side.remote for side in sides):
        path = download(remote, downloads, progress=progress)
        digests[remote.name] = hash_file(path)
        members = {side.member: _raw_path(raw, side) for side in sides if side.remote == remote}
        if "" in members:  # the download is the text itself
            _raw_path(raw, Side(remote=remote)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, members.pop(""))
        if members:
            extract(path, members)
    return digests


def _raw_path(raw: Path, side: Side) -> Path:
    """Return the path of the unpacked text of one side."""
    return raw / side.remote.name / side.member


def write_splits(parts: Sequence[Part], raw: Path, folder: Path, pair: Pair) -> dict[str, FileCounts]:
    """Write the files of each split, named SPLIT.LANGUAGE.

    Args:
        parts: the parts of a corpus.
        raw: folder of the texts unpacked by ``gather``.
        folder: the corpus folder.
        pair: source and target language.

    Returns:
        The number of pairs of each split.

    Raises:
        ValueError: a text is damaged or not UTF-8, or two sides differ in length.
        OSError: a file cannot be read or written.
    """
    kept: Counter[str] = Counter()
    blank: Counter[str] = Counter()
    files: dict[str, tuple[IO[str], IO[str]]] = {}
    try:
        for part in parts:
            raw_pairs = pairs_of(part, _raw_path(raw, part.src), _raw_path(raw, part.tgt))
            for split, src, tgt in part.divide(raw_pairs):
                if split not in files:
                    files[split] = _open_both(folder, split, pair)
                if not (src.strip() and tgt.strip()):
                    blank[split] += 1
                    continue
                kept[split] += 1
                for file, text in zip(files[split], (src, tgt), strict=True):
                    file.write(f"{text}\n")
    finally:
        for both in files.values():
            for file in both:
                file.close()
    return {split: FileCounts(kept[split], blank[split]) for split in files}


def _open_both(folder: Path, split: str, pair: Pair) -> tuple[IO[str], IO[str]]:
    src, tgt = ((folder / f"{split}.{lang}").open("w", encoding="utf-8", newline="\n") for lang in pair)
    return src, tgt
