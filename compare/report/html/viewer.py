"""The weights that the page's alignment viewer draws, every head of every model, small enough to send."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compare.analysis.alignment.gold import WordPair, corpus_gold, word_pairs
from compare.analysis.alignment.word_attention import AttentionHead, WordAttention, attend_words
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.report.html.parts import explain
from compare.results.trained_model import load_model

logger = logging.getLogger(__name__)

MOST_BYTES = 1_500_000
"""What the weights may add to the page; sentences are left out until they fit."""
ChosenHeads = Mapping[tuple[str, int], AttentionHead]
"""The head of each run that aligns best, by label and seed."""


@dataclass(frozen=True, kw_only=True)
class AttendedModel:
    """A model of the viewer, by its first seed."""

    label: str
    seed: int
    heads: Sequence[str]
    """Its heads and their means in words; none for a model without attention to the source."""
    chosen: int
    """Which of them is shown first."""
    trouble: str = ""
    """Why its attention cannot be shown."""


@dataclass(frozen=True, kw_only=True)
class AttendedSentence:
    """A sentence of the viewer."""

    number: int
    """Its line in the test set, from 1."""
    src: Sequence[str]
    tgt: Sequence[str]
    """The words of source and reference."""
    links: Sequence[Sequence[int]]
    """Gold links, target word and source word."""
    weights: Sequence[Sequence[Sequence[int]]]
    """Of each model and head, in hundredths, target word by target word."""


@dataclass(frozen=True, kw_only=True)
class AttentionViewer:
    """What the alignment viewer shows."""

    models: Sequence[AttendedModel]
    sentences: Sequence[AttendedSentence]


def attention_viewer(
    finished: FinishedExperiment, numbers: Sequence[int], chosen: ChosenHeads
) -> AttentionViewer:
    """The attention of each model's first seed over sentences of the first test set, every head of it.

    Args:
        finished: the experiment.
        numbers: places of sentences in the test set, from 0; the last are left out if all would be too much.
        chosen: the head to show first; a run that is not in it shows the mean over all its heads.
    """
    test = finished.corpus.tests[0]
    pairs = finished.corpus.splits[test]
    words = word_pairs(pairs)
    shown = [words[number] for number in numbers]
    models, maps = [], []
    for run, *_ in finished.labels.values():
        logger.info(f"report: attention of {run.folder.name}")
        model, found = _attended(run, shown, chosen)
        models.append(model)
        maps.append(found)
    gold = corpus_gold(finished.corpus, test).links if pairs.links else None
    sentences: list[AttendedSentence] = []
    room = MOST_BYTES
    for place, (line, pair) in enumerate(zip(numbers, shown, strict=True)):
        links = np.argwhere(gold[line].sure).tolist() if gold else []
        weights = [found.get(place, []) for found in maps]
        sentence = AttendedSentence(
            number=line + 1, src=pair.src_words, tgt=pair.tgt_words, links=links, weights=weights
        )
        room -= len(json.dumps(weights, separators=(",", ":")))
        if room < 0 and sentences:
            break
        sentences.append(sentence)
    return AttentionViewer(models=models, sentences=sentences)


def _attended(
    run: FinishedRun, pairs: Sequence[WordPair], chosen: ChosenHeads
) -> tuple[AttendedModel, dict[int, list[list[int]]]]:
    """A model, and by place of a pair its weights, a list a head."""
    result = run.result
    try:
        found = {pair.number: pair for pair in attend_words(load_model(run.folder), pairs)}
    except (OSError, ValueError) as error:
        model = AttendedModel(
            label=result.label, seed=result.seed, heads=[], chosen=0, trouble=explain(error)
        )
        return model, {}
    heads = next(iter(found.values())).heads if found else ()
    best = chosen.get((result.label, result.seed))
    model = AttendedModel(
        label=result.label,
        seed=result.seed,
        heads=[str(head) for head in heads],
        chosen=heads.index(best) if best in heads else max(len(heads) - 1, 0),  # the last is the widest mean
    )
    return model, {place: _hundredths(pair) for place, pair in found.items()}


def _hundredths(pair: WordAttention) -> list[list[int]]:
    """The weights of a pair, a list a head."""
    whole = np.rint(100 * pair.weights).astype(int)
    found: list[list[int]] = whole.reshape(len(whole), -1).tolist()
    return found
