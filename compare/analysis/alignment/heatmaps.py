"""Attention of all models over chosen sentences, side by side, as a page or a plot needs it.

Shapes: T target and S source words of a sentence.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from compare.analysis.alignment.attended import Head, attend
from compare.analysis.alignment.gold import GoldLinks, WordPair, corpus_gold, split_of, word_pairs
from compare.analysis.finished import Finished, FinishedRun
from compare.translate import load_model


class HeatMap(NamedTuple):
    """What one model attends to while it is made to write a reference."""

    label: str
    seed: int
    attention: str
    """The head or mean that is shown, in words."""
    weights: NDArray[np.float64]
    """(T, S); a row lacks what its word gave to the source's end of sentence."""


class SentenceMaps(NamedTuple):
    """A sentence of a test set, and the maps of all models, which share its words."""

    number: int
    """Its place in the test set, from 0."""
    src_words: tuple[str, ...]
    tgt_words: tuple[str, ...]
    """Of the reference."""
    links: GoldLinks | None
    """Matrices (T, S), where the corpus has gold links."""
    maps: list[HeatMap]
    """One a label, of its first seed; a model without attention has none."""


def heat_maps(
    finished: Finished,
    numbers: Sequence[int],
    *,
    chosen: Mapping[tuple[str, int], Head],
    test: str | None = None,
    device: str = "cpu",
) -> list[SentenceMaps]:
    """The attention of all models over sentences of a test set, in the order of ``numbers``.

    Args:
        finished: the experiment.
        numbers: places of sentences in the test set, from 0.
        chosen: the head to show by label and seed, as ``align_experiment`` found it; a run that is not in it
            shows the mean over all its heads.
        test: name of a test set; None is the first, which gives the headline.
        device: where the models run.

    Raises:
        ValueError: there is no such test set or sentence, or a run cannot be loaded.
    """
    test = test or finished.corpus.tests[0]
    corpus_pairs = split_of(finished.corpus, test)
    words = word_pairs(corpus_pairs)
    if wrong := [number for number in numbers if not 0 <= number < len(words)]:
        raise ValueError(f"{test} has sentences 0 to {len(words) - 1}: there is no sentence {wrong[0]}")
    pairs = [words[number] for number in numbers]
    gold = corpus_gold(finished.corpus, test).links if corpus_pairs.links else None
    found = [
        SentenceMaps(number, pair.src_words, pair.tgt_words, gold[number] if gold else None, [])
        for number, pair in zip(numbers, pairs, strict=True)
    ]
    for run, *_ in finished.labels.values():
        shown = chosen.get((run.result.label, run.result.seed))
        for place, heat_map in _maps_of(run, pairs, shown, device):
            found[place].maps.append(heat_map)
    return found


def _maps_of(
    run: FinishedRun, pairs: Sequence[WordPair], shown: Head | None, device: str
) -> list[tuple[int, HeatMap]]:
    """One model's map of each pair, with the pair's place; the last of its heads is the widest mean."""
    return [
        (
            pair.number,
            HeatMap(run.result.label, run.result.seed, str(head), pair.weights[pair.heads.index(head)]),
        )
        for pair in attend(load_model(run.folder, device), pairs)
        for head in [shown or pair.heads[-1]]
    ]
