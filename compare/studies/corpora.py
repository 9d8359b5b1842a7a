"""Corpora of studies: sentences of the built-in grammar, sequences to copy, words and pairs to recall."""

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.files import write_atomically
from data.grammar import embedded_splits

Splits = Mapping[str, Iterable[tuple[str, str]]]
SYMBOLS = [chr(ord("a") + n) for n in range(26)]


def sentences(seed: int, *, longest: int, draws: Mapping[str, int], pairs: int | None = None) -> Splits:
    """Draw pairs of the grammar, and keep those whose source has at most ``longest`` words.

    ``draws`` are the pairs to draw for train, valid and, if there is to be one, test. Of the training pairs
    the first ``pairs`` are kept, or all; a ValueError says that fewer are left.
    """
    drawn = embedded_splits(
        seed=seed, train=draws["train"], valid=draws["valid"], test=draws.get("test", 1), test_long=1
    )
    short = {
        name: [(src, tgt) for src, tgt, *_ in drawn[name] if len(src.split()) <= longest] for name in draws
    }
    if len(short["train"]) < (pairs or 0):
        raise ValueError(f"only {len(short['train'])} of {pairs} training pairs are left: draw more")
    return short | {"train": short["train"][:pairs]}


def copies(seed: int, *, symbols: int, longest: int, train: int, valid: int) -> Splits:
    """Draw sequences of 1 to ``longest`` random symbols, each its own translation."""
    draw = random.Random(seed)
    return {
        name: [(line, line) for line in sequences(draw, symbols, _lengths(draw, longest, count))]
        for name, count in (("train", train), ("valid", valid))
    }


def first_words(seed: int, *, symbols: int, **sizes: Any) -> Splits:
    """Draw sequences of random words, whose translations are their first ones; sizes as for ``_by_split``."""
    draw = random.Random(seed)
    return {
        name: [(line, line[0]) for line in sequences(draw, symbols, lengths)]
        for name, lengths in _by_split(draw, **sizes).items()
    }


def key_values(seed: int, *, keys: int, values: int, **sizes: Any) -> Splits:
    """Draw texts of pairs, then all their keys in another order, each followed by its value.

    A pair of a key and a value is one word. The source is one word that says nothing, so that a model knows
    the pairs by its own state alone. Sizes, in pairs, are as for ``_by_split``.
    """
    draw = random.Random(seed)

    def text(pairs: int) -> str:
        value_of = {key: draw.randrange(values) for key in draw.sample(range(keys), pairs)}
        asked = draw.sample(list(value_of), pairs)
        words = [f"k{key}v{value}" for key, value in value_of.items()]
        return " ".join([*words, *(f"k{key} v{value_of[key]}" for key in asked)])

    return {
        name: [("x", text(pairs)) for pairs in lengths] for name, lengths in _by_split(draw, **sizes).items()
    }


def _by_split(
    draw: random.Random, *, longest: int, train: int, valid: int, test: int, lengths: Sequence[int]
) -> dict[str, list[int]]:
    """Draw lengths up to ``longest``; each of ``lengths`` has a test set of its own, such as test_80."""
    drawn = {name: _lengths(draw, longest, count) for name, count in (("train", train), ("valid", valid))}
    return {f"test_{length}": [length] * test for length in lengths} | drawn


def _lengths(draw: random.Random, longest: int, count: int) -> list[int]:
    return [draw.randint(1, longest) for _ in range(count)]


def sequences(draw: random.Random, symbols: int, lengths: Iterable[int]) -> list[str]:
    """Draw one sequence of random symbols of each length."""
    return [" ".join(draw.choices(SYMBOLS[:symbols], k=length)) for length in lengths]


CORPORA = {make.__name__: make for make in (sentences, copies, first_words, key_values)}


def write_corpus(folder: Path, seed: int, kind: str, **arguments: Any) -> None:
    """Write a corpus of ``CORPORA`` as files for ``data.root``; the languages are called en and de."""
    splits = CORPORA[kind](seed, **arguments)
    if not any(name.startswith("test") for name in splits):
        splits = {**splits, "test": splits["valid"]}  # a corpus must have one, which is not read
    for split, pairs in splits.items():
        for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            write_atomically(folder / f"{split}.{language}", "".join(f"{line}\n" for line in lines))
