"""Corpora that can be had by name: downloaded, verified, and made a folder that ``read_corpus`` reads."""

import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from data.archives import extract
from data.corpora.multi30k import MULTI30K
from data.corpora.parts import NamedCorpus, Part, Side, pairs_of
from data.corpora.tatoeba import TATOEBA
from data.corpora.ted import IWSLT14, IWSLT17
from data.corpora.wmt14 import WMT14
from data.digests import file_digest
from data.download import Say, Show, download, nothing_shown
from data.files import json_bytes, put_in_place, write_atomically

__all__ = ["CORPORA", "MANIFEST", "NamedCorpus", "fetch"]

CORPORA: dict[str, NamedCorpus] = {
    corpus.name: corpus for corpus in (MULTI30K, TATOEBA, IWSLT14, IWSLT17, WMT14)
}

MANIFEST = "corpus.json"
"""In a corpus' folder: where its text is from, under which licence, its pairs and the hash of each file."""


def fetch(name: str, src: str, tgt: str, root: Path, say: Say, show: Show = nothing_shown) -> Path:
    """Have corpus ``name`` under ``root``; what is there already is not downloaded again.

    Args:
        name: one of ``CORPORA``.
        src: its language to translate from; with ``tgt`` empty too, that of the corpus' first pair.
        tgt: its language to translate to.
        root: holds a folder for each corpus and pair, and ``downloads``.
        say: told what was done.
        show: told how far a download is.

    Returns:
        The corpus' folder, the same for both directions of a pair.

    Raises:
        ValueError: there is no such corpus or pair, or a file is not what it should be.
        OSError: no mirror gave a file, or the disk would not take it.
    """
    corpus = named(name)
    pair = corpus.pair(src, tgt)
    folder = root / f"{name}.{pair[0]}-{pair[1]}"
    if _is_whole(folder):
        return folder
    downloads = root / "downloads" / name
    building = root / f".{folder.name}.{uuid.uuid4().hex}.tmp"
    try:
        building.mkdir(parents=True)
        parts = corpus.parts(*pair)
        used = _gather(parts, downloads, building / "raw", say, show)
        counts = _write(parts, building / "raw", building, pair)
        shutil.rmtree(building / "raw")
        _describe(corpus, pair, used, counts, building)
        if folder.exists():
            shutil.rmtree(folder)  # a corpus that is not whole
        put_in_place(building, folder)
    except ValueError as error:  # names what stays, not the folder that goes
        raise ValueError(str(error).replace(str(building / "raw"), str(downloads))) from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    for split, (kept, blank) in counts.items():
        say(f"{split}: {kept:,} pairs" + (f", {blank:,} with a blank side left out" if blank else ""))
    return folder


def named(name: str) -> NamedCorpus:
    """The corpus of that name."""
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; known are {', '.join(CORPORA)}")
    return CORPORA[name]


def _is_whole(folder: Path) -> bool:
    """Whether all files of a corpus are there, as long as they were written."""
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"]
        return all((folder / name).stat().st_size == entry["bytes"] for name, entry in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _gather(parts: Sequence[Part], downloads: Path, raw: Path, say: Say, show: Show) -> dict[str, str]:
    """Download what the parts are made of and unpack it into ``raw``; the sha256 of each download."""
    sides = [side for part in parts for side in (part.src, part.tgt)]
    used = {}
    for remote in dict.fromkeys(side.remote for side in sides):
        path = download(remote, downloads, say=say, show=show)
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


def _write(
    parts: Sequence[Part], raw: Path, folder: Path, pair: tuple[str, str]
) -> dict[str, tuple[int, int]]:
    """Write the splits as NAME.LANG; how many pairs each has, and how many were left out as blank."""
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
    return {split: (kept[split], blank[split]) for split in files}


def _open_both(folder: Path, split: str, pair: tuple[str, str]) -> tuple[IO[str], IO[str]]:
    src, tgt = ((folder / f"{split}.{lang}").open("w", encoding="utf-8", newline="\n") for lang in pair)
    return src, tgt


def _describe(
    corpus: NamedCorpus,
    pair: tuple[str, str],
    used: dict[str, str],
    counts: dict[str, tuple[int, int]],
    folder: Path,
) -> None:
    """Write the manifest, and see to it that all files are on disk before the folder gets its name."""
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        files[path.name] = {"bytes": path.stat().st_size, "sha256": file_digest(path)}
    content = {
        "corpus": corpus.name,
        "languages": pair,
        "licence": corpus.licence,
        "citation": corpus.citation,
        "home": corpus.home,
        "downloads": used,
        "pairs": {split: kept for split, (kept, _) in counts.items()},
        "left_out_as_blank": {split: blank for split, (_, blank) in counts.items()},
        "files": files,
    }
    write_atomically(folder / MANIFEST, json_bytes(content))
