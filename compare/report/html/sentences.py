"""Sentences drawn from the test sets, every model's translation set against the reference word by word."""

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
"""Drawn from each test set, or all where there are fewer."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Words of a translation that the reference has too, or has not; or words that it lacks."""

    kind: Literal["same", "extra", "missing"]
    text: str
    spaced: bool
    """Whether there is a space before it."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """A model's translation of one sentence."""

    model: str
    chrf: float
    """chrF2, 0 to 100."""
    exact: bool
    """Whether it is the reference."""
    pieces: Sequence[Piece]


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence of a test set."""

    test: str
    number: int
    """Its line in the test set, from 1."""
    words: int
    """Of the source."""
    src: str
    ref: str
    outputs: Sequence[Output]
    """One a model, of its first seed."""


def draw_numbers(sentences: int, seed: int) -> list[int]:
    """Places from 0 of the sentences to show, in order; the same for the same seed."""
    return sorted(random.Random(seed).sample(range(sentences), min(SENTENCES, sentences)))


def draw_sentences(
    finished: FinishedExperiment, scored: Mapping[str, ScoredTestSet], seed: int
) -> list[Sentence]:
    """Sentences of every test set, drawn by ``seed``, with each model's translation."""
    found = []
    for test, of_test in scored.items():
        pairs = finished.corpus.splits[test]
        words = word_counts(pairs.src)
        for place in draw_numbers(len(pairs.src), seed):
            outputs = [
                Output(
                    model=label,
                    chrf=float(run.chrf[place]),
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
    """``hypothesis`` in pieces: what it shares with ``reference`` in the same order, and what it does not.

    Words and signs of punctuation are compared, as ``data.words`` splits them; white space is not.
    """
    said, wanted = mark_words(hypothesis), mark_words(reference)
    matcher = SequenceMatcher(None, _plain(wanted), _plain(said), autojunk=False)
    pieces: list[Piece] = []
    for kind, start, end, from_, to in matcher.get_opcodes():
        if kind == "equal":
            pieces.append(_piece("same", said[from_:to]))
            continue
        if start < end:
            pieces.append(_piece("missing", wanted[start:end]))
        if from_ < to:
            pieces.append(_piece("extra", said[from_:to]))
    return pieces


def _plain(tokens: Sequence[str]) -> list[str]:
    return [unmarked(token) for token in tokens]


def _piece(kind: Literal["same", "extra", "missing"], tokens: Sequence[str]) -> Piece:
    """Join tokens as the text has them; a mark on the first says that no space stands before it."""
    first, *others = tokens
    return Piece(kind=kind, text=join_words([unmarked(first), *others]), spaced=unmarked(first) == first)
