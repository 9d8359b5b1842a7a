"""Sentences drawn from the test sets, and the attention viewer of the page."""

import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from sacrebleu.metrics.chrf import CHRF

from compare.analysis.alignment import attend_words
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.quality import word_counts
from compare.analysis.word_links import WordPair, corpus_gold
from compare.attention.viewer import AttendedModel, AttendedSentence, AttentionViewer, hundredths
from compare.attention.weights import AttentionHead
from compare.results.run_folder import load_model
from compare.system.messages import explain
from data.vocabulary import join_words, mark_words, unmarked

# Sentences drawn from the test sets, with word-level differences between translation and reference.


SENTENCES = 20
"""Sentences drawn from each test set; smaller test sets are shown whole."""


class Piece(NamedTuple):
    """Words in both translation and reference ("same"), or in only one of them.

    "extra" words are only in the translation, "missing" words only in the reference.
    """

    kind: Literal["same", "extra", "missing"]
    text: str
    spaced: bool
    """Whether a space precedes it."""


class Output(NamedTuple):
    """A model's translation of one sentence."""

    model: str
    chrf: float
    """chrF2, 0 to 100."""
    exact: bool
    pieces: Sequence[Piece]


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence of a test set."""

    test: str
    number: int
    """Line number in the test set, from 1."""
    words: int
    src: str
    ref: str
    outputs: Sequence[Output]
    """One per model, from the run of its first seed."""


def draw_numbers(sentences: int, seed: int) -> list[int]:
    """Draw the sorted indices of the sentences to show; equal seeds give equal indices."""
    return sorted(random.Random(seed).sample(range(sentences), min(SENTENCES, sentences)))


def draw_sentences(finished: FinishedExperiment, seed: int) -> list[Sentence]:
    """Draw sentences of every test set, with the translation of each model."""
    sentences = []
    chrf = CHRF()
    for test in finished.runs[0].outputs:
        sources, references = finished.sources(test), finished.references(test)
        words = word_counts(sources)
        lines = {label: run.outputs[test] for label, (run, *_) in finished.labels.items()}
        for index in draw_numbers(len(sources), seed):
            src, ref = sources[index], references[index]
            outputs = [
                Output(
                    label,
                    chrf.sentence_score(output[index], [ref]).score,
                    output[index] == ref,
                    differences(output[index], ref),
                )
                for label, output in lines.items()
            ]
            sentences.append(
                Sentence(test=test, number=index + 1, words=words[index], src=src, ref=ref, outputs=outputs)
            )
    return sentences


def differences(hypothesis: str, reference: str) -> list[Piece]:
    """Align ``hypothesis`` with ``reference`` by words and punctuation, in order; white space is ignored."""
    output, wanted = mark_words(hypothesis), mark_words(reference)
    one, other = ([unmarked(token) for token in tokens] for tokens in (wanted, output))
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    pieces: list[Piece] = []
    for kind, start, end, from_, to in matcher.get_opcodes():
        if kind == "equal":
            pieces.append(_piece("same", output[from_:to]))
            continue
        if start < end:
            pieces.append(_piece("missing", wanted[start:end]))
        if from_ < to:
            pieces.append(_piece("extra", output[from_:to]))
    return pieces


def _piece(kind: Literal["same", "extra", "missing"], tokens: Sequence[str]) -> Piece:
    """Join tokens as in the text; a mark on the first one means that no space precedes it."""
    first, *others = tokens
    return Piece(kind, join_words([unmarked(first), *others]), spaced=unmarked(first) == first)


# Data of the alignment viewer: attention weights of every head and model, limited in size.


logger = logging.getLogger(__name__)

MOST_BYTES = 1_500_000
"""Largest size of the weights in the page, in bytes of JSON; further sentences are left out."""


def attention_viewer(
    finished: FinishedExperiment, numbers: Sequence[int], chosen: Mapping[tuple[str, int], AttentionHead]
) -> AttentionViewer:
    """Compute the attention of each model's first seed, all heads, on sentences of the first test set.

    ``numbers`` are their indices from 0; those beyond ``MOST_BYTES`` are left out. ``chosen`` has the head to
    show first by label and seed; other runs show the mean over all heads.
    """
    if not numbers:
        return AttentionViewer(models=[], sentences=[])
    kind = finished.runs[0].run.vocabulary.kind
    gold = corpus_gold(finished.corpus, finished.corpus.tests[0], kind)
    shown = [gold.pairs[number] for number in numbers]
    models, maps, styles = [], [], finished.styles
    for run, *_ in finished.trained.labels.values():
        logger.info(f"report: attention of {run.folder.name}")
        color = styles[run.result.label].color
        model, weights_by_index = _attend(run, shown, chosen.get((run.result.label, run.result.seed)), color)
        models.append(model)
        maps.append(weights_by_index)
    sentences: list[AttendedSentence] = []
    bytes_left = MOST_BYTES
    for index, (line, pair) in enumerate(zip(numbers, shown, strict=True)):
        links = sorted((j, i) for i, j in gold.links[line].sure)
        weights = [weights_by_index.get(index, []) for weights_by_index in maps]
        bytes_left -= len(json.dumps(weights, separators=(",", ":")))
        if bytes_left < 0 and sentences:
            break
        sentences.append(
            AttendedSentence(
                number=line + 1, src=pair.src_words, tgt=pair.tgt_words, links=links, weights=weights
            )
        )
    return AttentionViewer(models=models, sentences=sentences)


def _attend(
    run: FinishedRun, pairs: Sequence[WordPair], best: AttentionHead | None, color: str
) -> tuple[AttendedModel, dict[int, list[list[int]]]]:
    """Return a model, and its weights by index of the sentence pair, one list per head."""
    bleu = "" if run.result.bleu is None else f" (BLEU {run.result.bleu:.1f})"
    name = f"{run.result.label}, seed {run.result.seed}{bleu}"
    try:
        attended = {pair.number: pair for pair in attend_words(load_model(run.folder), pairs)}
    except (OSError, ValueError) as error:
        return AttendedModel(name=name, heads=[], chosen=0, trouble=explain(error)), {}
    heads = next(iter(attended.values())).heads if attended else ()
    chosen = heads.index(best) if best in heads else max(len(heads) - 1, 0)  # the last is the widest mean
    model = AttendedModel(name=name, heads=list(map(str, heads)), chosen=chosen, color=color)
    return model, {index: hundredths(pair.weights) for index, pair in attended.items()}
