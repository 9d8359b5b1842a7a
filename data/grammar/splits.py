"""Splits of the embedded corpus, with gold links between the words of a pair."""

import random
from typing import NamedTuple

from .english import english
from .german import german
from .sampling import Sampler
from .trees import Sentence, Token


class AlignedPair(NamedTuple):
    """An English sentence, its German translation, and the gold links between their words."""

    src: str
    tgt: str
    links: str
    """Pharaoh format: "i-j" links source word i to target word j, counted from 0 over ``split_words``."""


SHORT = (4, 25)
LONG = (26, 40)
"""Bounds, inclusive, on the number of words per sentence; punctuation is not counted."""


def embedded_splits(
    *, seed: int = 1, train: int = 20_000, valid: int = 500, test: int = 1_000, test_long: int = 500
) -> dict[str, list[AlignedPair]]:
    """Generate the splits of the embedded corpus, a function of the arguments alone.

    No English and no German sentence occurs twice in the corpus. The sentences of ``test_long`` have 26-40
    words, all others 4-25; they come from the same rules and the same lexicon.

    Args:
        seed: seed of the generator.
        train: number of pairs in the split of this name; likewise the other three.
        valid: see ``train``.
        test: see ``train``.
        test_long: see ``train``.

    Returns:
        The pairs of each split.
    """
    rng = random.Random(seed)
    seen: set[str] = set()
    sizes = {
        "test": (test, SHORT),
        "test_long": (test_long, LONG),
        "valid": (valid, SHORT),
        "train": (train, SHORT),
    }
    splits = {name: _unseen_pairs(rng, size, bounds, seen) for name, (size, bounds) in sizes.items()}
    return {name: splits[name] for name in ("train", "valid", "test", "test_long")}


def realise(tree: Sentence) -> AlignedPair:
    """Render a tree in both languages and link the words that realise the same part of it."""
    return _pair(english(tree), german(tree))


def _unseen_pairs(
    rng: random.Random, size: int, bounds: tuple[int, int], seen: set[str]
) -> list[AlignedPair]:
    """Draw ``size`` pairs within ``bounds`` with sentences that are not in ``seen``, and add them to it."""
    pairs: list[AlignedPair] = []
    while len(pairs) < size:
        tree = Sampler(rng, long=bounds == LONG).sentence()
        src, tgt = english(tree), german(tree)
        if not all(bounds[0] <= _count_words(side) <= bounds[1] for side in (src, tgt)):
            continue
        pair = _pair(src, tgt)
        if pair.src not in seen and pair.tgt not in seen:
            seen.update((pair.src, pair.tgt))
            pairs.append(pair)
    return pairs


def _count_words(tokens: list[Token]) -> int:
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
