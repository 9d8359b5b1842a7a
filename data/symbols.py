"""The special ids and the abstract base class of the vocabularies."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")
"""Labels of the special ids, in order of id."""
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""The control characters (Unicode category Cc) and all else that ``str.splitlines`` splits at.

A subword model can write them, because its vocabulary has a piece for every byte. ``str.translate`` would
take fifteen times as long as this pattern.
"""


class Vocabulary(ABC):
    """Mapping from text to ids and back; ids 0-3 are PAD, UNK, BOS and EOS in every vocabulary."""

    kind: str
    """One of ``data.vocabulary.KINDS``."""

    encodes_words: bool = False
    """Whether the ids of a line without double or outer spaces are those of ``line.split(" ")``."""

    first_token: int = len(SPECIALS)
    """The first id of the vocabulary's own tokens: lower ones stand for text that it does not know."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of ids, the specials included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Encode one line of text as ids, without BOS and EOS."""

    def encode_all(self, lines: Iterable[str]) -> list[list[int]]:
        """Encode many lines as ``encode`` does, in several threads where that is faster."""
        return [self.encode(line) for line in lines]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids to one line of text, up to the first EOS; PAD and BOS are left out.

        Each control character and line separator becomes a space.
        """
        content = []
        for index in ids:
            if index == EOS:
                break
            if index not in (PAD, BOS):
                content.append(int(index))
        return CONTROL.sub(" ", self._text(content))

    @abstractmethod
    def _text(self, ids: list[int]) -> str:
        """Decode ids that contain no PAD, BOS or EOS."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one label per id, as shown beside a heat map; specials have those of ``SPECIALS``."""

    def labels(self, text: str) -> list[str]:
        """Return the labels of the ids of ``encode(text)``; an unknown token is shown as in the text."""
        return self.pieces(self.encode(text))

    @abstractmethod
    def to_json(self) -> Mapping[str, Any]:
        """Return the ``kind`` and all else that is needed to build the vocabulary again."""
