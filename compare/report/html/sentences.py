"""Sentences drawn from the test sets, with word-level differences between translation and reference."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.quality.texts import word_counts
from compare.analysis.significance.scored_tests import ScoredTestSet
from data.words import join_words, mark_words, unmarked

SENTENCES = 20
"""Number of sentences drawn from each test set; of a smaller test set, all are shown."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Words in both translation and reference ("same"), or in only one of them.

    "extra" words are only in the translation, "missing" words only in the reference.
    """

    kind: Literal["same", "extra", "missing"]
    text: str
    spaced: bool
    """Whether a space precedes it."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """A model's translation of one sentence."""

    model: str
    chrf: float
    """chrF2, 0 to 100."""
    exact: bool
    """Whether it equals the reference."""
    pieces: Sequence[Piece]


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence of a test set."""

    test: str
    number: int
    """Line number in the test set, from 1."""
    words: int
    """Number of source words."""
    src: str
    ref: str
    outputs: Sequence[Output]
    """One per model, from the run of its first seed."""


def draw_numbers(sentences: int, seed: int) -> list[int]:
    """Draw the indices of the sentences to show, sorted; the same seed gives the same indices."""
    return sorted(random.Random(seed).sample(range(sentences), min(SENTENCES, sentences)))


def draw_sentences(
    finished: FinishedExperiment, scored: Mapping[str, ScoredTestSet], seed: int
) -> list[Sentence]:
    """Draw sentences of every test set by ``seed``, with each model's translation."""
    found = []
    for test, of_test in scored.items():
        pairs = finished.corpus.splits[test]
        words = word_counts(pairs.src)
        for place in draw_numbers(len(pairs.src), seed):
            outputs = [
                Output(
                    model=label,
                    chrf=float(run.sentence_chrf[place]),
                    exact=run.lines[place] == pairs.tgt[place],
                    pieces=differences(run.lines[place], pairs.tgt[place]),
                )
                for label, runs in of_test.models.items()
                for run in [next(iter(runs.values()))]
            ]
            src, ref = pairs.src[place], pairs.tgt[place]
            found.append(
                Sentence(test=test, number=place + 1, words=words[place], src=src, ref=ref, outputs=outputs)
            )
    return found


def differences(hypothesis: str, reference: str) -> list[Piece]:
    """Align ``hypothesis`` with ``reference``: words in both, in the same order, and words in only one.

    Words and punctuation characters of ``data.words`` are compared; white space is not.
    """
    output, wanted = mark_words(hypothesis), mark_words(reference)
    matcher = SequenceMatcher(None, _plain(wanted), _plain(output), autojunk=False)
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


def _plain(tokens: Sequence[str]) -> list[str]:
    return [unmarked(token) for token in tokens]


def _piece(kind: Literal["same", "extra", "missing"], tokens: Sequence[str]) -> Piece:
    """Join tokens as in the text; a mark on the first one means that no space precedes it."""
    first, *others = tokens
    return Piece(kind=kind, text=join_words([unmarked(first), *others]), spaced=unmarked(first) == first)
