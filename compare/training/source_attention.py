"""Has attention found the source? Its mass on the links of IBM model 1, logged at each validation.

The loss shows late, or never, that a model attends to the wrong words: it goes on learning as a language
model.

References:
- Brown et al. 1993, The Mathematics of Statistical Machine Translation: Parameter Estimation. Computational
  Linguistics 19(2), section 4.1: model 1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from compare.protocol import EncoderDecoder, attends_to_source
from data.batches import make_batch
from data.encode import EncodedSplit, Ints, Sequences

PAIRS = 20_000
"""Training pairs, the first ones, of which the shortest teach the translations of words."""
CELLS = 2_000_000
"""Most pairs of words in them: about 160 MB, which the peak memory of training on a processor hides."""
SENTENCES = 200
"""Validation sentences on which attention is measured, the first ones of suitable length."""
LENGTHS = 5, 100
"""Ids per sentence, least and most: the weights of all layers of a batch are in memory together."""
BATCH = 50
ITERATIONS = 5
SMOOTHING = 1e-3
CERTAIN = 0.5
"""Least probability of a link; other target words are not judged."""


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WordPairs:
    """Every target word of N pairs of sentences beside every source word of its sentence, and NULL, first.

    Cells are laid end to end: target word by target word, and for each NULL and then the source words.
    """

    starts: Ints
    word: Ints
    """The target word of each cell, counted through all sentences, (cells,)."""
    sources: Ints
    """Source id of each cell plus 1; NULL is 0."""
    targets: Ints

    @classmethod
    def of(cls, src: Sequences, tgt: Sequences) -> "WordPairs":
        """List the cells of the same N sentences in both languages."""
        sizes = np.repeat(src.lengths + 1, tgt.lengths)
        ends = np.cumsum(sizes)
        starts = ends - sizes
        word = np.repeat(np.arange(len(sizes)), sizes)
        position = np.arange(ends[-1] if len(ends) else 0) - starts[word]
        first = np.repeat(src.offsets[:-1], tgt.lengths)[word]
        ids = np.append(src.flat, 0)[first + position - 1]
        return cls(starts, word, np.where(position == 0, 0, ids + 1), tgt.flat[word])

    def keys(self, size: int) -> Ints:
        """Number each pair of words; ``size`` is above every target id."""
        return self.sources.astype(np.int64) * size + self.targets


@dataclass(frozen=True)
class Translations:
    """t(target | source) of the pairs of words that occur in a sentence together."""

    size: int
    keys: Ints
    probabilities: Floats

    @classmethod
    def learn(cls, src: Sequences, tgt: Sequences) -> "Translations":
        """Estimate by expectation maximisation from uniform probabilities (Brown et al. 1993, model 1)."""
        pairs, size = WordPairs.of(src, tgt), int(tgt.flat.max(initial=0)) + 1
        keys, kind = np.unique(pairs.keys(size), return_inverse=True)
        sources = keys // size
        probabilities = np.ones(len(keys))
        for _ in range(ITERATIONS):
            expected = cls._posterior(probabilities[kind], pairs)
            counts = np.bincount(kind, expected, len(keys)) + SMOOTHING
            probabilities = counts / np.bincount(sources, counts)[sources]
        return cls(size, keys, probabilities)

    def links(self, src: Sequences, tgt: Sequences) -> Ints:
        """Find the source word, from 0, of each target word of all sentences; -1 for NULL or in doubt."""
        pairs = WordPairs.of(src, tgt)
        keys = np.where(pairs.targets < self.size, pairs.keys(self.size), -1)
        index = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        probabilities = np.where(self.keys[index] == keys, self.probabilities[index], 0.0)
        posterior = self._posterior(probabilities, pairs)
        links = np.full(len(pairs.starts), -1)
        cells = np.flatnonzero((posterior >= CERTAIN) & (pairs.sources > 0))
        links[pairs.word[cells]] = cells - pairs.starts[pairs.word[cells]] - 1
        return links

    @staticmethod
    def _posterior(probabilities: Floats, pairs: WordPairs) -> Floats:
        total = np.add.reduceat(probabilities, pairs.starts)[pairs.word]
        posterior: Floats = np.divide(probabilities, total, out=np.zeros_like(probabilities), where=total > 0)
        return posterior


@dataclass(frozen=True)
class SourceAttention:
    """Measures of a model's attention to the source."""

    link_mass: float
    """Mean weight on the linked source word, of the head for which it is highest; 0 to 1."""
    chance_mass: float
    direction: float
    """Slope of that head's expected source position on the target position, both 0 to 1 in their sentence:
    about 1 reads forwards, below 0 backwards."""

    @property
    def finds_source(self) -> bool:
        """True if attention has more than twice the mass of uniform attention on linked words."""
        return self.link_mass > 2 * self.chance_mass


class AttentionProbe:
    """Measures attention on validation sentences, their targets given; its first call learns the links."""

    def __init__(self, train: EncodedSplit, valid: EncodedSplit) -> None:
        least, most = LENGTHS
        shorter = np.minimum(valid.src_lengths, valid.tgt_lengths)
        longer = np.maximum(valid.src_lengths, valid.tgt_lengths)
        self._rows = np.flatnonzero((shorter >= least) & (longer <= most))[:SENTENCES]
        self._train, self._valid = train, valid

    @cached_property
    def _links(self) -> list[Ints]:
        learned = short_pairs(self._train)
        table = Translations.learn(self._train.src.take(learned), self._train.tgt.take(learned))
        src, tgt = self._valid.src.take(self._rows), self._valid.tgt.take(self._rows)
        return np.split(table.links(src, tgt), tgt.offsets[1:-1])

    @torch.inference_mode()
    def __call__(self, model: EncoderDecoder[Any, Any], device: torch.device) -> SourceAttention | None:
        """Measure a model in evaluation mode; None without attention to a source, or without any link."""
        masses: list[Floats] = []  # one array per sentence, (H, links)
        chances: list[float] = []
        slopes: list[Floats] = []  # (H,)
        for start in range(0, len(self._rows), BATCH):
            batch = make_batch(self._valid, self._rows[start : start + BATCH]).to(device)
            layers = model.attention(batch.src, batch.src_mask, batch.tgt_in)
            heads = [weights for name, weights in layers.items() if attends_to_source(name)]
            if not heads:
                return None
            sentences = torch.cat(heads, dim=1).float().cpu().numpy()  # (B, H, T, S)
            sizes = batch.src_lengths.tolist()
            for weights, size, links in zip(
                sentences, sizes, self._links[start : start + BATCH], strict=True
            ):
                linked = np.flatnonzero(links >= 0)
                masses.append(weights[:, linked, links[linked]])
                chances += [1 / size] * len(linked)
                slopes.append(_slopes(weights[:, : len(links), :size]))
        if not chances:
            return None
        mass = np.concatenate(masses, axis=1).mean(axis=1)
        best = int(mass.argmax())
        slope = np.mean(slopes, axis=0)[best]
        return SourceAttention(float(mass[best]), sum(chances) / len(chances), float(slope))


def short_pairs(train: EncodedSplit) -> Ints:
    """Choose the shortest of the first ``PAIRS`` pairs, at least one, as many as ``CELLS`` allows; rising."""
    cells = (train.src_lengths[:PAIRS] + 1) * train.tgt_lengths[:PAIRS]
    shortest = np.argsort(cells, kind="stable")
    number = np.searchsorted(np.cumsum(cells[shortest]), CELLS, side="right")
    return np.sort(shortest[: max(1, number)])


def _slopes(weights: Floats) -> Floats:
    """Fit lines to expected source over target positions, both from 0 to 1, for (H, T, S): (H,)."""
    target = np.linspace(-0.5, 0.5, weights.shape[1])
    expected = weights @ np.linspace(0, 1, weights.shape[2])  # (H, T)
    return expected @ target / (target @ target)
