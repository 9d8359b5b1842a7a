"""Parallel corpora: folders of text files, plain or .gz, and the embedded corpus, which needs no file."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from data.files import ensure_unchanged
from data.text import (
    TextFile,
    ensure_parallel,
    hash_lines,
    hash_texts,
    letters_of,
    plain_name,
    plain_or_gzip,
    read_lines,
)

logger = logging.getLogger(__name__)

# Names of the files of a corpus: NAME.LANG, plain or packed, where NAME tells the kind of split.


KINDS = {"train": re.compile("train"), "valid": re.compile("val|valid.*|dev.*"), "test": re.compile("test.*")}
"""Names of the files of each kind of split, without language and .gz."""


def corpus_files(root: Path, src_lang: str, tgt_lang: str) -> dict[str, tuple[Path, Path]]:
    """Find the files of a corpus in a folder; see ``read_corpus`` for their names."""
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root}: no such folder; expected one with train.{src_lang}, train.{tgt_lang}, ..."
        )
    if src_lang == tgt_lang:
        raise ValueError(f"source and target language are both {src_lang!r}; name two different ones")
    files: dict[str, dict[str, Path]] = {}
    for path in sorted(root.iterdir()):
        plain = plain_name(path)
        for lang in (src_lang, tgt_lang):  # a name may have dots: train.lc.norm.tok.de
            name = plain.removesuffix(f".{lang}")
            if name == plain or not any(kind.fullmatch(name) for kind in KINDS.values()):
                continue
            sides = files.setdefault(name, {})
            if lang in sides:
                raise ValueError(
                    f"{sides[lang]} and {path.name} are two versions of the same text; remove one"
                )
            sides[lang] = path
    paths = {}
    for kind, pattern in KINDS.items():
        names = sorted(filter(pattern.fullmatch, files))
        if not names:
            expected = {"train": "train", "valid": "val, valid* or dev*", "test": "test*"}[kind]
            raise FileNotFoundError(
                f"{root}: no {kind} files; expected {expected} with the suffixes "
                f".{src_lang} and .{tgt_lang}, plain or .gz"
            )
        if kind != "test" and len(names) > 1:
            raise ValueError(f"{root}: {len(names)} {kind} sets ({', '.join(names)}); remove all but one")
        for name in names:
            for lang in {src_lang, tgt_lang} - files[name].keys():
                (path,) = files[name].values()
                raise FileNotFoundError(
                    f"{path} has no counterpart {name}.{lang}; add it, or remove this file"
                )
            paths[name if kind == "test" else kind] = files[name][src_lang], files[name][tgt_lang]
    return paths


def find_corpus(root: Path, src: str) -> Path:
    """Return ``root``, or the only folder in it with training text if it has none itself.

    Raises FileNotFoundError if there is no such folder.
    """
    files = f"train*.{src}*"
    if not root.is_dir():
        from data.named import CORPORA  # imported here: others need no named corpus

        there = ", ".join(sorted({str(path.parent) for path in root.parent.glob(f"*/{files}")}))
        remedies = [f"did you mean {there}?"] * bool(there)
        if named := CORPORA.get(root.name):
            folder = f"corpora/{root.name}.{'-'.join(named.languages[0])}"
            remedies.insert(0, f"attnbench data get {root.name}, then --set data.root={folder}")
        remedy = "; ".join(remedies)
        raise FileNotFoundError(f"{root}: no such folder; {remedy or 'give the folder of the corpus'}")
    inside = sorted({path.parent for path in root.glob(f"*/{files}")})
    if any(root.glob(files)) or len(inside) != 1:
        return root
    logger.info(f"data.root = {root}: using the corpus in {inside[0]}")
    return inside[0]


class Pairs(NamedTuple):
    """Sentence pairs: line i of ``tgt`` translates line i of ``src``."""

    src: Sequence[str]
    """Source sentences, without line ends; a ``TextFile`` reads them from disk."""
    tgt: Sequence[str]
    """Target sentences, as many as sources."""
    links: Sequence[str] = ()
    """Gold word alignments in Pharaoh format ("0-0 1-2"), one string per pair; empty if there are none."""

    def hashed_texts(self) -> Iterator[str]:
        """Yield for every column its number of lines, then its lines, for the hash of a corpus."""
        for lines in self:
            yield str(len(lines))
            yield from lines

    def column_hashes(self) -> Iterator[str]:
        """Return the sha256 of the lines of every column; a ``TextFile`` has it already."""
        return map(hash_lines, self)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A parallel corpus of one language pair, divided into splits."""

    name: str
    """Name of its folder, or "embedded"."""
    src_lang: str
    """Code of the source language, as in the file names ("en")."""
    tgt_lang: str
    splits: Mapping[str, Pairs]
    """The splits "train" and "valid", then the test sets by name; their names begin with "test"."""
    uncut: Mapping[str, int] = field(default_factory=dict)
    """Pairs that a test set had before ``with_tests_cut``, by its name."""
    docs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name of each sentence's document by test set; not in ``content_hash``, as it changes no score."""

    @cached_property
    def content_hash(self) -> str:
        """The sha256 over languages, split names and all lines, but not the corpus name."""
        return hash_texts(self._hashed_texts())

    def _hashed_texts(self) -> Iterator[str]:
        yield from (self.src_lang, self.tgt_lang)
        for split, pairs in self.splits.items():
            yield split
            yield from pairs.hashed_texts()

    @property
    def tests(self) -> tuple[str, ...]:
        """The names of the test sets."""
        return tuple(name for name in self.splits if name.startswith("test"))

    def with_tests_cut(self, size: int) -> "Corpus":
        """Return a copy whose test sets have only their first ``size`` pairs."""
        splits = {
            name: Pairs(*(lines[:size] for lines in pairs)) if name in self.tests else pairs
            for name, pairs in self.splits.items()
        }
        uncut = {
            name: len(pairs.src)
            for name, pairs in self.splits.items()
            if len(splits[name].src) < len(pairs.src)
        }
        docs = {name: names[:size] for name, names in self.docs.items()}
        return replace(self, splits=splits, uncut=uncut, docs=docs)

    def with_train_cut(self, size: int) -> "Corpus":
        """Return a copy with the first ``size`` training pairs, in memory; ValueError if there are fewer."""
        train = self.splits["train"]
        if len(train.src) < size:
            raise ValueError(
                f"corpus {self.name} has {len(train.src):,} training pairs, fewer than data.train_size "
                f"= {size:,}: set it to 0 to use all"
            )
        return replace(
            self, splits={**self.splits, "train": Pairs(*(tuple(lines[:size]) for lines in train))}
        )

    def overlaps(self) -> dict[str, int]:
        """Count, by split, the sources of valid and test sets that also occur in train.

        ``letters_of`` compares them; repeated ones count each time.
        """
        letters = {
            split: list(map(letters_of, pairs.src))
            for split, pairs in self.splits.items()
            if split != "train"
        }
        wanted = set(chain.from_iterable(letters.values()))
        shared = wanted.intersection(map(letters_of, self.splits["train"].src)) if wanted else set()
        counts = {split: sum(text in shared for text in texts) for split, texts in letters.items()}
        return {split: count for split, count in counts.items() if count}


def read_pairs(src_path: str | Path, tgt_path: str | Path) -> Pairs:
    """Read two parallel files, plain or .gz, into memory.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: the files differ in length or change while they are read, or a line is blank or not UTF-8.
    """
    src_path, tgt_path = Path(src_path), Path(tgt_path)
    with ensure_unchanged(src_path, tgt_path):
        pairs = Pairs(read_lines(src_path), read_lines(tgt_path))
    return _check_parallel(pairs, src_path, tgt_path)


def open_pairs(src_path: Path, tgt_path: Path) -> Pairs:
    """Check two parallel files as ``read_pairs`` does, but leave their lines on disk, as ``TextFile``s."""
    return _check_parallel(Pairs(TextFile(src_path), TextFile(tgt_path)), src_path, tgt_path)


def read_corpus(root: str | Path, src_lang: str, tgt_lang: str, *, tests: bool = True) -> Corpus:
    """Read a corpus from a folder of files named NAME.LANG or NAME.LANG.gz.

    NAME is ``train``, then ``val``, ``valid*`` or ``dev*``, then ``test*`` for one or more test sets. The
    lines of train stay on disk, because there may be ten million of them. Beside a test set there may be
    NAME.docs or NAME.docs.gz, the name of the document of each sentence, line by line.

    Raises:
        FileNotFoundError: see ``corpus_files``.
        ValueError: see ``corpus_files`` and ``read_pairs``; or documents of another number of lines.
    """
    root = Path(root)
    files = corpus_files(root, src_lang, tgt_lang)
    splits = {
        split: (open_pairs if split == "train" else read_pairs)(*paths)
        for split, paths in files.items()
        if tests or split in ("train", "valid")
    }
    docs = {
        test: _read_docs(path, len(splits[test].src))
        for test in splits
        if test.startswith("test") and (path := plain_or_gzip(root / f"{test}.docs")).is_file()
    }
    return Corpus(name=root.resolve().name, src_lang=src_lang, tgt_lang=tgt_lang, splits=splits, docs=docs)


def _read_docs(path: Path, sentences: int) -> Sequence[str]:
    names = read_lines(path)
    if len(names) != sentences:
        raise ValueError(
            f"{path} has {len(names)} lines, but its test set {sentences}: write a document name per sentence"
        )
    return names


@lru_cache(maxsize=1)  # it takes seconds, and a command needs it several times
def embedded_corpus(
    *, seed: int = 1, train: int = 20_000, grammar: str = "full", tests: bool = True
) -> Corpus:
    """Generate the embedded English-German corpus with gold alignments from these arguments alone.

    Args:
        seed: seed of the generator.
        train: number of training pairs; the other splits have those of ``embedded_splits``.
        grammar: full, or short: chains of simple clauses with few words.
        tests: whether to have the test sets.
    """
    from data.grammar import embedded_splits  # imported here: only this corpus needs the grammar

    generated = embedded_splits(seed=seed, train=train, grammar=grammar)
    splits = {
        name: Pairs(*zip(*pairs, strict=True))
        for name, pairs in generated.items()
        if tests or name in ("train", "valid")
    }
    return Corpus(name="embedded", src_lang="en", tgt_lang="de", splits=splits)


def _check_parallel(pairs: Pairs, src_path: Path, tgt_path: Path) -> Pairs:
    ensure_parallel(src_path, len(pairs.src), tgt_path, len(pairs.tgt))
    return pairs
