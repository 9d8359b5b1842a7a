"""Vocabularies: words, characters, given pieces, SentencePiece unigram or BPE; built, saved and loaded."""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from data.corpus import Pairs
from data.files import json_bytes, write_atomically
from data.subwords import KINDS as SUBWORD_KINDS
from data.subwords import SPACE, SubwordVocabulary, train_subwords
from data.symbols import SPECIALS, UNK, Vocabulary
from data.text import plain_or_gzip, read_decompressed

# The project's definition of a word: the tokens of word vocabularies, and what published figures depend on.
# Alignment links, REP score, word counts and the differences in the report are all defined over these words.


TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
"""A word, with the hyphens and apostrophes inside it, or one punctuation character."""

JOINER = "￭"
"""Prefix of a token that no space separates from the previous token."""


def split_words(text: str) -> list[str]:
    """Split ``text`` into words and punctuation characters: "Hello, you." gives Hello , you ."""
    return TOKEN.findall(text)


def mark_words(text: str) -> list[str]:
    """Split ``text`` like ``split_words``, and prefix JOINER where no space precedes: Hello ￭, you ￭."""
    tokens = []
    end = 0
    for match in TOKEN.finditer(text):
        joined = match.start() == end and end > 0
        tokens.append(JOINER + match.group() if joined else match.group())
        end = match.end()
    return tokens


def join_words(tokens: list[str]) -> str:
    """Undo ``mark_words``; each run of white space in the original text becomes one space."""
    return "".join(token[1:] if _is_marked(token) else f" {token}" for token in tokens).removeprefix(" ")


def unmarked(token: str) -> str:
    """Remove the JOINER from ``token``, if it has one."""
    return token[1:] if _is_marked(token) else token


def _is_marked(token: str) -> bool:
    """Whether ``token`` has a JOINER prefix; a JOINER alone is a character of the text itself."""
    return len(token) > 1 and token.startswith(JOINER)


def join_pieces(text: str) -> str:
    """Undo the segmentation of subword-nmt ("rid@@ ing") or of SentencePiece ("▁rid ing"): "riding"."""
    if SPACE in text:
        return text.replace(" ", "").replace(SPACE, " ").strip()
    return re.sub("@@( |$)", "", text)


# Vocabularies of the most frequent words or characters, stored in torchtext's ``Vocab``.


def visible_space(character: str) -> str:
    """Return ``character``, or ▁ for a space."""
    return SPACE if character == " " else character


Tokenizer = tuple[Callable[[str], list[str]], Callable[[list[str]], str], Callable[[str], str]]
TOKENIZERS: dict[str, Tokenizer] = {
    "words": (mark_words, join_words, unmarked),
    "characters": (list, "".join, visible_space),
    "given": (str.split, lambda pieces: join_pieces(" ".join(pieces)), str),
}
"""By kind of vocabulary: how to split a text into tokens, to undo it, and to label a token in plots."""


class CountedVocabulary(Vocabulary):
    """Vocabulary of counted tokens, in order of decreasing count, then of spelling; others become UNK.

    Args:
        kind: a key of ``TOKENIZERS``.
        counts: count of each token.
        size: upper bound on the number of ids, the specials included; None keeps all tokens.
        min_count: leave out tokens with a lower count.
    """

    def __init__(self, kind: str, counts: Counter[str], size: int | None = None, min_count: int = 1) -> None:
        from torchtext.vocab import Vocab  # imported here: it imports all of torch

        self.kind, self.encodes_words = kind, kind in ("words", "given")  # no token spans a space
        self._tokenize, self._detokenize, self._label = TOKENIZERS[kind]
        limit = None if size is None else size - len(SPECIALS)
        self._vocab = Vocab(counts, max_size=limit, min_freq=min_count, specials=list(SPECIALS))

    def __len__(self) -> int:
        return len(self._vocab.itos)

    def encode(self, text: str) -> list[int]:
        """Encode one line of text as ids, without BOS and EOS."""
        id_of = self._vocab.stoi.get  # indexing would insert the unknown word into the vocabulary
        return [id_of(token, UNK) for token in self._tokenize(text)]

    def _text(self, ids: list[int]) -> str:
        return self._detokenize([self._vocab.itos[index] for index in ids])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one label per id."""
        return [self._label(self._vocab.itos[index]) for index in ids]

    def labels(self, text: str) -> list[str]:
        """Return the labels of the tokens of ``text``, whether they are known or not."""
        return [self._label(token) for token in self._tokenize(text)]

    def to_json(self) -> Mapping[str, Any]:
        """Return the kind and the count of each token; the ids follow from the counts."""
        tokens = self._vocab.itos[len(SPECIALS) :]
        return {"kind": self.kind, "counts": {token: self._vocab.freqs[token] for token in tokens}}


# Building, saving and loading of vocabularies: words, characters, SentencePiece unigram or BPE.


KINDS = (*TOKENIZERS, *SUBWORD_KINDS)
"""Names of the kinds of vocabulary."""
FILE_NAME = "vocabulary.json"
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
        kind: one of ``KINDS``.
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
        kind: one of ``KINDS``.
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
    if kind in TOKENIZERS:
        tokenize = TOKENIZERS[kind][0]
        counts = Counter(token for line in lines for token in tokenize(line))
        return CountedVocabulary(kind, counts, size, min_count)
    if min_count != 1:
        raise ValueError(
            f"min_count ({min_count}) must be 1 for a {kind} vocabulary; it counts whole words only"
        )
    return train_subwords(kind, lines, size=size, seed=seed)


def _read(path: Path) -> dict[str, Any]:
    """Read the JSON object in ``path``."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; expected a saved vocabulary")
    try:
        content = json.loads(read_decompressed(path))
    except ValueError as error:
        raise ValueError(f"{path}: damaged vocabulary ({error}); build it again") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a vocabulary; build it again")
    return content


def _from_json(path: Path, content: Any) -> Vocabulary:
    """Build the vocabulary from the output of its ``to_json``; ``path`` is for messages."""
    try:
        kind = content["kind"]
        if kind in TOKENIZERS:
            counts = {str(token): int(count) for token, count in content["counts"].items()}
            return CountedVocabulary(kind, Counter(counts))
        if kind in SUBWORD_KINDS:
            return SubwordVocabulary(kind, base64.b64decode(content["model"], validate=True))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path}: damaged vocabulary ({error!r:.200}); build it again") from None
    raise ValueError(f"{path}: unknown vocabulary kind {kind!r:.80}; choose one of {', '.join(KINDS)}")
