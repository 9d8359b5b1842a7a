"""Generator of the embedded corpus: English-German pairs with gold word alignments, from a grammar.

``sampling`` draws a syntax tree (``trees``) over the ``lexicon``; ``english`` and ``german`` render it. This
module links the words that realise the same part of the tree and builds the corpus; ``contrasts`` makes pairs
of a right and a wrong translation. Nothing depends on the platform or on hash seeds.
"""

import random
from typing import NamedTuple

from data.grammar.english import english
from data.grammar.german import german
from data.grammar.sampling import Sampler, ShortSampler
from data.grammar.trees import Sentence, Token


class AlignedPair(NamedTuple):
    """An English sentence, its German translation, and the gold links between their words."""

    src: str
    tgt: str
    links: str
    """Pharaoh format: "i-j" links source word i to target word j, counted from 0 over ``split_words``."""


class Grammar(NamedTuple):
    """Sampler of a variety of the grammar, and bounds, inclusive, on the words of either language."""

    sampler: type[Sampler]
    usual: tuple[int, int]
    long: tuple[int, int]


GRAMMARS = {
    "full": Grammar(Sampler, (4, 25), (26, 40)),
    "short": Grammar(ShortSampler, (4, 15), (16, 25)),
}


def embedded_splits(
    *,
    seed: int = 1,
    train: int = 20_000,
    valid: int = 500,
    test: int = 1_000,
    test_long: int = 500,
    grammar: str = "full",
) -> dict[str, list[AlignedPair]]:
    """Generate the splits of the embedded corpus, a function of the arguments alone.

    No English and no German sentence occurs twice in the corpus. The sentences of ``test_long`` are longer
    than all others; they come from the same rules and the same lexicon. ``grammar`` is one of ``GRAMMARS``.
    """
    rng = random.Random(seed)
    seen: set[str] = set()
    sizes = {"test": test, "test_long": test_long, "valid": valid, "train": train}
    splits = {
        name: _unseen_pairs(rng, size, GRAMMARS[grammar], seen, long=name == "test_long")
        for name, size in sizes.items()
    }
    return {name: splits[name] for name in ("train", "valid", "test", "test_long")}


def realise(tree: Sentence) -> AlignedPair:
    """Render a tree in both languages and link the words that realise the same part of it."""
    return _pair(english(tree), german(tree))


def _unseen_pairs(
    rng: random.Random, size: int, grammar: Grammar, seen: set[str], *, long: bool
) -> list[AlignedPair]:
    shortest, longest = grammar.long if long else grammar.usual
    pairs: list[AlignedPair] = []
    while len(pairs) < size:
        tree = grammar.sampler(rng, long=long).sentence()
        src = english(tree)
        if not shortest <= count_words(src) <= longest:  # before the German, which takes as long
            continue
        tgt = german(tree)
        if not shortest <= count_words(tgt) <= longest:
            continue
        pair = _pair(src, tgt)
        if pair.src not in seen and pair.tgt not in seen:
            seen.update((pair.src, pair.tgt))
            pairs.append(pair)
    return pairs


def count_words(tokens: list[Token]) -> int:
    """Count the tokens that are no punctuation."""
    return sum(token.text not in ",.?" for token in tokens)


def _pair(src: list[Token], tgt: list[Token]) -> AlignedPair:
    tgt_positions: dict[tuple[int, str], list[int]] = {}
    for j, token in enumerate(tgt):
        for tag in token.tags:
            tgt_positions.setdefault(tag, []).append(j)
    links = {(i, j) for i, token in enumerate(src) for tag in token.tags for j in tgt_positions.get(tag, ())}
    return AlignedPair(sentence_text(src), sentence_text(tgt), " ".join(f"{i}-{j}" for i, j in sorted(links)))


def sentence_text(tokens: list[Token]) -> str:
    """Join tokens to a sentence: no space before punctuation, first letter upper case."""
    text = "".join(token.text if token.text in ",.?" else " " + token.text for token in tokens).strip()
    return text[0].upper() + text[1:]
