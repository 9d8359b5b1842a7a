"""Vocabularies: words, characters, given pieces, SentencePiece unigram or BPE; built, saved and loaded."""

import base64
import hashlib
import io
import json
import logging
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from data.corpus import Pairs
from data.files import json_bytes, write_atomically
from data.forms import join_pieces, piece_sign
from data.text import UNSPACED, plain_or_gzip, read_decompressed
from data.workers import available_cores, return_freed_memory

logger = logging.getLogger(__name__)

# The special ids, and what every vocabulary can do.


PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")
"""Labels of the special ids, in order of id."""
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters (category Cc) and all else that ``str.splitlines`` splits at.

A subword model can write them as bytes. ``str.translate`` would take fifteen times as long.
"""


class Vocabulary(ABC):
    """Mapping from text to ids and back; ids 0-3 are PAD, UNK, BOS and EOS in every vocabulary."""

    kind: str
    """One of ``KINDS``."""

    encodes_words: bool = False
    """True if the ids of a line without double or outer spaces are those of its words."""

    first_token: int = len(SPECIALS)
    """First id of the vocabulary's own tokens; lower ones stand for unknown text."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of ids, the specials included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Encode one line of text as ids, without BOS and EOS."""

    def encode_all(self, lines: Iterable[str]) -> list[list[int]]:
        """Encode many lines, in several threads where that is faster."""
        return [self.encode(line) for line in lines]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids up to the first EOS to one line; control characters become spaces."""
        content = []
        for index in ids:
            if index == EOS:
                break
            if index not in (PAD, BOS):
                content.append(int(index))
        return CONTROL.sub(" ", self._text(content))

    @abstractmethod
    def _text(self, ids: list[int]) -> str: ...

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one label per id for heat maps; specials have those of ``SPECIALS``."""

    def labels(self, text: str) -> list[str]:
        """Return the labels of ``encode(text)``; an unknown token is shown as in the text."""
        return self.pieces(self.encode(text))

    @abstractmethod
    def to_json(self) -> Mapping[str, Any]:
        """Return the ``kind`` and all else needed to build the vocabulary again."""


# The project's definition of a word, the token of word vocabularies. Published figures depend on it:
# alignment links, REP score, word counts and the differences in the report.


TOKEN = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+(?:[-'’][^\W{UNSPACED}]+)*|[^\w\s]")
"""A word with inner hyphens and apostrophes, a punctuation character, or an unspaced character."""

SPACE = "▁"
"""SentencePiece's symbol for a space."""
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
    """Undo ``mark_words``; white space becomes one space."""
    return "".join(token[1:] if _is_marked(token) else f" {token}" for token in tokens).removeprefix(" ")


def unmarked(token: str) -> str:
    """Remove the JOINER of a token."""
    return token[1:] if _is_marked(token) else token


def _is_marked(token: str) -> bool:
    return len(token) > 1 and token.startswith(JOINER)


def text_words(text: str, kind: str) -> list[str]:
    """Split a text into words, or text for a "given" vocabulary into its pieces."""
    return text.split() if kind == "given" else split_words(text)


def readable(lines: Sequence[str], kind: str) -> Sequence[str]:
    """Return ``lines`` for people: the pieces of a "given" vocabulary are joined."""
    if kind != "given":
        return lines
    sign = piece_sign(lines)
    return [join_pieces(line, sign) for line in lines]


# Vocabularies of the most frequent words or characters, stored in torchtext's ``Vocab``.


def visible_space(character: str) -> str:
    """Return ``character``, or ▁ for a space."""
    return SPACE if character == " " else character


Tokenizer = tuple[Callable[[str], list[str]], Callable[[list[str]], str], Callable[[str], str]]
TOKENIZERS: dict[str, Tokenizer] = {
    "words": (mark_words, join_words, unmarked),
    "characters": (list, "".join, visible_space),
    "given": (str.split, " ".join, str),
}
"""By kind: functions that split a text into tokens, join them, and label a token in plots."""


class CountedVocabulary(Vocabulary):
    """Most frequent tokens, by decreasing count, then spelling; others become UNK."""

    def __init__(self, kind: str, counts: Counter[str], size: int | None = None, min_count: int = 1) -> None:
        from torchtext.vocab import Vocab  # imported here: it imports all of torch

        self.kind, self.encodes_words = kind, kind in ("words", "given")  # no token spans a space
        self._tokenize, self._detokenize, self._label = TOKENIZERS[kind]
        self._sign = piece_sign(counts) if kind == "given" else ""
        limit = None if size is None else size - len(SPECIALS)
        self._vocab = Vocab(counts, max_size=limit, min_freq=min_count, specials=list(SPECIALS))

    def __len__(self) -> int:
        return len(self._vocab.itos)

    def encode(self, text: str) -> list[int]:
        """Encode one line of text as ids, without BOS and EOS."""
        id_of = self._vocab.stoi.get  # indexing would insert the unknown word into the vocabulary
        ids = [id_of(token, UNK) for token in self._tokenize(text)]
        return [index if index > EOS else UNK for index in ids]  # "<eos>" in a text is no end

    def _text(self, ids: list[int]) -> str:
        return join_pieces(self._detokenize([self._vocab.itos[index] for index in ids]), self._sign)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one label per id."""
        return [self._label(self._vocab.itos[index]) for index in ids]

    def labels(self, text: str) -> list[str]:
        """Return the labels of the tokens of ``text``."""
        return [self._label(token) for token in self._tokenize(text)]

    def to_json(self) -> Mapping[str, Any]:
        """Return the kind and the count of each token; the ids follow from the counts."""
        tokens = self._vocab.itos[len(SPECIALS) :]
        return {"kind": self.kind, "counts": {token: self._vocab.freqs[token] for token in tokens}}


# SentencePiece subwords (Kudo and Richardson 2018), lossless for any text.


ESCAPE = "␛"
ESCAPED = {ESCAPE: ESCAPE + "0", SPACE: ESCAPE + "1"}
"""Escapes of the two characters that SentencePiece must not see; ``ESCAPE`` comes first."""
UNESCAPED = {sequence: character for character, sequence in ESCAPED.items()}
ESCAPE_SEQUENCE = re.compile("|".join(UNESCAPED))

SUBWORD_KINDS = ("unigram", "bpe")
LARGEST_SIZE = re.compile(r"value <= (\d+)")
"""The largest possible size, in SentencePiece's error message."""
LINES_PER_THREAD = 1_000
"""Lines for which a thread is worth its start."""
LOG_LEVEL_ERROR = 3
"""Level at which SentencePiece only raises exceptions."""


class SubwordVocabulary(Vocabulary):
    """Pieces of a SentencePiece model; characters without a piece become bytes, never UNK."""

    def __init__(self, kind: str, model: bytes) -> None:
        import sentencepiece

        sentencepiece.set_min_log_level(LOG_LEVEL_ERROR)
        self.kind = kind
        # Merges stay within words. Unigram adds the scores of a line in fp32: where two segmentations have
        # the same score but for rounding ("PPP" as P + PP or PP + P), the words before it decide.
        self.encodes_words = kind == "bpe"
        self.first_token = len(SPECIALS) + 256  # after the single bytes
        self._model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise ValueError("SentencePiece cannot read its model") from None

    def __len__(self) -> int:
        return int(self._processor.vocab_size())

    def encode(self, text: str) -> list[int]:
        """Encode one line of text as ids, without BOS and EOS."""
        ids: list[int] = self._processor.encode(_escape(text))
        return ids

    def encode_all(self, lines: Iterable[str]) -> list[list[int]]:
        """Encode many lines as ``encode`` does, on all cores."""
        escaped = [_escape(line) for line in lines]
        threads = min(available_cores(), 1 + len(escaped) // LINES_PER_THREAD)
        ids: list[list[int]] = self._processor.encode(escaped, num_threads=threads)
        return ids

    def scores(self) -> dict[str, float]:
        """Return the score of each piece: log-probability (unigram), or minus the merge number (BPE)."""
        ids = range(self.first_token, len(self))
        return {self._processor.id_to_piece(i): self._processor.get_score(i) for i in ids}

    def piece_ids(self, piece: str) -> list[int]:
        """Return the id of a piece, or the byte ids of a character that is none."""
        index = self._processor.piece_to_id(piece)
        parts = [piece] if index != UNK else [f"<0x{byte:02X}>" for byte in piece.encode()]
        ids: list[int] = self._processor.piece_to_id(parts)
        return ids

    def marked_texts(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of ids as SentencePiece sees them, with ▁ before each word."""
        texts = self._processor.decode(sentences, num_threads=1)
        return [
            SPACE + text.replace(" ", SPACE) if len(ids) else ""
            for ids, text in zip(sentences, texts, strict=True)
        ]

    def __reduce__(self) -> tuple[type["SubwordVocabulary"], tuple[str, bytes]]:
        return SubwordVocabulary, (self.kind, self._model)

    def _text(self, ids: list[int]) -> str:
        return ESCAPE_SEQUENCE.sub(lambda match: UNESCAPED[match.group()], self._processor.decode(ids))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one label per id; ▁ stands for a space."""
        return [SPECIALS[i] if i < len(SPECIALS) else self._processor.id_to_piece(int(i)) for i in ids]

    def to_json(self) -> Mapping[str, Any]:
        """Return the kind and the SentencePiece model in base64."""
        return {"kind": self.kind, "model": base64.b64encode(self._model).decode()}


def _escape(text: str) -> str:
    # str.translate would take ten times as long.
    for character, sequence in ESCAPED.items():
        text = text.replace(character, sequence)
    return text


def train_subwords(kind: str, lines: Iterable[str], *, size: int) -> SubwordVocabulary:
    """Train a SentencePiece model, in one thread so that the same text gives the same model.

    A size larger than the text allows is reduced, with a warning.

    Raises:
        ValueError: the size is too small for this text, or the text has no words.
    """
    lines = list(lines)  # for a second training
    try:
        return SubwordVocabulary(kind, _train(kind, lines, size=size))
    except RuntimeError as error:
        largest = LARGEST_SIZE.search(str(error))
        if largest is None or int(largest[1]) >= size:
            raise _size_error(kind, size, str(error)) from None
    logger.warning(
        f"this text allows no {kind} vocabulary of size {size}: "
        f"using the largest possible vocabulary.size, {largest[1]}"
    )
    return train_subwords(kind, lines, size=int(largest[1]))


def _train(kind: str, lines: Iterable[str], *, size: int) -> bytes:
    import sentencepiece

    sentencepiece.set_random_generator_seed(0)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=map(_escape, lines),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.9999,  # the rarest characters become bytes
        max_sentence_length=1 << 30,  # longer lines would be skipped silently
        num_threads=1,
        minloglevel=LOG_LEVEL_ERROR,
    )
    return_freed_memory()
    return model.getvalue()


def _size_error(kind: str, size: int, message: str) -> ValueError:
    context = f"this text allows no {kind} vocabulary of size {size}"
    if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return ValueError(
            f"{context}: specials, bytes and characters alone need {match[1]}; increase vocabulary.size"
        )
    return ValueError(f"{context}: {message.strip()}")


# Building, saving and loading of vocabularies: words, characters, SentencePiece unigram or BPE.


KINDS = (*TOKENIZERS, *SUBWORD_KINDS)
FILE_NAME = "vocabulary.json"
MAX_SUBWORD_PAIRS = 150_000
"""Upper bound on training pairs: SentencePiece holds the text in memory."""


class VocabularyPair(NamedTuple):
    """The vocabularies of source and target, the same object if they are joint."""

    src: Vocabulary
    tgt: Vocabulary

    @property
    def joint(self) -> bool:
        """True if both sides share one vocabulary."""
        return self.src is self.tgt

    @property
    def content_hash(self) -> str:
        """The sha256 of the file that ``save`` writes."""
        return hashlib.sha256(self._content()).hexdigest()

    def save(self, folder: str | Path) -> None:
        """Write both vocabularies to ``FILE_NAME`` in an existing folder."""
        write_atomically(Path(folder) / FILE_NAME, self._content())

    def _content(self) -> bytes:
        sides = {"joint": self.src} if self.joint else {"src": self.src, "tgt": self.tgt}
        return json_bytes({side: vocabulary.to_json() for side, vocabulary in sides.items()})


def build_pair(
    train: Pairs, *, kind: str = "unigram", size: int = 8_000, joint: bool = True, min_count: int = 1
) -> VocabularyPair:
    """Build the vocabularies of both sides from the training pairs.

    Words and characters are counted in all pairs; subwords are trained on at most ``MAX_SUBWORD_PAIRS``,
    evenly spaced.

    Args:
        train: the training pairs.
        kind: one of ``KINDS``.
        size: upper bound on the ids per vocabulary, specials included.
        joint: build one vocabulary over both sides instead of one per side.
        min_count: leave out words and characters that occur less often; must be 1 for subwords.
    """
    step = -(-len(train.src) // MAX_SUBWORD_PAIRS) if kind in SUBWORD_KINDS else 1

    def build(*sides: Sequence[str]) -> Vocabulary:
        lines = chain.from_iterable(islice(side, 0, None, step) for side in sides)
        return build_vocabulary(kind, lines, size=size, min_count=min_count)

    if joint:
        shared = build(train.src, train.tgt)
        return VocabularyPair(shared, shared)
    return VocabularyPair(build(train.src), build(train.tgt))


def load_pair(folder: str | Path) -> VocabularyPair:
    """Load the vocabularies of a folder, also from a .gz; ValueError if they are damaged."""
    path = plain_or_gzip(Path(folder) / FILE_NAME)
    try:
        content = json.loads(read_decompressed(path))
        sides = ["joint"] if "joint" in content else ["src", "tgt"]
        vocabularies = [_from_json(content[side]) for side in sides]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: damaged vocabulary ({error!r:.200}); build it again") from None
    return VocabularyPair(vocabularies[0], vocabularies[-1])


def _from_json(content: Mapping[str, Any]) -> Vocabulary:
    kind = content["kind"]
    if kind in SUBWORD_KINDS:
        return SubwordVocabulary(kind, base64.b64decode(content["model"]))
    return CountedVocabulary(kind, Counter(content["counts"]))


def build_vocabulary(kind: str, lines: Iterable[str], *, size: int, min_count: int = 1) -> Vocabulary:
    """Build a vocabulary from lines of text; see ``build_pair`` for the arguments.

    ``size`` is an upper bound; unigram and bpe log a warning if the text allows only fewer.
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
            f"min_count ({min_count}) must be 1 for a {kind} vocabulary, because it counts whole words"
        )
    return train_subwords(kind, lines, size=size)
