"""Named corpora: downloaded, verified, and written to a folder that ``read_corpus`` reads."""

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

CORPORA: dict[str, NamedCorpus] = {
    corpus.name: corpus for corpus in (MULTI30K, TATOEBA, IWSLT14, IWSLT17, WMT14)
}

MANIFEST = "corpus.json"
"""Name of the file with a corpus' sources, licence, numbers of pairs and the hash of each file."""

logger = logging.getLogger(__name__)


def fetch(name: str, src: str, tgt: str, root: Path, progress: ProgressCallback = no_progress) -> Path:
    """Download corpus ``name`` to ``root``; files that exist are not downloaded again.

    Args:
        name: one of ``CORPORA``.
        src: source language; if both languages are empty, the corpus' first pair is taken.
        tgt: target language.
        root: folder that holds a folder for each corpus and pair, and ``downloads``.
        progress: called with each file's name and bytes.

    Returns:
        The corpus' folder, the same for both directions of a pair.

    Raises:
        ValueError: there is no such corpus or pair, or a file has the wrong content.
        OSError: no mirror gave a file, or it cannot be written.
    """
    corpus, pair, folder = _resolve(name, src, tgt, root)
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
        except ValueError as error:  # name the downloads, which stay, not the temporary folder
            raise ValueError(str(error).replace(str(raw), str(downloads))) from None
        shutil.rmtree(raw)
        _describe(corpus, pair, used, counts, building)
    for split, count in counts.items():
        left_out = f", {count.blank:,} with a blank side left out" if count.blank else ""
        logger.info(f"{split}: {count.kept:,} pairs{left_out}")
    return folder


def downloaded_folder(name: str, src: str, tgt: str, root: Path) -> Path:
    """Return the folder that ``fetch`` has made, without using the network.

    Raises:
        FileNotFoundError: it has not been made yet.
        ValueError: there is no such corpus or pair, or the folder has been changed.
    """
    _, pair, folder = _resolve(name, src, tgt, root)
    if not folder.exists():
        raise FileNotFoundError(
            f"{folder}: not here yet; run: "
            f"attnbench data get {name} --src {pair[0]} --tgt {pair[1]} --root {root}"
        )
    _verify(folder)
    return folder


def named_corpus(name: str) -> NamedCorpus:
    """Return the corpus called ``name``; a ValueError lists the names."""
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; known are {', '.join(CORPORA)}")
    return CORPORA[name]


def _resolve(name: str, src: str, tgt: str, root: Path) -> tuple[NamedCorpus, Pair, Path]:
    """Return a corpus, its languages in the corpus' own order, and the folder of that pair."""
    corpus = named_corpus(name)
    pair = corpus.pair(src, tgt)
    return corpus, pair, root / f"{name}.{pair[0]}-{pair[1]}"


def _verify(folder: Path) -> None:
    """Refuse a folder without manifest, or whose files have other sizes than there; changes nothing."""
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
    """Write the manifest to ``folder``."""
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
