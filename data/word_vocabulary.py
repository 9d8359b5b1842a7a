"""Vocabularies of the words or the characters seen often enough, kept in torchtext's ``Vocab``."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data.symbols import SPECIALS, UNK, Vocabulary
from data.words import join_words, mark_words, unmarked


class CountedVocabulary(Vocabulary):
    """Tokens in order of count, then of spelling; anything else is UNK."""

    def __init__(self, counts: Counter[str], *, size: int | None = None, min_count: int = 1) -> None:
        from torchtext.vocab import Vocab  # imported here: it brings all of torch

        limit = None if size is None else size - len(SPECIALS)
        self._vocab = Vocab(counts, max_size=limit, min_freq=min_count, specials=list(SPECIALS))

    @classmethod
    def build(cls, lines: Iterable[str], *, size: int, min_count: int) -> "CountedVocabulary":
        """Count the tokens of ``lines`` and keep the most frequent, at most ``size`` with the specials."""
        counts = Counter(token for line in lines for token in cls.split(line))
        return cls(counts, size=size, min_count=min_count)

    @staticmethod
    @abstractmethod
    def split(text: str) -> list[str]:
        """The tokens of ``text``."""

    @staticmethod
    @abstractmethod
    def join(tokens: list[str]) -> str:
        """Undo ``split``."""

    @staticmethod
    @abstractmethod
    def label(token: str) -> str:
        """``token`` as shown to people."""

    def __len__(self) -> int:
        return len(self._vocab.itos)

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without BOS and EOS."""
        known = self._vocab.stoi.get  # indexing would insert the unknown word into the vocabulary
        return [known(token, UNK) for token in self.split(text)]

    def _text(self, ids: list[int]) -> str:
        return self.join([self._vocab.itos[index] for index in ids])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One label for each id."""
        return [self.label(self._vocab.itos[index]) for index in ids]

    def to_json(self) -> Mapping[str, Any]:
        """The kind, and the count of each token; the order of the ids follows from the counts."""
        tokens = self._vocab.itos[len(SPECIALS) :]
        return {"kind": self.kind, "counts": {token: self._vocab.freqs[token] for token in tokens}}


class WordVocabulary(CountedVocabulary):
    """Words and signs of punctuation; a mark on the token says that no space stood before it."""

    kind = "words"
    split = staticmethod(mark_words)
    join = staticmethod(join_words)
    label = staticmethod(unmarked)


class CharacterVocabulary(CountedVocabulary):
    """Single characters."""

    kind = "characters"

    @staticmethod
    def split(text: str) -> list[str]:
        """The characters of ``text``."""
        return list(text)

    @staticmethod
    def join(tokens: list[str]) -> str:
        """Undo ``split``."""
        return "".join(tokens)

    @staticmethod
    def label(token: str) -> str:
        """``token``, with a space made visible."""
        return "▁" if token == " " else token
