"""SentencePiece subwords (Kudo and Richardson 2018), lossless for any text."""

import base64
import ctypes
import io
import logging
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from data.symbols import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from data.workers import available_cores

logger = logging.getLogger(__name__)

SPACE = "▁"
"""SentencePiece's symbol for a space. It would decode this character of a text as a space too."""
ESCAPE = "␛"
ESCAPED = {ESCAPE: ESCAPE + "0", SPACE: ESCAPE + "1"}
"""Escape sequences of the two characters that SentencePiece must not see; ``ESCAPE`` comes first."""
UNESCAPED = {sequence: character for character, sequence in ESCAPED.items()}
ESCAPE_SEQUENCE = re.compile("|".join(UNESCAPED))

KINDS = ("unigram", "bpe")
LARGEST_SIZE = re.compile(r"value <= (\d+)")
"""The largest possible size, in SentencePiece's message about one that is too large."""
LINES_PER_THREAD = 1_000
"""Lines for which a thread is worth its start."""
LOG_LEVEL_ERROR = 3
"""SentencePiece's log level for errors only; its exceptions contain the same information."""


class SubwordVocabulary(Vocabulary):
    """Pieces of a SentencePiece model; characters without a piece become bytes, so UNK never occurs.

    Args:
        kind: "unigram" or "bpe".
        model: the serialised SentencePiece model.

    Raises:
        ValueError: ``model`` is empty or not a SentencePiece model.
    """

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
        if not model:  # SentencePiece accepts it, and fails when it is used
            raise ValueError("the SentencePiece model is empty")

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
        """Return the score of each piece of text, ▁ standing for a space.

        The score is its log-probability (unigram), or minus the number of the merge that makes it (BPE).
        """
        processor = self._processor
        texts = (i for i in range(len(self)) if not (processor.is_byte(i) or processor.is_control(i)))
        return {
            processor.id_to_piece(i): processor.get_score(i) for i in texts if not processor.is_unknown(i)
        }

    def piece_ids(self, pieces: Iterable[str]) -> list[int]:
        """Return the ids of pieces, which may be characters that the vocabulary writes as bytes."""
        ids = []
        for piece in pieces:
            index = self._processor.piece_to_id(piece)
            parts = [piece] if index != UNK else [f"<0x{byte:02X}>" for byte in piece.encode()]
            ids += self._processor.piece_to_id(parts)
        return ids

    def marked_texts(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts that these ids stand for as SentencePiece sees them, with ▁ before each word."""
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
    """Replace the characters of ``ESCAPED``; ``str.translate`` would take ten times as long."""
    for character, sequence in ESCAPED.items():
        text = text.replace(character, sequence)
    return text


def train_subwords(kind: str, lines: Iterable[str], *, size: int, seed: int) -> SubwordVocabulary:
    """Train a SentencePiece model, in one thread so that the same text gives the same model.

    A size that is larger than the text allows is reduced to the largest possible one, with a warning.

    Args:
        kind: "unigram" (Kudo 2018) or "bpe" (Sennrich et al. 2016).
        lines: the training text, without line ends.
        size: number of ids, the 4 specials and 256 single bytes included.
        seed: seed of SentencePiece's generator.

    Raises:
        ValueError: the size is too small for this text, or the text has no words.
    """
    if iter(lines) is lines:  # an iterator; a second training would find it exhausted
        lines = list(lines)
    try:
        return SubwordVocabulary(kind, _train(kind, lines, size=size, seed=seed))
    except RuntimeError as error:
        largest = LARGEST_SIZE.search(str(error))
        if largest is None or int(largest[1]) >= size:
            raise _size_error(kind, size, str(error)) from None
    logger.warning(
        f"a {kind} vocabulary of size {size} cannot be built from this text: "
        f"the largest possible vocabulary.size, {largest[1]}, is used"
    )
    return train_subwords(kind, lines, size=int(largest[1]), seed=seed)


def _train(kind: str, lines: Iterable[str], *, size: int, seed: int) -> bytes:
    """Train a SentencePiece model of exactly ``size`` ids; raises RuntimeError if that is not possible."""
    import sentencepiece

    sentencepiece.set_random_generator_seed(seed)
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
    _return_freed_memory()
    return model.getvalue()


def _return_freed_memory() -> None:
    """Give memory that is free back to the system, where glibc keeps it: SentencePiece leaves up to 1 GB."""
    if platform.libc_ver()[0] == "glibc":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def _size_error(kind: str, size: int, message: str) -> ValueError:
    """Translate SentencePiece's message about a size into one that names the possible sizes."""
    context = f"a {kind} vocabulary of size {size} cannot be built from this text"
    if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return ValueError(
            f"{context}: its specials, bytes and characters alone need {match[1]}; "
            "set a larger size (vocabulary.size)"
        )
    return ValueError(f"{context}: {message.strip()}")
