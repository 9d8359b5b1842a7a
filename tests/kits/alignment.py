"""Models whose attention is known by hand, and a corpus of sentences read backwards, links and all."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from compare.analysis.alignment.gold import Gold, corpus_gold
from compare.config.sections import DecodeConfig
from compare.decoding.translator import Translator
from data.corpus import Corpus, Pairs
from data.vocabulary import VocabularyPair, build_vocabulary

JUNK = 77.0
"""What stands in rows and columns of padding and of the ends of sentence, where nobody may look."""
SENTENCES = ("a b c", "d e", "f a b d", "c")
CPU = torch.device("cpu")


SourceIndex = Callable[[int, int], int]


class FixedAttention(nn.Module):
    """Attends as ``looks`` say by layer and head: of n source words, which one for target word t.

    A head that is None gives all n words the same weight.
    """

    def __init__(self, looks: Mapping[str, Sequence[SourceIndex | None]]) -> None:
        super().__init__()
        self.looks = looks

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        found = {"encoder.0": torch.full((len(src), 1, src.size(1), src.size(1)), JUNK)}
        for layer, looks in self.looks.items():
            found[layer] = torch.full((len(src), len(looks), tgt_in.size(1), src.size(1)), JUNK)
            for row, n in enumerate((src_mask.sum(1) - 1).tolist()):
                for head, look in enumerate(looks):
                    found[layer][row, head, :n, :n] = 1 / n if look is None else 0
                    for t in range(n if look else 0):
                        found[layer][row, head, t, look(n, t)] = 1
        return found


def backwards(n: int, t: int) -> int:
    return n - 1 - t


def forwards(n: int, t: int) -> int:
    return t


def fixed_attention(looks: Mapping[str, Sequence[SourceIndex | None]], batch_tokens: int = 100) -> Translator:
    vocabulary = build_vocabulary("words", SENTENCES, size=20)
    config = DecodeConfig(batch_tokens=batch_tokens)
    return Translator(FixedAttention(looks), VocabularyPair(vocabulary, vocabulary), config, CPU)


def reversed_pairs(lines: tuple[str, ...]) -> Pairs:
    """Pairs whose target is the source back to front, and their links."""
    words = [line.split() for line in lines]
    links = tuple(" ".join(f"{i}-{len(line) - 1 - i}" for i in range(len(line))) for line in words)
    return Pairs(lines, tuple(" ".join(reversed(line)) for line in words), links)


def reversed_corpus(valid: tuple[str, ...], test: tuple[str, ...]) -> Corpus:
    splits = {
        "valid": reversed_pairs(valid),
        "test": reversed_pairs(test),
        "test_b": reversed_pairs(test[:1]),
    }
    return Corpus(name="made", src_lang="en", tgt_lang="de", splits=splits)


def reversed_gold(*lines: str) -> Gold:
    return corpus_gold(reversed_corpus(("a",), lines), "test")
