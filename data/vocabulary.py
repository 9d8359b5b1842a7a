"""Building, saving and loading of vocabularies: words, characters, SentencePiece unigram or BPE."""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from data.corpus import Pairs
from data.subwords import KINDS as SUBWORD_KINDS
from data.subwords import SubwordVocabulary, train_subwords
from data.symbols import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from data.text.compression import plain_or_gzip, read_decompressed
from data.text.files import json_bytes, parse_json, write_atomically
from data.word_vocabulary import CharacterVocabulary, CountedVocabulary, WordVocabulary

__all__ = [
    "BOS",
    "EOS",
    "KINDS",
    "PAD",
    "SPECIALS",
    "UNK",
    "Vocabulary",
    "VocabularyPair",
    "build_pair",
    "build_vocabulary",
    "load_pair",
    "load_vocabulary",
]

COUNTED: dict[str, type[CountedVocabulary]] = {"words": WordVocabulary, "characters": CharacterVocabulary}
KINDS = (*COUNTED, *SUBWORD_KINDS)
"""Names of the kinds of vocabulary."""
FILE_NAME = "vocabulary.json"
MAX_BYTES = 1_000_000_000
"""Size that no file of vocabularies reaches."""
MAX_SUBWORD_PAIRS = 150_000
"""Upper bound on the pairs that subwords are trained on: SentencePiece holds its training text in memory."""


class VocabularyPair(NamedTuple):
    """The vocabularies of source and target, the same object if they are joint."""

    src: Vocabulary
    """Vocabulary of the source."""
    tgt: Vocabulary
    """Vocabulary of the target."""

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.src is self.tgt

    @property
    def content_hash(self) -> str:
        """The sha256 of the file that ``save`` writes."""
        return hashlib.sha256(self._content()).hexdigest()

    def save(self, folder: str | Path) -> None:
        """Write both vocabularies to one file, ``FILE_NAME`` in ``folder``.

        Args:
            folder: an existing folder.

        Raises:
            OSError: the file cannot be written.
        """
        write_atomically(Path(folder) / FILE_NAME, self._content())

    def _content(self) -> bytes:
        sides = {"joint": self.src} if self.joint else {"src": self.src, "tgt": self.tgt}
        return json_bytes({side: vocabulary.to_json() for side, vocabulary in sides.items()})


def build_pair(
    train: Pairs, *, kind: str = "unigram", size: int = 8_000, joint: bool = True, min_count: int = 1
) -> VocabularyPair:
    """Build the vocabularies of both sides from the training pairs.

    Words and characters are counted in all pairs. Subwords are trained on at most ``MAX_SUBWORD_PAIRS``
    pairs, evenly spaced.

    Args:
        train: the training pairs.
        kind: "words", "characters", "unigram" or "bpe".
        size: upper bound on the ids per vocabulary; see ``build_vocabulary``.
        joint: build one vocabulary over both sides instead of one per side.
        min_count: leave out words and characters that occur less often; must be 1 for subwords.

    Returns:
        Both vocabularies; their lengths are the numbers of ids.

    Raises:
        ValueError: see ``build_vocabulary``.
    """
    step = -(-len(train.src) // MAX_SUBWORD_PAIRS) if kind in SUBWORD_KINDS else 1
    if joint:
        shared = build_vocabulary(kind, _EveryKthLine(train[:2], step), size=size, min_count=min_count)
        return VocabularyPair(shared, shared)
    src, tgt = (
        build_vocabulary(kind, _EveryKthLine([side], step), size=size, min_count=min_count)
        for side in train[:2]
    )
    return VocabularyPair(src, tgt)


class _EveryKthLine:
    """Every ``step``-th line of each of ``sides``; can be iterated again, unlike an iterator."""

    def __init__(self, sides: Sequence[Sequence[str]], step: int) -> None:
        self._sides, self._step = sides, step

    def __iter__(self) -> Iterator[str]:
        for lines in self._sides:
            yield from islice(lines, 0, None, self._step)


def load_pair(folder: str | Path) -> VocabularyPair:
    """Load the vocabularies that ``VocabularyPair.save`` wrote.

    Args:
        folder: the folder that holds the file, or the file as .gz, such as that of a run.

    Returns:
        Both vocabularies.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged.
    """
    path = plain_or_gzip(Path(folder) / FILE_NAME)
    content = _read(path)
    if content.keys() == {"joint"}:
        shared = _from_json(path, content["joint"])
        return VocabularyPair(shared, shared)
    if content.keys() == {"src", "tgt"}:
        return VocabularyPair(_from_json(path, content["src"]), _from_json(path, content["tgt"]))
    raise ValueError(f"{path}: holds neither 'joint' nor 'src' and 'tgt'; build the vocabulary again")


def build_vocabulary(
    kind: str, lines: Iterable[str], *, size: int, min_count: int = 1, seed: int = 0
) -> Vocabulary:
    """Build a vocabulary from text.

    Args:
        kind: "words", "characters", "unigram" or "bpe".
        lines: the text, without line ends.
        size: number of ids, the 4 specials included. It is an upper bound: fewer are used if the text has
            no more, which for unigram and bpe is logged as a warning.
        min_count: leave out words and characters that occur less often; must be 1 for unigram and bpe.
        seed: seed of SentencePiece's generator; words and characters do not depend on it.

    Raises:
        ValueError: the kind is unknown, or size or min_count do not fit the kind or the text.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown vocabulary kind {kind!r:.80}; choose one of {', '.join(KINDS)}")
    if size <= len(SPECIALS):
        raise ValueError(f"vocabulary size ({size}) must be larger than the {len(SPECIALS)} special ids")
    if kind in COUNTED:
        return COUNTED[kind].build(lines, size=size, min_count=min_count)
    if min_count != 1:
        raise ValueError(
            f"min_count ({min_count}) must be 1 for a {kind} vocabulary; it counts whole words only"
        )
    return train_subwords(kind, lines, size=size, seed=seed)


def load_vocabulary(path: Path) -> Vocabulary:
    """Load the vocabulary that ``Vocabulary.save`` wrote to ``path``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged.
    """
    return _from_json(path, _read(path))


def _read(path: Path) -> dict[str, Any]:
    """Read the JSON object in ``path``."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; expected a saved vocabulary")
    try:
        content = parse_json(read_decompressed(path, max_bytes=MAX_BYTES))
    except ValueError as error:
        raise ValueError(f"{path}: damaged vocabulary ({error}); build it again") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a vocabulary; build it again")
    return content


def _from_json(path: Path, content: Any) -> Vocabulary:
    """Build the vocabulary from the output of its ``to_json``; ``path`` is for messages."""
    try:
        kind = content["kind"]
        if kind in COUNTED:
            return COUNTED[kind](
                Counter({str(token): int(count) for token, count in content["counts"].items()})
            )
        if kind in SUBWORD_KINDS:
            return SubwordVocabulary(kind, base64.b64decode(content["model"], validate=True))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path}: damaged vocabulary ({error!r:.200}); build it again") from None
    raise ValueError(f"{path}: unknown vocabulary kind {kind!r:.80}; choose one of {', '.join(KINDS)}")
