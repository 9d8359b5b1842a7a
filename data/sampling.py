"""Sampled segmentations (BPE dropout, unigram): a training split segmented anew for each epoch."""

import re
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp, log, log1p
from random import Random
from typing import ClassVar, NamedTuple

import numpy as np

from data.encode import CHUNK_PAIRS, EncodedSplit, Ints, Sequences
from data.vocabulary import SPACE, SubwordVocabulary, Vocabulary, VocabularyPair
from data.workers import map_blocks, worker_count

# Random segmentations of a text into the pieces of a SentencePiece vocabulary, for training.
#
# BPE-dropout (Provilkov et al. 2020, https://arxiv.org/abs/1910.13267) for a BPE vocabulary, unigram sampling
# (Kudo 2018, https://arxiv.org/abs/1804.10959) for a unigram vocabulary. Words are segmented one by one,
# because no piece extends over two of them.
#
# SentencePiece can sample too, and about five times as fast. But its BPE drops a merge for good where the
# paper draws again after each merge, which gives twice as many additional pieces at the same probability
# (Multi30k, p = 0.1: 40% instead of 21%). And its generator cannot be seeded for each sentence before version
# 0.2.3, in which a seed gives other draws than before. Here, Python's generator gives the same draws
# everywhere.


WORD = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
"""A word with the spaces before it, or spaces at the end of the text."""
MAX_WORDS = 50_000
"""Words whose preparation stays in memory: the first ones, among which are the frequent ones; 100 MB."""
UNKNOWN_PENALTY = 10.0
"""SentencePiece's: the score of a character without a piece is so much lower than the lowest."""

Draw = Callable[[], float]
"""Draws a number from [0, 1)."""


class SubwordSampler(ABC):
    """Random segmentations with one vocabulary.

    Args:
        vocabulary: a vocabulary of the sampler's kind.
        strength: the paper's p or alpha, more than 0 and less than 1.
    """

    kind: ClassVar[str]
    """Kind of the vocabulary."""

    def __init__(self, vocabulary: SubwordVocabulary, strength: float) -> None:
        self._vocabulary, self._strength = vocabulary, strength
        self._scores = vocabulary.scores()

    def __reduce__(self) -> tuple[type["SubwordSampler"], tuple[SubwordVocabulary, float]]:
        """Copy to another process without the words."""
        return type(self), (self._vocabulary, self._strength)

    def sample(self, sentences: Sequence[Sequence[int]], seeds: Iterable[int]) -> list[list[int]]:
        """Draw a segmentation of each sentence.

        Args:
            sentences: ids of each sentence, in any segmentation.
            seeds: a seed per sentence; the segmentation depends on it and on the text alone.

        Returns:
            Ids of the same texts.
        """
        generator, result = Random(), []
        for text, seed in zip(self._vocabulary.marked_texts(sentences), seeds, strict=True):
            generator.seed(seed)
            draw = generator.random
            result.append([index for word in WORD.findall(text) for index in self._sample_word(word, draw)])
        return result

    @abstractmethod
    def _sample_word(self, word: str, draw: Draw) -> Sequence[int]:
        """Draw the ids of a word, which has its spaces as ``SPACE``."""


class BpeDropout(SubwordSampler):
    """Merges of BPE, each of which is dropped with probability p (Provilkov et al. 2020, algorithm 1).

    In each step every possible merge is dropped with probability p, and the first of the others in the order
    of the vocabulary is done; the word is finished once there is none. Only the draws that decide are made:
    the number of merges dropped before one is kept, and the number of steps whose first merge is kept, have
    geometric distributions.
    """

    kind = "bpe"

    def __init__(self, vocabulary: SubwordVocabulary, strength: float) -> None:
        super().__init__(vocabulary, strength)
        self._log_dropped, self._log_kept = log(strength), log1p(-strength)
        self._words: dict[str, tuple[list[int], list[int]]] = {}

    def _sample_word(self, word: str, draw: Draw) -> Sequence[int]:
        positions, ids = self._words.get(word) or self._encode(word)
        # The steps before the first one whose first merge is dropped are those without dropout.
        steps = min(len(positions), log(1 - draw()) / self._log_kept)
        if steps == len(positions):
            return ids
        symbols = list(word)
        for position in positions[: int(steps)]:
            _merge(symbols, position)
        dropped = 1
        while True:
            merges = self._merges(symbols)
            dropped += int(min(len(merges), log(1 - draw()) / self._log_dropped))
            if dropped >= len(merges):
                return self._vocabulary.piece_ids(symbols)
            _merge(symbols, merges[dropped])
            dropped = 0

    def _encode(self, word: str) -> tuple[list[int], list[int]]:
        """Return the positions of the merges of a word without dropout, in order, and its ids."""
        symbols, positions = list(word), []
        while merges := self._merges(symbols):
            positions.append(merges[0])
            _merge(symbols, merges[0])
        encoded = positions, self._vocabulary.piece_ids(symbols)
        if len(self._words) < MAX_WORDS:
            self._words[word] = encoded
        return encoded

    def _merges(self, symbols: Sequence[str]) -> list[int]:
        """Return the positions of the possible merges, the first to be done first."""
        pairs = enumerate(map(str.__add__, symbols, symbols[1:]))
        merges = sorted((-self._scores[pair], position) for position, pair in pairs if pair in self._scores)
        return [position for _, position in merges]


def _merge(symbols: list[str], position: int) -> None:
    symbols[position : position + 2] = [symbols[position] + symbols[position + 1]]


class _Piece(NamedTuple):
    """A piece that a segmentation may continue with."""

    ids: list[int]
    """Its id; several where the characters are written as bytes."""
    length: int
    """Number of characters."""
    score: float
    """Log-probability."""


class _Choice(NamedTuple):
    """The pieces that a segmentation may continue with at one position of a word."""

    cumulative: list[float]
    """Cumulative weights of the pieces, up to a factor."""
    pieces: list[_Piece]


class UnigramSampling(SubwordSampler):
    """Draws from all segmentations of a word, with probabilities as P(segmentation) ** alpha.

    This is Kudo 2018, section 3.2, without the limit to the l best segmentations (l = infinity there): the
    weights of all ways to continue are summed from the end of the word to its start, and pieces are drawn
    from its start to its end.
    """

    kind = "unigram"

    def __init__(self, vocabulary: SubwordVocabulary, strength: float) -> None:
        super().__init__(vocabulary, strength)
        self._pieces = {
            piece: _Piece(vocabulary.piece_ids([piece]), len(piece), score)
            for piece, score in self._scores.items()
        }
        self._longest = max(map(len, self._pieces), default=1)
        self._unknown = min(self._scores.values(), default=0.0) - UNKNOWN_PENALTY
        self._words: dict[str, list[_Choice]] = {}

    def _sample_word(self, word: str, draw: Draw) -> Sequence[int]:
        choices = self._words.get(word) or self._find_choices(word)
        ids: list[int] = []
        position = 0
        while position < len(word):
            cumulative, pieces = choices[position]
            piece = pieces[bisect(cumulative, draw() * cumulative[-1], 0, len(pieces) - 1)]
            ids += piece.ids
            position += piece.length
        return ids

    def _find_choices(self, word: str) -> list[_Choice]:
        """Return the choice at each position of a word."""
        total = [0.0] * (len(word) + 1)  # logarithm of the sum of the weights from each position on
        choices = []
        for start in reversed(range(len(word))):
            pieces = self._pieces_at(word, start)
            weights = [self._strength * piece.score + total[start + piece.length] for piece in pieces]
            highest = max(weights)
            cumulative = list(accumulate(exp(weight - highest) for weight in weights))
            total[start] = highest + log(cumulative[-1])
            choices.append(_Choice(cumulative, pieces))
        choices.reverse()
        if len(self._words) < MAX_WORDS:
            self._words[word] = choices
        return choices

    def _pieces_at(self, word: str, start: int) -> list[_Piece]:
        """Return the pieces at one position; a character without a piece is one, of bytes."""
        ends = range(start + 1, min(len(word), start + self._longest) + 1)
        pieces = [self._pieces[word[start:end]] for end in ends if word[start:end] in self._pieces]
        if not pieces or pieces[0].length > 1:
            pieces.insert(0, _Piece(self._vocabulary.piece_ids([word[start]]), 1, self._unknown))
        return pieces


SAMPLERS: dict[str, type[SubwordSampler]] = {each.kind: each for each in (BpeDropout, UnigramSampling)}
"""The sampler of each kind of vocabulary that has several segmentations of a text."""


def build_sampler(vocabulary: Vocabulary, strength: float) -> SubwordSampler:
    """Build the sampler for a vocabulary.

    Args:
        vocabulary: a SentencePiece vocabulary.
        strength: for "bpe" the probability p that a merge is dropped, 0.1 in the paper; for "unigram" the
            exponent alpha of the probabilities: the smaller, the more varied.

    Raises:
        ValueError: a vocabulary of another kind, or a strength that is not between 0 and 1.
    """
    if not isinstance(vocabulary, SubwordVocabulary):
        raise ValueError(
            f"subword sampling needs a vocabulary of {' or '.join(SAMPLERS)}, found {vocabulary.kind}"
        )
    if not 0 < strength < 1:
        raise ValueError(f"the strength of subword sampling must be between 0 and 1, found {strength}")
    return SAMPLERS[vocabulary.kind](vocabulary, strength)


# A training split whose text is segmented anew for each epoch.


PAIRS_PER_WORKER = 5_000
"""Pairs for which a worker is worth its start; fewer are drawn in half a second."""

Block = tuple[int, Ints, Sequences, Sequences]
"""Number of the epoch, and of some pairs the rows, sources and targets."""
Sides = tuple[Sequences, Sequences]
"""Sources and targets."""


class SampledSplit:
    """A split with random segmentations, which are a function of (text, vocabulary, seed, epoch, row) alone.

    The text comes from the ids, so that a process that reads no text can draw as well. A side of a pair that
    would have more than ``max_tokens`` ids keeps those of the split.

    Args:
        split: the encoded pairs, which stay as they are.
        vocabularies: those that they were encoded with, "bpe" or "unigram".
        strength: as for ``data.sampling.build_sampler``.
        seed: seed of the draws, together with the epoch and the index of the pair in the corpus.
        max_tokens: upper bound on the ids per side, EOS not counted; that of ``encode_split``.

    Raises:
        ValueError: the vocabularies have one segmentation per text, or the strength is not possible.
    """

    def __init__(
        self,
        split: EncodedSplit,
        vocabularies: VocabularyPair,
        *,
        strength: float,
        seed: int,
        max_tokens: int,
    ) -> None:
        self.split, self.max_tokens = split, max_tokens
        src = build_sampler(vocabularies.src, strength)
        tgt = src if vocabularies.joint else build_sampler(vocabularies.tgt, strength)
        self._sampler = _PairSampler((src, tgt), seed, max_tokens)
        self._last: tuple[int, EncodedSplit] | None = None

    def with_seed(self, seed: int) -> "SampledSplit":
        """Return the same split with other draws."""
        other = copy(self)
        other._sampler, other._last = replace(self._sampler, seed=seed), None  # with the words that it knows
        return other

    def epoch(self, epoch: int) -> EncodedSplit:
        """Return the pairs as they are segmented in an epoch, in memory; the last one drawn is kept."""
        if self._last is None or self._last[0] != epoch:
            self._last = None  # frees its memory
            workers = max(1, min(worker_count(), len(self.split) // PAIRS_PER_WORKER))
            drawn = map_blocks(self._sampler, self._blocks(epoch), workers=workers)
            src, tgt = map(Sequences.concatenate, zip(*drawn, strict=True))
            self._last = (epoch, replace(self.split, src=src, tgt=tgt, folder=None))
        return self._last[1]

    def _blocks(self, epoch: int) -> Iterator[Block]:
        """Divide the pairs into blocks of at most ``CHUNK_PAIRS``."""
        for start in range(0, len(self.split), CHUNK_PAIRS):
            indices = np.arange(start, min(start + CHUNK_PAIRS, len(self.split)))
            sides = self.split.src.take(indices), self.split.tgt.take(indices)
            yield epoch, self.split.rows[indices], *sides


@dataclass(frozen=True)
class _PairSampler:
    """Random segmentations of the pairs of a block."""

    samplers: tuple[SubwordSampler, SubwordSampler]
    """Those of source and target, one and the same for a joint vocabulary."""
    seed: int
    max_tokens: int

    def __call__(self, block: Block) -> Sides:
        epoch, rows, *sides = block
        src, tgt = (self._sample(number, epoch, rows, side) for number, side in enumerate(sides))
        return src, tgt

    def _sample(self, side: int, epoch: int, rows: Ints, sequences: Sequences) -> Sequences:
        """Draw the sentences of one side, 0 for the source and 1 for the target."""
        given = [ids.tolist() for ids in np.split(sequences.flat, sequences.offsets[1:-1])]
        seeds = (((self.seed << 64 | epoch) << 64 | row) << 1 | side for row in rows.tolist())
        drawn = self.samplers[side].sample(given, seeds)
        limited = [new if len(new) <= self.max_tokens else old for old, new in zip(given, drawn, strict=True)]
        flat, offsets = Sequences.of(limited)
        return Sequences(flat.astype(sequences.flat.dtype), offsets)
