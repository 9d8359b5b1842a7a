"""The special ids, and what every vocabulary can do."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.text.files import json_bytes, write_atomically

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")
"""How the special ids are shown, in order of id."""


class Vocabulary(ABC):
    """Text to ids and back; ids 0-3 are PAD, UNK, BOS and EOS in every vocabulary."""

    kind: str

    @abstractmethod
    def __len__(self) -> int:
        """The number of ids, the specials among them."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without BOS and EOS."""

    def encode_all(self, lines: Iterable[str]) -> list[list[int]]:
        """``encode`` for many lines; threaded where that pays."""
        return [self.encode(line) for line in lines]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids`` up to the first EOS; PAD and BOS are left out."""
        content = []
        for index in ids:
            if index == EOS:
                break
            if index not in (PAD, BOS):
                content.append(int(index))
        return self._text(content)

    @abstractmethod
    def _text(self, ids: list[int]) -> str:
        """The text of ``ids``, which hold no PAD, BOS or EOS."""

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One label for each id, as shown beside a heat-map."""

    @abstractmethod
    def to_json(self) -> Mapping[str, Any]:
        """All that is needed to build the vocabulary again, its ``kind`` included."""

    def save(self, path: Path) -> None:
        """Write the vocabulary to ``path`` as JSON, whole or not at all."""
        write_atomically(path, json_bytes(self.to_json()))
