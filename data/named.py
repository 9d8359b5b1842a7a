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
from itertools import zip_longest
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
from data.text import iter_lines

logger = logging.getLogger(__name__)

Pair = tuple[str, str]

MANIFEST = "corpus.json"
"""File in a corpus folder: licence, origin, number of pairs, and size and sha256 of each file."""
EVERY_23RD, BY_HASH = "every 23rd", "by hash"
"""Names in the place of a split: how to divide a training text that has no published valid or test set."""
HELD_OUT_FRACTION = 0.01
"""Fraction of sources for valid, and again for test, in a corpus that is divided ``BY_HASH``."""
SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>")


class Text(NamedTuple):
    """The text of one side of a part."""

    remote: Remote
    member: str
    """Its name in the archive; empty if the download is the text itself."""


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
    """Its language pairs; each can be translated in both directions."""
    sizes: dict[str, int]
    """Approximate number of pairs of each split, as published, for the first language pair."""
    licence: str
    citation: str
    home: str
    """URL of its home page."""
    mirrors: tuple[str, ...] = ()
    """Addresses of its files; {file} stands for the name."""
    files: dict[str, Remote]
    """Its downloads by name; mirrors of their own take the place of the corpus's."""
    parts: tuple[Part, ...]

    def pair(self, src: str, tgt: str) -> Pair:
        """Find a language pair in either direction.

        Args:
            src: source language; if ``src`` and ``tgt`` are empty, the first language pair is taken.
            tgt: target language.

        Returns:
            The entry of ``languages``, in its own order.

        Raises:
            ValueError: the corpus has no such pair.
        """
        if not src and not tgt:
            return self.languages[0]
        for pair in self.languages:
            if pair in ((src, tgt), (tgt, src)):
                return pair
        available = ", ".join("-".join(pair) for pair in self.languages)
        raise ValueError(f"{self.name} has no pair {src or '?'}-{tgt or '?'}; it has {available}")

    def texts(self, pair: Pair) -> list[tuple[Part, Text, Text]]:
        """List the parts for one of ``languages``, each with its texts."""
        parts = (part for part in self.parts if not part.pairs or pair in part.pairs)
        return [
            (part, self._text(part.src or part.text, pair, 0), self._text(part.tgt or part.text, pair, 1))
            for part in parts
        ]

    def remotes(self, pair: Pair) -> list[Remote]:
        """List the distinct downloads for one of ``languages``."""
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
    """Read the corpora of a file such as corpora.toml, by name; ValueError if two have the same name."""
    corpora = msgspec.convert(tomllib.loads(text)["corpora"], list[NamedCorpus])
    names = [corpus.name for corpus in corpora]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"corpora.toml: several corpora are named {twice[0]!r}: give each a name of its own")
    return dict(zip(names, corpora, strict=True))


CORPORA = read_catalogue(Path(__file__).with_name("corpora.toml").read_text("utf-8"))


def list_corpora() -> list[str]:
    """Return the names of the corpora that ``fetch`` downloads."""
    return list(CORPORA)


def named_corpus(name: str) -> NamedCorpus:
    """Look up a corpus: its languages, sizes, licence, citation and files.

    Raises:
        ValueError: there is no corpus of that name.
    """
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; known are {', '.join(CORPORA)}")
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

    Returns:
        The corpus folder, the same for both directions of a language pair.

    Raises:
        ValueError: there is no such corpus or language pair, or a file has another hash.
        OSError: no mirror has the right file, or a file cannot be written.
    """
    corpus, pair, folder = _locate(name, src, tgt, Path(root))
    downloads, texts = Path(root) / "downloads" / name, corpus.texts(pair)
    if folder.exists():
        return folder
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
            kept, blank = _write_splits(rows, building, pair)
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
            "pairs": kept,
            "left_out_as_blank": blank,
            "files": {path.name: described(path) for path in sorted(building.iterdir())},
        }
        write_atomically(building / MANIFEST, json_bytes(manifest))
    for split, count in kept.items():
        left_out = f", {blank[split]:,} with a blank side left out" if blank[split] else ""
        logger.info(f"{split}: {count:,} pairs{left_out}")
    return folder


def downloaded_folder(name: str, src: str, tgt: str, root: Path) -> Path:
    """Find the folder that ``fetch`` has written, without network access; see there for the arguments.

    Raises:
        FileNotFoundError: the corpus has not been downloaded.
        ValueError: there is no such corpus or language pair.
    """
    _, pair, folder = _locate(name, src, tgt, root)
    if not folder.exists():
        raise FileNotFoundError(
            f"{folder}: not downloaded yet; run: attnbench data get {name} --src {pair[0]} --tgt {pair[1]}"
        )
    return folder


def _locate(name: str, src: str, tgt: str, root: Path) -> tuple[NamedCorpus, Pair, Path]:
    """Return the corpus, its language pair in the order of the corpus, and the folder for both."""
    corpus = named_corpus(name)
    pair = corpus.pair(src, tgt)
    return corpus, pair, root / f"{name}.{pair[0]}-{pair[1]}"


def _write_splits(
    rows: Iterable[tuple[str, str, str]], folder: Path, pair: Pair
) -> tuple[Counter[str], Counter[str]]:
    """Write the files of each split, SPLIT.LANGUAGE, from rows of split, source and target.

    Returns:
        The number of pairs of each split, and of those left out because a side is blank.
    """
    kept, blank, files = Counter[str](), Counter[str](), dict[str, list[IO[str]]]()
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
            kept[split] += 1
            for file, side in zip(files[split], sides, strict=True):
                file.write(f"{side}\n")
    return kept, blank


def _pairs(format_: str, src: Path, tgt: Path) -> Iterator[Pair]:
    """Read the pairs of a part from its unpacked texts; blank sentences stay, so that both are parallel."""
    texts = (_read(path, format_, column) for column, path in enumerate((src, tgt)))
    for number, (left, right) in enumerate(zip_longest(*texts)):
        if left is None or right is None:
            shorter, longer = (src, tgt) if left is None else (tgt, src)
            raise ValueError(
                f"{shorter} ends after {number:,} sentences, but {longer} is longer: not parallel"
            )
        yield left, right


def _read(path: Path, format_: str, column: int) -> Iterator[str]:
    """Read the sentences of a published text; ``column``, from 0, is the one of a table.

    Of IWSLT's training text, the lines of tags such as <url> and <title> are left out, as in torchtext 0.6.0.
    The <seg> elements of test sets are read as sacreBLEU does: white space is reduced to single spaces.
    Entities such as &amp; are not decoded.
    """
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
    """Assign pairs to ``split``, or as its name says; yields split, source and target."""
    if split == BY_HASH:
        yield from _held_out(pairs)
        return
    for number, (src, tgt) in enumerate(pairs, start=1):
        if split == EVERY_23RD:  # as in fairseq's recipe for IWSLT14
            yield "train" if number % 23 else "valid", src, tgt
        else:
            yield split, src, tgt


def _held_out(pairs: Iterable[Pair]) -> Iterator[tuple[str, str, str]]:
    """Divide a corpus without published splits by a hash of each source, so that every run gives the same.

    All pairs of one source are in one split. Pairs whose target occurs in test too are dropped from valid and
    train, those whose target occurs in valid from train. All pairs are held in memory: meant for corpora of
    about 100,000 pairs.
    """
    order = ("test", "valid", "train")

    def split_of(src: str) -> int:
        draw = int.from_bytes(hashlib.sha256(src.encode()).digest()[:8]) / 2**64  # in [0, 1)
        return 0 if draw < HELD_OUT_FRACTION else 1 if draw < 2 * HELD_OUT_FRACTION else 2

    divided = sorted((split_of(src), number, src, tgt) for number, (src, tgt) in enumerate(pairs))
    first_split: dict[str, int] = {}
    for split, _, src, tgt in divided:
        if first_split.setdefault(tgt, split) == split:
            yield order[split], src, tgt
