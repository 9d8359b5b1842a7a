"""Marks of a text: unusual characters, and signs that it is not plain text; ``marks.toml`` lists them."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import is_normalized

if TYPE_CHECKING:
    from data.corpus import Corpus

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CHARACTERS = {kind: re.compile(pattern) for kind, pattern in _TABLES["characters"].items()}
"""By kind of unusual characters, the regular expression that finds one."""
BROKEN_TEXT = re.compile(
    "|".join(CHARACTERS[kind].pattern for kind in ("not text", "control", "replacement", "no character"))
)
"""Characters that no text has: controls but white space, what stands for lost ones, and surrogates."""
REMEDIES: dict[str, str] = {kind: mark["remedy"] for kind, mark in _TABLES["marks"].items()}
"""By kind of mark of a text that is not plain, how to undo it."""
BROKEN, NOT_NFC, UNSPACED = "not text", "not Unicode NFC", "text without spaces"
CUT = ("BPE (@@)", "SentencePiece (▁)")
"""Marks of a text that is cut into pieces."""

Searches = Mapping[str, Callable[[str], object]]
"""By kind, whether one line, or a text of several, has it."""
MARKS: Searches = {
    kind: re.compile(mark["pattern"], re.MULTILINE).search for kind, mark in _TABLES["marks"].items()
} | {NOT_NFC: lambda text: not is_normalized("NFC", text)}
ALL: Searches = {kind: pattern.search for kind, pattern in CHARACTERS.items()} | {**MARKS}
_SIGNS = _TABLES["characters"] | {UNSPACED: _TABLES["marks"][UNSPACED]["pattern"]}
_ANY_SIGN = re.compile("|".join(pattern.partition("(")[0] for pattern in _SIGNS.values()))
"""What each of these patterns begins with, one class of characters; most text has none."""

SAMPLE_LINES = 10_000
"""Number of lines by which a text is described."""
MIN_SHARE = 0.01
"""Share of the lines from which a mark is worth a warning; half of them for text without spaces."""


@dataclass(frozen=True)
class MarkedLines:
    """Number of lines of a text that have a mark."""

    kind: str
    count: int
    total: int

    @property
    def most(self) -> bool:
        """Whether most lines have the mark."""
        return 2 * self.count > self.total

    def __str__(self) -> str:
        return f"{self.kind} in {self.count:,} of {self.total:,} lines: {REMEDIES[self.kind]}"


def find_marks(lines: Sequence[str], searches: Searches = MARKS) -> Iterator[tuple[str, list[int]]]:
    """Yield each kind of mark that a block of lines has, with the indices of its lines."""
    text = "\n".join(lines)
    has_sign = _ANY_SIGN.search(text)
    for kind, found in searches.items():
        if (has_sign or kind not in _SIGNS) and found(text):
            yield kind, [row for row, line in enumerate(lines) if found(line)]


def notable_marks(counts: Mapping[str, int], total: int) -> list[MarkedLines]:
    """List the marks that are worth a warning, given on how many of all lines each stands."""
    marked = [MarkedLines(kind, count, total) for kind, count in counts.items()]
    return [
        each for each in marked if each.most or (each.kind != UNSPACED and each.count >= MIN_SHARE * total)
    ]


def describe_text(*texts: Iterable[str], tokenize: str) -> list[MarkedLines]:
    """List the marks of texts, by the first ``SAMPLE_LINES`` lines of each; ``tokenize`` is BLEU's."""
    lines = [line for text in texts for line in islice(text, SAMPLE_LINES)]
    counts = {kind: len(rows) for kind, rows in find_marks(lines)}
    if tokenize not in ("13a", "intl", "none"):  # the others need no spaces
        counts.pop(UNSPACED, None)
    return notable_marks(counts, len(lines))


def describe_corpus(corpus: "Corpus", tokenize: str, kind: str) -> list[str]:
    """List what is notable of the texts: test sources that occur in train, and marks.

    Args:
        corpus: the corpus.
        tokenize: BLEU's tokenizer of the targets.
        kind: of the vocabulary; only "given" takes text that is cut into pieces.

    Raises:
        ValueError: most of the text is cut into pieces.
    """
    warnings = []
    for test in corpus.tests:
        if overlap := corpus.overlap(test):
            size = len(corpus.splits[test].src)
            warnings.append(f"{overlap} of {size} sources of {test} also occur in train")
    for side, language in enumerate((corpus.src_lang, corpus.tgt_lang)):
        texts = (pairs[side] for pairs in corpus.splits.values())
        for marked in describe_text(*texts, tokenize=tokenize if side else "char"):
            if marked.kind in CUT and kind == "given":
                continue
            if marked.kind in CUT and marked.most:
                raise ValueError(
                    f"{corpus.name}, {language}: cut into pieces already, {marked}; or set vocabulary.kind = "
                    '"given", which takes these pieces and joins them before scoring'
                )
            warnings.append(f"{language}: {marked}")
    return warnings
