"""Named corpora: download, verify and convert them to folders that ``read_corpus`` reads.

``corpora.toml`` describes them. It was written and tested without network access, against a local server; no
URL was ever requested. The digests show whether a file is the right one.
"""

import hashlib
import logging
import re
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Literal, NamedTuple

import msgspec

from data.download import Remote, download, extract
from data.files import (
    ProgressCallback,
    described,
    hash_file,
    json_bytes,
    new_folder,
    no_progress,
    write_atomically,
)
from data.locks import lock_folder
from data.text import iter_lines, zip_parallel

logger = logging.getLogger(__name__)

Pair = tuple[str, str]

MANIFEST = "corpus.json"
"""File in a corpus folder: licence, origin, number of pairs, and size and sha256 of each file."""
EVERY_23RD, BY_HASH = "every 23rd", "by hash"
"""Values of ``split`` that divide a training text without published valid or test sets."""
HELD_OUT_FRACTION = 0.01
"""Fraction of sources for valid, and again for test, in a corpus divided ``BY_HASH``."""
SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>")


class Text(NamedTuple):
    """One side of a part."""

    remote: Remote
    member: str
    """Name in the archive; empty if the download is the text itself."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two parallel texts; ``corpora.toml`` explains the fields."""

    split: str
    text: str = ""
    src: str = ""
    tgt: str = ""
    format: Literal["lines", "tagged", "segments", "columns"] = "lines"
    pairs: tuple[Pair, ...] = ()


class NamedCorpus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published corpus: description, and the files that it consists of."""

    name: str
    about: str
    languages: tuple[Pair, ...]
    """Language pairs; each can be translated in both directions."""
    sizes: dict[str, int]
    """Approximate number of pairs of each split, as published, for the first language pair."""
    licence: str
    citation: str
    home: str
    mirrors: tuple[str, ...] = ()
    """Addresses of its files; {file} stands for the name."""
    files: dict[str, Remote]
    """Downloads by name; their own mirrors replace those of the corpus."""
    parts: tuple[Part, ...]

    def pair(self, src: str, tgt: str) -> Pair:
        """Return a language pair in the corpus's order, by default the first; ValueError for others."""
        if not src and not tgt:
            return self.languages[0]
        for pair in self.languages:
            if pair in ((src, tgt), (tgt, src)):
                return pair
        available = ", ".join("-".join(pair) for pair in self.languages)
        raise ValueError(f"{self.name} has no pair {src or '?'}-{tgt or '?'}; it has {available}")

    def texts(self, pair: Pair) -> list[tuple[Part, Text, Text]]:
        """List the parts of a language pair with their two texts."""
        parts = (part for part in self.parts if not part.pairs or pair in part.pairs)
        return [
            (part, self._text(part.src or part.text, pair, 0), self._text(part.tgt or part.text, pair, 1))
            for part in parts
        ]

    def remotes(self, pair: Pair) -> list[Remote]:
        """List the distinct downloads of a language pair."""
        return list(dict.fromkeys(text.remote for _, *texts in self.texts(pair) for text in texts))

    def _text(self, template: str, pair: Pair, side: int) -> Text:
        src, tgt = pair
        other = tgt if src == "en" else src
        file, _, member = template.format(src=src, tgt=tgt, lang=pair[side], other=other).partition("!")
        remote = self.files[file]
        mirrors = tuple(url.format(file=file) for url in remote.mirrors or self.mirrors)
        remote = msgspec.structs.replace(remote, name=file, mirrors=mirrors)
        return Text(remote, member)


def read_catalogue(text: str) -> dict[str, NamedCorpus]:
    """Read the corpora of corpora.toml by name; ValueError if two have the same name."""
    corpora = msgspec.convert(tomllib.loads(text)["corpora"], list[NamedCorpus])
    names = [corpus.name for corpus in corpora]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"corpora.toml: several corpora are named {twice[0]!r}: rename all but one")
    return dict(zip(names, corpora, strict=True))


CORPORA = read_catalogue(Path(__file__).with_name("corpora.toml").read_text("utf-8"))


def list_corpora() -> list[str]:
    """Return the names of the corpora that ``fetch`` downloads."""
    return list(CORPORA)


def named_corpus(name: str) -> NamedCorpus:
    """Look up a corpus; ValueError if there is none of that name."""
    if name not in CORPORA:
        raise ValueError(f"no corpus {name!r}; choose one of {', '.join(CORPORA)}")
    return CORPORA[name]


def fetch(
    name: str,
    src: str = "",
    tgt: str = "",
    root: str | Path = "corpora",
    progress: ProgressCallback = no_progress,
) -> Path:
    """Download a corpus and write its folder; what exists already stays.

    Args:
        name: one of ``list_corpora()``.
        src: source language; if ``src`` and ``tgt`` are empty, the first language pair is taken.
        tgt: target language.
        root: parent of the folders of all corpora and language pairs, and of ``downloads``.
        progress: called with each file's name and bytes.

    Raises:
        ValueError: there is no such corpus or language pair, or a file has another hash.
        OSError: no mirror has the right file, or a file cannot be written.
    """
    corpus, pair, folder = _locate(name, src, tgt, Path(root))
    if not folder.exists():
        downloads = Path(root) / "downloads" / name
        with lock_folder(downloads, wait=True):
            if not folder.exists():  # another process may have written it meanwhile
                _build(corpus, pair, folder, downloads, progress)
    return folder


def _build(
    corpus: NamedCorpus, pair: Pair, folder: Path, downloads: Path, progress: ProgressCallback
) -> None:
    texts = corpus.texts(pair)
    with new_folder(folder) as building:
        raw, digests = building / "raw", {}

        def path_of(text: Text) -> Path:
            folder = raw if text.member else downloads
            return folder / text.remote.name / text.member

        rows = (
            row
            for part, *both in texts
            for row in _divide(part.split, _pairs(part.format, *map(path_of, both)))
        )
        try:
            for remote in corpus.remotes(pair):
                path = download(remote, downloads, progress=progress)
                digests[remote.name] = hash_file(path)
                members = {text.member for _, *both in texts for text in both if text.remote == remote}
                if members != {""}:
                    extract(path, members, raw / remote.name)
            written, blank = _write_splits(rows, building, pair)
        except ValueError as error:  # name the download, since the temporary folder is removed
            remedy = "" if "delete" in str(error) else f"; delete {downloads} to download it again"
            raise ValueError(f"{error}{remedy}".replace(str(raw), str(downloads))) from None
        shutil.rmtree(raw, ignore_errors=True)
        manifest = {
            "corpus": corpus.name,
            "languages": pair,
            "licence": corpus.licence,
            "citation": corpus.citation,
            "home": corpus.home,
            "downloads": digests,
            "pairs": written,
            "left_out_as_blank": blank,
            "files": {path.name: described(path) for path in sorted(building.iterdir())},
        }
        write_atomically(building / MANIFEST, json_bytes(manifest))
    for split, count in written.items():
        left_out = f" ({blank[split]:,} with a blank side were left out)" if blank[split] else ""
        logger.info(f"{split}: {count:,} pairs{left_out}")


def downloaded_folder(name: str, src: str, tgt: str, root: Path) -> Path:
    """Find the folder that ``fetch`` wrote; FileNotFoundError if it has not run."""
    _, pair, folder = _locate(name, src, tgt, root)
    if not folder.exists():
        raise FileNotFoundError(
            f"{folder} has not been downloaded; run attnbench data get {name} --src {pair[0]} --tgt {pair[1]}"
        )
    return folder


def _locate(name: str, src: str, tgt: str, root: Path) -> tuple[NamedCorpus, Pair, Path]:
    corpus = named_corpus(name)
    pair = corpus.pair(src, tgt)
    return corpus, pair, root / f"{name}.{pair[0]}-{pair[1]}"


def _write_splits(
    rows: Iterable[tuple[str, str, str]], folder: Path, pair: Pair
) -> tuple[Counter[str], Counter[str]]:
    """Write SPLIT.LANGUAGE files; returns pairs written, and left out as blank, by split."""
    written, blank, files = Counter[str](), Counter[str](), dict[str, list[IO[str]]]()
    with ExitStack() as stack:
        for split, *sides in rows:
            if not all(map(str.strip, sides)):
                blank[split] += 1
                continue
            if split not in files:
                paths = [folder / f"{split}.{lang}" for lang in pair]
                files[split] = [
                    stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths
                ]
            written[split] += 1
            for file, side in zip(files[split], sides, strict=True):
                file.write(f"{side}\n")
    return written, blank


def _pairs(format_: str, src: Path, tgt: Path) -> Iterator[Pair]:
    return zip_parallel(src, _read(src, format_, 0), tgt, _read(tgt, format_, 1))


def _read(path: Path, format_: str, column: int) -> Iterator[str]:
    # IWSLT's training text loses its lines of tags such as <url>, as in torchtext 0.6.0; white space in
    # the <seg> elements of test sets becomes single spaces, as in sacreBLEU. Entities stay encoded.
    for line in iter_lines(path, allow_blank=True, allow_markup=True):
        if format_ == "lines":
            yield line
        elif format_ == "columns":
            yield (line.split("\t") + [""] * (column + 1))[column]
        elif format_ == "tagged":
            if not line.lstrip().startswith("<"):
                yield line.strip()
        elif match := SEGMENT.search(line):
            yield " ".join(match[1].split())


def _divide(split: str, pairs: Iterable[Pair]) -> Iterator[tuple[str, str, str]]:
    if split == BY_HASH:
        yield from _held_out(pairs)
        return
    for number, (src, tgt) in enumerate(pairs, start=1):
        if split == EVERY_23RD:  # fairseq's recipe for IWSLT14
            yield "train" if number % 23 else "valid", src, tgt
        else:
            yield split, src, tgt


def _held_out(pairs: Iterable[Pair]) -> Iterator[tuple[str, str, str]]:
    """Divide pairs into train, valid and test by a hash of the source, the same in every run; in memory."""
    # Pairs of one source stay together. A target may occur in one split only: test, else valid, else train.
    order = ("test", "valid", "train")

    def split_of(src: str) -> int:
        draw = int.from_bytes(hashlib.sha256(src.encode()).digest()[:8]) / 2**64  # in [0, 1)
        return 0 if draw < HELD_OUT_FRACTION else 1 if draw < 2 * HELD_OUT_FRACTION else 2

    divided = sorted((split_of(src), number, src, tgt) for number, (src, tgt) in enumerate(pairs))
    first_split: dict[str, int] = {}
    for split, _, src, tgt in divided:
        if first_split.setdefault(tgt, split) == split:
            yield order[split], src, tgt
