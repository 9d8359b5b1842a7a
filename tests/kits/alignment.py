"""Models with given attention weights, and corpora of reversed sentences with gold links."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from compare.analysis.gold_alignments import Gold, corpus_gold
from compare.config.sections import DecodeConfig
from compare.decoding.translator import Translator
from data.corpus import Corpus, Pairs
from data.vocabulary import VocabularyPair, build_vocabulary

JUNK = 77.0
"""Weight at padding and end-of-sentence positions, which must never be read."""
SENTENCES = ("a b c", "d e", "f a b d", "c")
CPU = torch.device("cpu")

SourceIndex = Callable[[int, int], int]
"""Returns the source word that target word t attends to in a sentence of n words, called as f(n, t)."""
Heads = Mapping[str, Sequence[SourceIndex | None]]
"""The heads of each layer by its name; a head that is None gives all words the same weight."""


class FixedAttention(nn.Module):
    """A model that attends as given by ``heads``."""

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.heads = heads

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        layers = {"encoder.0": torch.full((len(src), 1, src.size(1), src.size(1)), JUNK)}
        for layer, heads in self.heads.items():
            weights = torch.full((len(src), len(heads), tgt_in.size(1), src.size(1)), JUNK)
            for row, n in enumerate((src_mask.sum(1) - 1).tolist()):
                for head, source_index in enumerate(heads):
                    weights[row, head, :n, :n] = 1 / n if source_index is None else 0
                    for t in range(n if source_index else 0):
                        weights[row, head, t, source_index(n, t)] = 1
            layers[layer] = weights
        return layers


def backwards(n: int, t: int) -> int:
    return n - 1 - t


def forwards(n: int, t: int) -> int:
    return t


def fixed_attention(heads: Heads, batch_tokens: int = 100) -> Translator:
    """Return a translator whose model is ``FixedAttention(heads)``."""
    vocabulary = build_vocabulary("words", SENTENCES, size=20)
    config = DecodeConfig(batch_tokens=batch_tokens)
    return Translator(FixedAttention(heads), VocabularyPair(vocabulary, vocabulary), config, CPU)


def reversed_pairs(lines: tuple[str, ...]) -> Pairs:
    """Return pairs whose target is the reversed source, with their gold links."""
    sentences = [line.split() for line in lines]
    links = tuple(" ".join(f"{i}-{len(words) - 1 - i}" for i in range(len(words))) for words in sentences)
    return Pairs(lines, tuple(" ".join(reversed(words)) for words in sentences), links)


def reversed_corpus(valid: tuple[str, ...], test: tuple[str, ...]) -> Corpus:
    splits = {
        "valid": reversed_pairs(valid),
        "test": reversed_pairs(test),
        "test_b": reversed_pairs(test[:1]),
    }
    return Corpus(name="made", src_lang="en", tgt_lang="de", splits=splits)


def reversed_gold(*lines: str) -> Gold:
    return corpus_gold(reversed_corpus(("a",), lines), "test")
