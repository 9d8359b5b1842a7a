"""Translations of a test set by each model and seed, with the sentence statistics that the tests use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.significance.bleu_statistics import (
    FloatArray,
    IntArray,
    bleu,
    bootstrap_draws,
    sentence_counts,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredRun:
    """Translations of N test sentences by one run, with their statistics."""

    lines: Sequence[str]
    references: Sequence[str]
    counts: IntArray
    """BLEU statistics per sentence, (N, 10), as returned by ``sentence_counts``."""
    resampled: FloatArray
    """BLEU of each bootstrap resample of the test set, (R,); resample r is the same for every run."""

    @cached_property
    def bleu(self) -> float:
        """BLEU of the whole test set, 0 to 100."""
        return float(bleu(self.counts.sum(axis=0)))

    @cached_property
    def chrf(self) -> FloatArray:
        """chrF2 of each sentence, (N,), which decides the sentences won and lost.

        Sentence BLEU is not used: most sentences of a weak model share no 4-gram with their reference, so
        that smoothing would decide. chrF correlates better with human judgement of single sentences (Popović
        2015).
        """
        metric = CHRF()
        pairs = zip(self.lines, self.references, strict=True)
        return np.array([metric.sentence_score(line, [reference]).score for line, reference in pairs])


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredTestSet:
    """A test set with its translations by every model and seed."""

    name: str
    references: Sequence[str]
    models: Mapping[str, Mapping[int, ScoredRun]]
    """Runs by label, then by seed."""


def score_test_set(
    name: str,
    references: Sequence[str],
    outputs: Mapping[str, Mapping[int, Sequence[str]]],
    *,
    resamples: int = 1000,
) -> ScoredTestSet:
    """Compute the statistics and resampled BLEU of one test set.

    Args:
        name: the name of the test set.
        references: one reference per sentence.
        outputs: translations by label and seed, one line per sentence.
        resamples: number of bootstrap resamples.

    Raises:
        ValueError: there are not as many translations as references.
    """
    draws = bootstrap_draws(len(references), resamples)

    def score_run(lines: Sequence[str]) -> ScoredRun:
        counts = sentence_counts(lines, references)
        return ScoredRun(lines=lines, references=references, counts=counts, resampled=bleu(draws @ counts))

    models = {
        label: {seed: score_run(lines) for seed, lines in runs.items()} for label, runs in outputs.items()
    }
    return ScoredTestSet(name=name, references=references, models=models)


def score_tests(finished: FinishedExperiment, *, resamples: int = 1000) -> dict[str, ScoredTestSet]:
    """Score every test set of an experiment; this takes about 0.5 s per run and 1,000 sentences.

    Args:
        finished: the experiment.
        resamples: number of bootstrap resamples.

    Returns:
        The test sets by name, that of the headline first.
    """
    scored = {}
    for test in finished.corpus.tests:
        outputs = {
            label: {run.result.seed: run.outputs[test] for run in runs}
            for label, runs in finished.labels.items()
        }
        scored[test] = score_test_set(test, finished.corpus.splits[test].tgt, outputs, resamples=resamples)
    return scored
