"""SentencePiece subwords (Kudo and Richardson 2018) that give any text back exactly."""

import base64
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data.symbols import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

SPACE = "▁"  # SentencePiece writes a space so, and reads this sign of the text as a space
ESCAPE = "␛"
ESCAPED = {ESCAPE: ESCAPE + "0", SPACE: ESCAPE + "1"}
UNESCAPED = {code: sign for sign, code in ESCAPED.items()}

CODE = re.compile("|".join(UNESCAPED))
KINDS = ("unigram", "bpe")
ERRORS = 3  # the least that SentencePiece may log: what it raises says enough


class SubwordVocabulary(Vocabulary):
    """Pieces of a SentencePiece model; what they do not cover is written in bytes, so nothing is unknown."""

    def __init__(self, kind: str, model: bytes) -> None:
        import sentencepiece

        sentencepiece.set_min_log_level(ERRORS)
        self.kind = kind
        self._model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise ValueError("SentencePiece cannot read its model") from None
        if not model:  # SentencePiece takes it, and fails when it is used
            raise ValueError("the SentencePiece model is empty")

    def __len__(self) -> int:
        return int(self._processor.vocab_size())

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without BOS and EOS."""
        ids: list[int] = self._processor.encode(_escaped(text))
        return ids

    def encode_all(self, lines: Iterable[str]) -> list[list[int]]:
        """``encode`` for many lines, on all cores."""
        escaped = [_escaped(line) for line in lines]
        ids: list[list[int]] = self._processor.encode(escaped, num_threads=os.cpu_count() or 1)
        return ids

    def _text(self, ids: list[int]) -> str:
        return CODE.sub(lambda code: UNESCAPED[code.group()], self._processor.decode(ids))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One label for each id; a leading ▁ stands for a space."""
        return [SPECIALS[i] if i < len(SPECIALS) else self._processor.id_to_piece(int(i)) for i in ids]

    def to_json(self) -> Mapping[str, Any]:
        """The kind, and SentencePiece's own model in base64."""
        return {"kind": self.kind, "model": base64.b64encode(self._model).decode()}


def _escaped(text: str) -> str:
    """``text`` without SentencePiece's sign for a space; ``translate`` takes ten times as long."""
    for sign, code in ESCAPED.items():  # the sign of escape first
        text = text.replace(sign, code)
    return text


def train_subwords(kind: str, lines: Iterable[str], *, size: int, seed: int) -> SubwordVocabulary:
    """Train a model of ``size`` pieces, 4 specials and 256 bytes included; one thread, so that it repeats."""
    import sentencepiece

    sentencepiece.set_random_generator_seed(seed)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=map(_escaped, lines),
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
            character_coverage=0.9999,  # the rarest characters are written in bytes
            max_sentence_length=1 << 30,  # longer lines would be left out silently
            num_threads=1,
            minloglevel=ERRORS,
        )
    except RuntimeError as error:
        raise _explained(kind, size, str(error)) from None
    return SubwordVocabulary(kind, model.getvalue())


def _explained(kind: str, size: int, message: str) -> ValueError:
    """SentencePiece's complaint about a size, as a user can act on it."""
    where = f"a {kind} vocabulary of size {size} cannot be built from this text"
    if match := re.search(r"value <= (\d+)", message):
        return ValueError(f"{where}: the largest possible size is {match[1]}")
    if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return ValueError(
            f"{where}: its specials, bytes and characters alone need {match[1]}; set a larger size"
        )
    return ValueError(f"{where}: {message.strip()}")
