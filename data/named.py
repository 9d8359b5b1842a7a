"""Named corpora: download, verify and convert them to folders that ``read_corpus`` reads."""

import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from data.download import MAX_RECORD_BYTES, download, extract
from data.files import (
    ProgressCallback,
    described,
    hash_file,
    json_bytes,
    new_folder,
    no_progress,
    parse_json,
    read_bytes,
    write_atomically,
)
from data.named_corpora import (
    IWSLT14,
    IWSLT17,
    MULTI30K,
    TATOEBA,
    WMT14,
    NamedCorpus,
    Pair,
    Part,
    Side,
    pairs_of,
)

# From the parts of a corpus to its folder: download and unpack the texts, write the files of each split.


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


__all__ = ["CORPORA", "MANIFEST", "NamedCorpus", "fetch", "list_corpora", "named_corpus"]

logger = logging.getLogger(__name__)

CORPORA: dict[str, NamedCorpus] = {
    corpus.name: corpus for corpus in (MULTI30K, TATOEBA, IWSLT14, IWSLT17, WMT14)
}

MANIFEST = "corpus.json"
"""File in a corpus folder: licence, origin, number of pairs, and size and sha256 of each file."""


def list_corpora() -> list[str]:
    """Return the names of the corpora that ``fetch`` downloads."""
    return list(CORPORA)


def fetch(
    name: str,
    src: str = "",
    tgt: str = "",
    root: str | Path = "corpora",
    progress: ProgressCallback = no_progress,
) -> Path:
    """Download a corpus and write its folder; what exists already, of the same size, stays.

    Args:
        name: one of ``list_corpora()``.
        src: source language; if ``src`` and ``tgt`` are empty, the first language pair is taken.
        tgt: target language.
        root: parent of the folders of all corpora and language pairs, and of ``downloads``.
        progress: called with each file's name and bytes.

    Returns:
        The corpus folder, the same for both directions of a language pair.

    Raises:
        ValueError: there is no such corpus or language pair, or a file is damaged or has another size.
        OSError: no mirror has the right file, or a file cannot be written.
    """
    root = Path(root)
    corpus, pair, folder = _locate(name, src, tgt, root)
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
        except ValueError as error:  # name the download, since the temporary folder is removed
            raise ValueError(str(error).replace(str(raw), str(downloads))) from None
        shutil.rmtree(raw)
        _write_manifest(corpus, pair, used, counts, building)
    for split, count in counts.items():
        left_out = f", {count.blank:,} with a blank side left out" if count.blank else ""
        logger.info(f"{split}: {count.kept:,} pairs{left_out}")
    return folder


def downloaded_folder(name: str, src: str, tgt: str, root: Path) -> Path:
    """Find the folder that ``fetch`` has written, without network access.

    Args:
        name: one of ``CORPORA``.
        src: source language; if ``src`` and ``tgt`` are empty, the first language pair is taken.
        tgt: target language.
        root: parent of the corpus folders.

    Raises:
        FileNotFoundError: the corpus has not been downloaded.
        ValueError: there is no such corpus or language pair, or the folder was changed.
    """
    _, pair, folder = _locate(name, src, tgt, root)
    if not folder.exists():
        raise FileNotFoundError(
            f"{folder}: not downloaded yet; run: "
            f"attnbench data get {name} --src {pair[0]} --tgt {pair[1]} --root {root}"
        )
    _verify(folder)
    return folder


def named_corpus(name: str) -> NamedCorpus:
    """Look up a corpus.

    Args:
        name: one of ``list_corpora()``.

    Returns:
        Its description: languages, sizes, licence, citation and files.

    Raises:
        ValueError: there is no corpus of that name.
    """
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; known are {', '.join(CORPORA)}")
    return CORPORA[name]


def _locate(name: str, src: str, tgt: str, root: Path) -> tuple[NamedCorpus, Pair, Path]:
    """Return the corpus, its language pair in the order of the corpus, and the folder for both."""
    corpus = named_corpus(name)
    pair = corpus.pair(src, tgt)
    return corpus, pair, root / f"{name}.{pair[0]}-{pair[1]}"


def _verify(folder: Path) -> None:
    """Raise ValueError if the folder has no manifest, or a file is missing or differs from it in size."""
    path = folder / MANIFEST
    try:
        files = parse_json(read_bytes(path, max_bytes=MAX_RECORD_BYTES))["files"]
        changed = [name for name, entry in files.items() if _size(folder / name) != entry["bytes"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        changed = [MANIFEST]
    if changed:
        raise ValueError(
            f"{folder}: {', '.join(changed)} is missing or has changed; "
            "move the folder away to create it again"
        )


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _write_manifest(
    corpus: NamedCorpus,
    pair: Pair,
    digests: dict[str, str],
    counts: dict[str, FileCounts],
    folder: Path,
) -> None:
    """Write the manifest of a corpus folder."""
    content = {
        "corpus": corpus.name,
        "languages": pair,
        "licence": corpus.licence,
        "citation": corpus.citation,
        "home": corpus.home,
        "downloads": digests,
        "pairs": {split: count.kept for split, count in counts.items()},
        "left_out_as_blank": {split: count.blank for split, count in counts.items()},
        "files": {path.name: described(path) for path in sorted(folder.iterdir())},
    }
    write_atomically(folder / MANIFEST, json_bytes(content))
