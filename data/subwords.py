"""SentencePiece subwords (Kudo and Richardson 2018), lossless for any text."""

import base64
import io
import logging
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.parallel import available_cores
from data.symbols import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

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
SCORE_SUM = 2.0**14
"""Sum of unigram scores, up to its sign, that no line reaches which is encoded word by word."""
UNKNOWN_PENALTY = 10.0
"""SentencePiece scores a character without a piece by so much less than the worst piece."""
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

    @property
    def longest_line_by_words(self) -> int:
        """Up to here a sum of scores stays below ``SCORE_SUM``; 0 if a piece spans a space."""
        return self._longest_line

    def encode_words(self, words: Sequence[str]) -> list[list[int] | None]:
        """Encode the parts of lines; None for the empty part and for those whose segmentation is a close call.

        No piece spans a space, so BPE merges within a word, and the best path of unigram through a line is the
        best path through each word. But unigram adds the scores of a line in fp32: where two segmentations of
        a word have nearly the same score ("PPP" as P + PP or PP + P), rounding decides, and with it the words
        before.
        """
        chosen = [word for word in words if word and _escape(word) == word]
        ids = self._processor.encode(chosen)
        safe = [True] * len(chosen) if self.kind == "bpe" else self._are_clear(chosen)
        found = {word: each for word, each, is_safe in zip(chosen, ids, safe, strict=True) if is_safe}
        return [found.get(word) for word in words]

    def _are_clear(self, words: list[str]) -> list[bool]:
        """Tell for each word whether its best segmentation leads the second by more than rounding errors.

        A piece adds an error of at most half a unit in the last place of ``SCORE_SUM`` to each of the two
        scores; the bound below is twice that. Bytes have no score of their own, so words with bytes are not
        clear.
        """
        scores, is_clear = self._scores, []
        for word, segmentations in zip(words, self._processor.nbest_encode(words, nbest_size=2), strict=True):
            sums = [scores[ids].sum() for ids in segmentations]
            lead = sums[0] - sums[1] if len(sums) > 1 else np.inf
            is_clear.append(bool(lead > (len(word) + 1) * SCORE_SUM * 2.0**-23))
        return is_clear

    @cached_property
    def _scores(self) -> NDArray[np.float64]:
        """Log-probability of each piece; NaN for those that have none."""
        ids = range(len(self))
        has_none = [self._processor.is_control(i) or self._processor.is_byte(i) for i in ids]
        scores = np.array([self._processor.get_score(i) for i in ids], dtype=np.float64)
        scores[np.array(has_none)] = np.nan
        scores[UNK] = np.nan
        return scores

    @cached_property
    def _longest_line(self) -> int:
        pieces = (self._processor.id_to_piece(i) for i in range(len(self)))
        if any(SPACE in piece[1:] for piece in pieces):
            return 0
        worst = UNKNOWN_PENALTY + float(np.nanmax(np.abs(self._scores)))  # of a character without a piece
        return sys.maxsize if self.kind == "bpe" else int(SCORE_SUM / worst) - 1

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
        f"warning: a {kind} vocabulary of size {size} cannot be built from this text: "
        f"the largest possible size, {largest[1]}, is used"
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
    return model.getvalue()


def _size_error(kind: str, size: int, message: str) -> ValueError:
    """Translate SentencePiece's message about a size into one that names the possible sizes."""
    context = f"a {kind} vocabulary of size {size} cannot be built from this text"
    if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return ValueError(
            f"{context}: its specials, bytes and characters alone need {match[1]}; set a larger size"
        )
    return ValueError(f"{context}: {message.strip()}")
