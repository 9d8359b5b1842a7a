"""The splits of the embedded corpus, and the gold links between the words of a pair."""

import random
from typing import NamedTuple

from .english import english
from .german import german
from .sampling import Sampler
from .trees import Sentence, Token


class AlignedPair(NamedTuple):
    """An English text, its German, and the gold links between their words.

    ``links`` is in Pharaoh format, "i-j" from source word i to target word j, counted from 0 over the
    tokens of ``words.split_words``, signs of punctuation included.
    """

    src: str
    tgt: str
    links: str


SHORT = (4, 25)
LONG = (26, 40)
"""Bounds on the words of both sides, punctuation not counted."""


def embedded_splits(
    *, seed: int = 1, train: int = 20_000, valid: int = 500, test: int = 1_000, test_long: int = 500
) -> dict[str, list[AlignedPair]]:
    """Write the splits of the embedded corpus, a function of the arguments alone.

    No English and no German sentence stands in it twice. The sentences of ``test_long`` (26-40 words) are
    made by the same rules from the same words as the others (4-25 words); there is just more in them.
    """
    rng = random.Random(seed)
    seen: set[str] = set()
    sizes = {
        "test": (test, SHORT),
        "test_long": (test_long, LONG),
        "valid": (valid, SHORT),
        "train": (train, SHORT),
    }
    made = {name: _fresh(rng, size, bounds, seen) for name, (size, bounds) in sizes.items()}
    return {name: made[name] for name in ("train", "valid", "test", "test_long")}


def realise(tree: Sentence) -> AlignedPair:
    """Say a tree in both languages and link the words that realise the same part of it."""
    return _pair(english(tree), german(tree))


def _fresh(rng: random.Random, size: int, bounds: tuple[int, int], seen: set[str]) -> list[AlignedPair]:
    """Draw ``size`` pairs within the bounds whose sides are not yet in ``seen``, and add them to it."""
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
    places: dict[tuple[int, str], list[int]] = {}
    for j, token in enumerate(tgt):
        for tag in token.tags:
            places.setdefault(tag, []).append(j)
    links = {(i, j) for i, token in enumerate(src) for tag in token.tags for j in places.get(tag, ())}
    return AlignedPair(_text(src), _text(tgt), " ".join(f"{i}-{j}" for i, j in sorted(links)))


def _text(tokens: list[Token]) -> str:
    """Join tokens into a sentence: signs attached, first letter capital."""
    text = "".join(token.text if token.text in ",.?" else " " + token.text for token in tokens).strip()
    return text[0].upper() + text[1:]
