"""Corpora that can be had by name: downloaded, verified, and made a folder that ``read_corpus`` reads."""

import json
import logging
import shutil
from pathlib import Path

from data.download.corpora.building import FileCounts, gather, write_splits
from data.download.corpora.multi30k import MULTI30K
from data.download.corpora.parts import NamedCorpus, Pair
from data.download.corpora.tatoeba import TATOEBA
from data.download.corpora.ted import IWSLT14, IWSLT17
from data.download.corpora.wmt14 import WMT14
from data.progress import ProgressCallback, no_progress
from data.text.files import json_bytes, write_atomically
from data.text.new_folder import described, new_folder

__all__ = ["CORPORA", "MANIFEST", "NamedCorpus", "fetch"]

logger = logging.getLogger(__name__)

CORPORA: dict[str, NamedCorpus] = {
    corpus.name: corpus for corpus in (MULTI30K, TATOEBA, IWSLT14, IWSLT17, WMT14)
}

MANIFEST = "corpus.json"
"""In a corpus' folder: where its text is from, under which licence, its pairs and the hash of each file."""


def fetch(name: str, src: str, tgt: str, root: Path, progress: ProgressCallback = no_progress) -> Path:
    """Have corpus ``name`` under ``root``; what is there already is not downloaded again.

    Args:
        name: one of ``CORPORA``.
        src: its language to translate from; with ``tgt`` empty too, that of the corpus' first pair.
        tgt: its language to translate to.
        root: holds a folder for each corpus and pair, and ``downloads``.
        progress: called with each file's name and bytes.

    Returns:
        The corpus' folder, the same for both directions of a pair.

    Raises:
        ValueError: there is no such corpus or pair, or a file is not what it should be.
        OSError: no mirror gave a file, or the disk would not take it.
    """
    corpus, pair, folder = _placed(name, src, tgt, root)
    if folder.exists():
        _verify(folder)
        return folder
    downloads = root / "downloads" / name
    with new_folder(folder) as building:
        raw = building / "raw"
        try:
            parts = corpus.parts(*pair)
            used = gather(parts, downloads, raw, progress)
            counts = write_splits(parts, raw, building, pair)
        except ValueError as error:  # names what stays, not the folder that goes
            raise ValueError(str(error).replace(str(raw), str(downloads))) from None
        shutil.rmtree(raw)
        _describe(corpus, pair, used, counts, building)
    for split, count in counts.items():
        left_out = f", {count.blank:,} with a blank side left out" if count.blank else ""
        logger.info(f"{split}: {count.kept:,} pairs{left_out}")
    return folder


def downloaded_folder(name: str, src: str, tgt: str, root: Path) -> Path:
    """The folder that ``fetch`` has made; asks no network.

    Raises:
        FileNotFoundError: it has not.
        ValueError: there is no such corpus or pair, or the folder is not as it was made.
    """
    _, pair, folder = _placed(name, src, tgt, root)
    if not folder.exists():
        raise FileNotFoundError(
            f"{folder}: not here yet; run: "
            f"attnbench data get {name} --src {pair[0]} --tgt {pair[1]} --root {root}"
        )
    _verify(folder)
    return folder


def named_corpus(name: str) -> NamedCorpus:
    """The corpus of that name."""
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; known are {', '.join(CORPORA)}")
    return CORPORA[name]


def _placed(name: str, src: str, tgt: str, root: Path) -> tuple[NamedCorpus, Pair, Path]:
    """A corpus, its pair of languages in the corpus' own order, and their folder."""
    corpus = named_corpus(name)
    pair = corpus.pair(src, tgt)
    return corpus, pair, root / f"{name}.{pair[0]}-{pair[1]}"


def _verify(folder: Path) -> None:
    """Refuse a folder that is not ours, or not as long as we wrote it; nothing of it is touched."""
    path = folder / MANIFEST
    try:
        files = json.loads(path.read_bytes())["files"]
        changed = [name for name, entry in files.items() if _size(folder / name) != entry["bytes"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        changed = [MANIFEST]
    if changed:
        raise ValueError(
            f"{folder}: {', '.join(changed)} not as it was written; move the folder away to have it made anew"
        )


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _describe(
    corpus: NamedCorpus,
    pair: Pair,
    used: dict[str, str],
    counts: dict[str, FileCounts],
    folder: Path,
) -> None:
    """Write the manifest."""
    content = {
        "corpus": corpus.name,
        "languages": pair,
        "licence": corpus.licence,
        "citation": corpus.citation,
        "home": corpus.home,
        "downloads": used,
        "pairs": {split: count.kept for split, count in counts.items()},
        "left_out_as_blank": {split: count.blank for split, count in counts.items()},
        "files": {path.name: described(path) for path in sorted(folder.iterdir())},
    }
    write_atomically(folder / MANIFEST, json_bytes(content))
