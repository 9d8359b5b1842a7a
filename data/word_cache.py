"""Encoding of many lines from the ids of their words, each of which is encoded once.

Most words of a text are repeated ones. A line whose words do not depend on their neighbours is put together
from their ids in NumPy, without an object per token; the other lines are encoded whole.
"""

from collections.abc import Sequence
from itertools import compress, islice

import numpy as np

from data.sequences import Ints, Sequences
from data.symbols import Vocabulary

MAX_WORDS = 400_000
"""Words that stay in a cache: the first ones, among which are the frequent ones; about 80 MB."""
LINE_END = 0
"""Number that stands for the end of a line."""


class WordCache:
    """Ids of the words of one vocabulary; it fills while lines are encoded.

    Args:
        vocabulary: the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._numbers = _Numbers({"\n": LINE_END})
        self._ids = Sequences.of([[]])  # of each word, by its number
        self._needs_line = np.zeros(1, dtype=np.bool_)  # by number of the word

    def __reduce__(self) -> tuple[type["WordCache"], tuple[Vocabulary]]:
        """Copy to another process without the words."""
        return WordCache, (self._vocabulary,)

    def encode(self, lines: Sequence[str]) -> Sequences:
        """Encode lines as ``Vocabulary.encode`` does.

        Args:
            lines: the text, without line ends.
        """
        text = "\n".join(lines)
        has_line_feed = text.count("\n") != len(lines) - 1  # in a line, as a text in memory may have it
        if has_line_feed or not self._vocabulary.encodes_words:
            return Sequences.of(self._vocabulary.encode_all(lines))
        words = self._find(text)
        line = np.cumsum(words == LINE_END)  # that of each word; a line end belongs to the line after it
        is_whole = np.zeros(len(lines), dtype=np.bool_)
        is_whole[line[self._needs_line[words]]] = True
        whole = Sequences.of(self._vocabulary.encode_all(list(compress(lines, is_whole.tolist()))))
        # A line that is encoded whole becomes one word, with a number after those of the cache.
        kept = (words != LINE_END) & ~is_whole[line]
        first = is_whole[line] & (np.diff(line, prepend=-1) > 0)
        words[first] = len(self._needs_line) + np.arange(len(whole.lengths))
        kept |= first
        ids = self._ids.joined(whole).take(words[kept])
        self._trim()
        return Sequences(ids.flat, ids.offsets[np.searchsorted(line[kept], np.arange(len(lines) + 1))])

    def _find(self, text: str) -> Ints:
        """Return the numbers of the words and line ends of ``text``; new words are added to the cache."""
        words = text.replace("\n", " \n ").split(" ")
        numbers = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
        if new := list(islice(self._numbers, len(self._needs_line), None)):
            ids = self._vocabulary.encode_words(new)
            self._ids = self._ids.joined(Sequences.of([each or [] for each in ids]))
            self._needs_line = np.append(self._needs_line, [each is None for each in ids])
        return numbers

    def _trim(self) -> None:
        """Forget the last words beyond ``MAX_WORDS``."""
        while len(self._numbers) > MAX_WORDS:
            self._numbers.popitem()
        size = len(self._numbers)
        self._ids = Sequences(self._ids.flat[: self._ids.offsets[size]], self._ids.offsets[: size + 1])
        self._needs_line = self._needs_line[:size]


class _Numbers(dict[str, int]):
    """Numbers of words, in order of their first occurrence."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number
