"""Parallel corpora: folders of line-by-line files, plain or .gz, and the grammar that needs no file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from data.text.files import ensure_unchanged
from data.text.lines import hash_texts, read_lines, unequal
from data.text.text_file import TextFile, hash_lines

KINDS = {"train": re.compile("train"), "valid": re.compile("val|valid.*|dev.*"), "test": re.compile("test.*")}
"""What a file is for, by its name without language and .gz."""

EMBEDDED_SIZES = {"valid": 500, "test": 1_000, "test_long": 500}


class Pairs(NamedTuple):
    """Sentence pairs: line i of ``tgt`` translates line i of ``src``."""

    src: Sequence[str]
    tgt: Sequence[str]
    links: Sequence[str] = ()
    """Gold word alignments in Pharaoh format ("0-0 1-2"), one entry a pair; empty where there are none."""

    def texts(self) -> Iterator[str]:
        """All lines, each column led by its size; what the hash of a corpus is made of."""
        for lines in self:
            yield str(len(lines))
            yield from lines

    def hashes(self) -> Iterator[str]:
        """The sha256 of each column's lines, which those on disk know already."""
        return map(hash_lines, self)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The splits of a language pair: "train", "valid", then the test sets in order of name."""

    name: str
    src_lang: str
    tgt_lang: str
    splits: Mapping[str, Pairs]

    @cached_property
    def content_hash(self) -> str:
        """The sha256 over languages, split names and all lines; the corpus' name does not count."""
        return hash_texts(self._texts())

    def _texts(self) -> Iterator[str]:
        """Everything the hash covers."""
        yield from (self.src_lang, self.tgt_lang)
        for split, pairs in self.splits.items():
            yield split
            yield from pairs.texts()

    @property
    def tests(self) -> tuple[str, ...]:
        """The names of the test sets."""
        return tuple(name for name in self.splits if name.startswith("test"))

    def with_tests_cut(self, size: int) -> "Corpus":
        """The same corpus with the first ``size`` pairs of each test set only."""
        cut = {
            name: Pairs(*(lines[:size] for lines in pairs)) if name in self.tests else pairs
            for name, pairs in self.splits.items()
        }
        return replace(self, splits=cut)

    def overlap(self, split: str) -> int:
        """How many sources of ``split`` also stand in train."""
        sources = self.splits[split].src
        found = set(sources).intersection(self.splits["train"].src)
        return sum(line in found for line in sources)


def read_pairs(src_path: Path, tgt_path: Path) -> Pairs:
    """Read two files, plain or .gz, whose lines translate each other; a fault is an error of one line."""
    with ensure_unchanged(src_path, tgt_path):
        pairs = Pairs(read_lines(src_path), read_lines(tgt_path))
    return _parallel(pairs, src_path, tgt_path)


def open_pairs(src_path: Path, tgt_path: Path) -> Pairs:
    """Check the same, but leave the lines on disk."""
    return _parallel(Pairs(TextFile(src_path), TextFile(tgt_path)), src_path, tgt_path)


def read_corpus(root: Path, src_lang: str, tgt_lang: str) -> Corpus:
    """Read a folder of ``train``, ``val|valid*|dev*`` and ``test*`` files named NAME.LANG or NAME.LANG.gz.

    The lines of train stay on disk: there may be ten million of them.
    """
    files = corpus_files(root, src_lang, tgt_lang)
    splits = {
        split: (open_pairs if split == "train" else read_pairs)(*paths) for split, paths in files.items()
    }
    return Corpus(name=root.resolve().name, src_lang=src_lang, tgt_lang=tgt_lang, splits=splits)


def corpus_files(root: Path, src_lang: str, tgt_lang: str) -> dict[str, tuple[Path, Path]]:
    """The source and the target file of each split of a folder, under the names that ``Corpus.splits`` has.

    Raises:
        FileNotFoundError: no such folder, no file for train, valid or test, or one without its counterpart.
        ValueError: the languages are one and the same, or there are two sets where one belongs.
    """
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root}: no such folder; expected one with train.{src_lang}, train.{tgt_lang}, ..."
        )
    if src_lang == tgt_lang:
        raise ValueError(f"source and target language are both {src_lang!r}; name two different ones")
    src_files, tgt_files = _files(root, src_lang), _files(root, tgt_lang)
    names = {kind: _names_of(kind, root, src_files | tgt_files, (src_lang, tgt_lang)) for kind in KINDS}
    found = {}
    for kind, stems in names.items():
        for name in stems:
            if name not in src_files or name not in tgt_files:
                have, lacks = (src_files, tgt_lang) if name in src_files else (tgt_files, src_lang)
                raise FileNotFoundError(
                    f"{have[name]} has no counterpart {name}.{lacks}[.gz]; add it, or take this file away"
                )
            found[name if kind == "test" else kind] = src_files[name], tgt_files[name]
    return found


def embedded_corpus(*, seed: int = 1, train: int = 20_000) -> Corpus:
    """Make the embedded English-German corpus with gold links, a function of ``seed`` and ``train`` alone."""
    from data.grammar import embedded_splits  # imported here: only this corpus needs the grammar

    made = embedded_splits(seed=seed, train=train, **EMBEDDED_SIZES)
    splits = {
        name: Pairs(tuple(p.src for p in pairs), tuple(p.tgt for p in pairs), tuple(p.links for p in pairs))
        for name, pairs in made.items()
    }
    return Corpus(name="embedded", src_lang="en", tgt_lang="de", splits=splits)


def _parallel(pairs: Pairs, src_path: Path, tgt_path: Path) -> Pairs:
    """``pairs``, once it is known that each line has its translation."""
    if len(pairs.src) != len(pairs.tgt):
        raise unequal(src_path, len(pairs.src), tgt_path, len(pairs.tgt))
    return pairs


def _files(root: Path, lang: str) -> dict[str, Path]:
    """The files of one language in ``root``, by their name without language and .gz."""
    files: dict[str, Path] = {}
    for path in sorted(root.iterdir()):
        plain = path.name.removesuffix(".gz")
        if not plain.endswith(f".{lang}"):
            continue
        name = plain.removesuffix(f".{lang}")
        if name in files and any(kind.fullmatch(name) for kind in KINDS.values()):
            raise ValueError(f"{files[name]} and {path.name} are two versions of one text; take one away")
        files[name] = path
    return files


def _names_of(kind: str, root: Path, files: Mapping[str, Path], langs: tuple[str, str]) -> list[str]:
    """The names in ``files`` that serve as ``kind``: one for train and valid, one or more for test."""
    names = sorted(name for name in files if KINDS[kind].fullmatch(name))
    if not names:
        stems = {"train": "train", "valid": "val, valid* or dev*", "test": "test*"}[kind]
        raise FileNotFoundError(
            f"{root}: no {kind} files; looked for {stems} with the endings "
            + " and ".join(f".{lang}[.gz]" for lang in langs)
        )
    if kind != "test" and len(names) > 1:
        raise ValueError(f"{root}: {len(names)} {kind} sets ({', '.join(names)}); keep one")
    return names
