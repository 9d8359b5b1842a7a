"""Sampled segmentations (BPE dropout, unigram): a training split segmented anew for each epoch.

SentencePiece can sample too, but mixes four random bytes of each process into its generator (since 0.2.3; see
Abseil's ``seed_material.cc``), so that the same seed draws otherwise in a resumed run or another process. Its
BPE drops a merge for good where the paper draws again after each merge. Here, Python's generator gives the
same draws everywhere.
"""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate, chain
from math import exp, inf, log
from operator import add
from random import Random

import numpy as np

from data.encode import CHUNK_PAIRS, EncodedSplit, Ints, Sequences
from data.vocabulary import SPACE, SUBWORD_KINDS, SubwordVocabulary, Vocabulary, VocabularyPair
from data.workers import map_blocks, worker_count

WORD = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
"""A word with the spaces before it, or final spaces; no piece crosses its ends."""
MAX_WORDS = 50_000
"""Words whose pieces stay in memory; 100 MB."""
UNKNOWN_PENALTY = 10.0
"""How far below the lowest score a character without a piece lies, as in SentencePiece."""


class SubwordSampler:
    """Random segmentations with one vocabulary.

    Of a "bpe" vocabulary, every possible merge is dropped with probability ``strength`` at each step, and the
    first of the others in the order of the vocabulary is done, until none is left (Provilkov et al. 2020,
    algorithm 1, https://arxiv.org/abs/1910.13267). Of a "unigram" vocabulary, the probability of a
    segmentation is proportional to P(segmentation) ** ``strength`` (Kudo 2018, section 3.2, with l =
    infinity, https://arxiv.org/abs/1804.10959).

    Raises:
        ValueError: a vocabulary of another kind, or a strength that is not between 0 and 1.
    """

    def __init__(self, vocabulary: Vocabulary, strength: float) -> None:
        if not isinstance(vocabulary, SubwordVocabulary):
            kinds = " or ".join(SUBWORD_KINDS)
            raise ValueError(f"subword sampling needs a {kinds} vocabulary, found {vocabulary.kind}")
        if not 0 < strength < 1:
            raise ValueError(f"the strength of subword sampling must be between 0 and 1, found {strength}")
        self._vocabulary, self._strength = vocabulary, strength
        self._scores = vocabulary.scores()
        self._lowest = min(self._scores.values(), default=0.0) - UNKNOWN_PENALTY
        self._longest = max(map(len, self._scores), default=1)
        self._ids = lru_cache(MAX_WORDS)(vocabulary.piece_ids)
        self._choices = lru_cache(MAX_WORDS)(self._find_choices)
        self._pieces = {"bpe": self._merge, "unigram": self._draw_pieces}[vocabulary.kind]

    def __reduce__(self) -> tuple[type["SubwordSampler"], tuple[Vocabulary, float]]:
        """Copy to another process without the words."""
        return SubwordSampler, (self._vocabulary, self._strength)

    def sample(self, sentences: Sequence[Sequence[int]], seeds: Iterable[int]) -> list[list[int]]:
        """Draw a segmentation of each sentence from its seed and text; returns ids of the same texts."""
        generator, result = Random(), []
        for text, seed in zip(self._vocabulary.marked_texts(sentences), seeds, strict=True):
            generator.seed(seed)
            pieces = chain.from_iterable(self._pieces(word, generator) for word in WORD.findall(text))
            result.append(list(chain.from_iterable(map(self._ids, pieces))))
        return result

    def _merge(self, word: str, generator: Random) -> list[str]:
        # Only the draws that decide are made.
        symbols, scores = list(word), self._scores
        while True:
            best, first = -inf, -1
            for position, pair in enumerate(map(add, symbols, symbols[1:])):
                if scores.get(pair, -inf) > best and generator.random() >= self._strength:
                    best, first = scores[pair], position
            if first < 0:
                return symbols
            symbols[first : first + 2] = [symbols[first] + symbols[first + 1]]

    def _draw_pieces(self, word: str, generator: Random) -> Iterator[str]:
        start, choices = 0, self._choices(word)
        while start < len(word):
            ends, cumulative = choices[start]
            end = ends[bisect(cumulative, generator.random() * cumulative[-1], 0, len(ends) - 1)]
            yield word[start:end]
            start = end

    def _find_choices(self, word: str) -> list[tuple[list[int], list[float]]]:
        """Return the ends of the pieces at each position, with their cumulative weights."""
        # The weights of all continuations are summed from the end of the word to its start.
        totals = [0.0] * (len(word) + 1)  # logarithms of the sums
        choices = []
        for start in reversed(range(len(word))):
            limit = min(len(word), start + self._longest)
            ends = [
                start + 1,
                *(end for end in range(start + 2, limit + 1) if word[start:end] in self._scores),
            ]
            scores = [self._scores.get(word[start:end], self._lowest) for end in ends]
            weights = [self._strength * score + totals[end] for score, end in zip(scores, ends, strict=True)]
            highest = max(weights)
            cumulative = list(accumulate(exp(weight - highest) for weight in weights))
            totals[start] = highest + log(cumulative[-1])
            choices.append((ends, cumulative))
        return choices[::-1]


# A training split whose text is segmented anew for each epoch.


PAIRS_PER_WORKER = 5_000
"""Pairs for which a worker is worth its start."""

Block = tuple[Ints, Sequences, Sequences]
"""Rows, sources and targets of some pairs."""


@dataclass(kw_only=True)
class SampledSplit:
    """A split with random segmentations, functions of (text, vocabulary, seed, epoch, row) alone.

    The text comes from the ids, so that a process that reads no text can draw as well.
    """

    split: EncodedSplit
    vocabularies: VocabularyPair
    strength: float
    seed: int
    """Seed of the draws, together with the epoch and the index of the pair in the corpus."""
    max_tokens: int
    """Upper bound on ids per side without EOS; a longer side keeps its first segmentation."""

    def __post_init__(self) -> None:
        """Build the samplers, one for a joint vocabulary."""
        src = SubwordSampler(self.vocabularies.src, self.strength)
        joint = self.vocabularies.joint
        self._samplers = src, src if joint else SubwordSampler(self.vocabularies.tgt, self.strength)
        self._last: tuple[int, EncodedSplit] | None = None

    def with_seed(self, seed: int) -> "SampledSplit":
        """Return the same split with other draws."""
        return replace(self, seed=seed)

    def epoch(self, epoch: int) -> EncodedSplit:
        """Return the pairs as segmented in an epoch, in memory; the last epoch is cached."""
        if self._last is None or self._last[0] != epoch:
            self._last = None  # frees its memory
            workers = max(1, min(worker_count(), len(self.split) // PAIRS_PER_WORKER))
            sample = partial(_sample_block, self._samplers, self.max_tokens, self.seed << 64 | epoch)
            drawn = map_blocks(sample, self._blocks(), workers=workers)
            src, tgt = map(Sequences.concatenate, zip(*drawn, strict=True))
            self._last = (epoch, replace(self.split, src=src, tgt=tgt, folder=None))
        return self._last[1]

    def _blocks(self) -> Iterator[Block]:
        for start in range(0, len(self.split), CHUNK_PAIRS):
            indices = np.arange(start, min(start + CHUNK_PAIRS, len(self.split)))
            yield self.split.rows[indices], self.split.src.take(indices), self.split.tgt.take(indices)


def _sample_block(
    samplers: tuple[SubwordSampler, SubwordSampler], max_tokens: int, seed: int, block: Block
) -> list[Sequences]:
    rows, *sides = block
    result = []
    for side, (sampler, sequences) in enumerate(zip(samplers, sides, strict=True)):
        sentences = [ids.tolist() for ids in np.split(sequences.flat, sequences.offsets[1:-1])]
        seeds = ((seed << 64 | row) << 1 | side for row in rows.tolist())
        pairs = zip(sentences, sampler.sample(sentences, seeds), strict=True)
        flat, offsets = Sequences.of([new if len(new) <= max_tokens else old for old, new in pairs])
        result.append(Sequences(flat.astype(sequences.flat.dtype), offsets))
    return result
