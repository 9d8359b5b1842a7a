"""Vocabularies of the most frequent words or characters, stored in torchtext's ``Vocab``."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data.word_tokenizer import detokenize, surface_form, tokenize
from data.symbols import SPECIALS, UNK, Vocabulary


class CountedVocabulary(Vocabulary):
    """Vocabulary of counted tokens, in order of decreasing count, then of spelling; others become UNK.

    Args:
        counts: count of each token.
        size: upper bound on the number of ids, the specials included; None keeps all tokens.
        min_count: leave out tokens with a lower count.
    """

    def __init__(self, counts: Counter[str], *, size: int | None = None, min_count: int = 1) -> None:
        from torchtext.vocab import Vocab  # imported here: it imports all of torch

        limit = None if size is None else size - len(SPECIALS)
        self._vocab = Vocab(counts, max_size=limit, min_freq=min_count, specials=list(SPECIALS))

    @classmethod
    def build(cls, lines: Iterable[str], *, size: int, min_count: int) -> "CountedVocabulary":
        """Count the tokens of ``lines`` and build the vocabulary from them."""
        counts = Counter(token for line in lines for token in cls.tokenize(line))
        return cls(counts, size=size, min_count=min_count)

    @staticmethod
    @abstractmethod
    def tokenize(text: str) -> list[str]:
        """Split ``text`` into tokens."""

    @staticmethod
    @abstractmethod
    def detokenize(tokens: list[str]) -> str:
        """Undo ``tokenize``."""

    @staticmethod
    @abstractmethod
    def label(token: str) -> str:
        """Return the label of ``token`` in plots."""

    def __len__(self) -> int:
        return len(self._vocab.itos)

    def encode(self, text: str) -> list[int]:
        """Encode one line of text as ids, without BOS and EOS."""
        id_of = self._vocab.stoi.get  # indexing would insert the unknown word into the vocabulary
        return [id_of(token, UNK) for token in self.tokenize(text)]

    def _text(self, ids: list[int]) -> str:
        return self.detokenize([self._vocab.itos[index] for index in ids])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one label per id."""
        return [self.label(self._vocab.itos[index]) for index in ids]

    def labels(self, text: str) -> list[str]:
        """Return the labels of the tokens of ``text``, whether they are known or not."""
        return [self.label(token) for token in self.tokenize(text)]

    def to_json(self) -> Mapping[str, Any]:
        """Return the kind and the count of each token; the ids follow from the counts."""
        tokens = self._vocab.itos[len(SPECIALS) :]
        return {"kind": self.kind, "counts": {token: self._vocab.freqs[token] for token in tokens}}


class WordVocabulary(CountedVocabulary):
    """Vocabulary of the words and punctuation characters that ``data.word_tokenizer`` finds."""

    kind = "words"
    tokenize = staticmethod(tokenize)
    detokenize = staticmethod(detokenize)
    label = staticmethod(surface_form)

    @property
    def encodes_words(self) -> bool:
        """True: no token spans a space, and a JOINER depends on the part alone."""
        return True

    def encode_words(self, words: Sequence[str]) -> list[list[int] | None]:
        """Encode the parts of lines; none depends on its line."""
        return [self.encode(word) for word in words]


class CharacterVocabulary(CountedVocabulary):
    """Vocabulary of single characters."""

    kind = "characters"

    @staticmethod
    def tokenize(text: str) -> list[str]:
        """Split ``text`` into its characters."""
        return list(text)

    @staticmethod
    def detokenize(tokens: list[str]) -> str:
        """Undo ``tokenize``."""
        return "".join(tokens)

    @staticmethod
    def label(token: str) -> str:
        """Return ``token``; ▁ for a space, so that it is visible."""
        return "▁" if token == " " else token
