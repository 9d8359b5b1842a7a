"""Data of the alignment viewer: attention weights of every head and model, limited in size."""

import json
import logging
from collections.abc import Mapping, Sequence

import numpy as np

from compare.analysis.alignment.gold import WordPair, corpus_gold, word_pairs
from compare.analysis.alignment.word_attention import AttentionHead, attend_words
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.attention.viewer import AttendedModel, AttendedSentence, AttentionViewer, hundredths
from compare.results.trained_model import load_model
from compare.system.hints import explain

logger = logging.getLogger(__name__)

MOST_BYTES = 1_500_000
"""Maximum size of the weights in the page, in bytes of JSON; further sentences are left out."""
ChosenHeads = Mapping[tuple[str, int], AttentionHead]
"""For each run, by label and seed, the head that aligns best."""


def attention_viewer(
    finished: FinishedExperiment, numbers: Sequence[int], chosen: ChosenHeads
) -> AttentionViewer:
    """Compute the attention of each model's first seed, all heads, on sentences of the first test set.

    Args:
        finished: the experiment.
        numbers: indices of sentences in the test set, from 0; those beyond ``MOST_BYTES`` are left out.
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
    bytes_left = MOST_BYTES
    for index, (line, pair) in enumerate(zip(numbers, shown, strict=True)):
        links = np.argwhere(gold[line].sure).tolist() if gold else []
        weights = [found.get(index, []) for found in maps]
        sentence = AttendedSentence(
            number=line + 1, src=pair.src_words, tgt=pair.tgt_words, links=links, weights=weights
        )
        bytes_left -= len(json.dumps(weights, separators=(",", ":")))
        if bytes_left < 0 and sentences:
            break
        sentences.append(sentence)
    return AttentionViewer(models=models, sentences=sentences)


def _attended(
    run: FinishedRun, pairs: Sequence[WordPair], chosen: ChosenHeads
) -> tuple[AttendedModel, dict[int, list[list[int]]]]:
    """Return a model, and its weights by index of the sentence pair, one list per head."""
    result = run.result
    name = f"{result.label}, seed {result.seed}"
    try:
        found = {pair.number: pair for pair in attend_words(load_model(run.folder), pairs)}
    except (OSError, ValueError) as error:
        return AttendedModel(name=name, heads=[], chosen=0, trouble=explain(error)), {}
    heads = next(iter(found.values())).heads if found else ()
    best = chosen.get((result.label, result.seed))
    model = AttendedModel(
        name=name,
        heads=[str(head) for head in heads],
        chosen=heads.index(best) if best in heads else max(len(heads) - 1, 0),  # the last is the widest mean
    )
    return model, {index: hundredths(pair.weights) for index, pair in found.items()}
