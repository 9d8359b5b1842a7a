"""Translations of a test set by each model and seed, with the sentence statistics that the tests use.

N sentences, R resamples, C statistics per sentence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.significance.bleu_statistics import FloatArray, IntArray, bleu, sentence_counts
from compare.analysis.significance.chrf_statistics import chrf, sentence_ngrams
from compare.config.shared_settings import settings_hash
from compare.scoring.metrics.bleu import BOOTSTRAP_SEED


class ComparedMetric(NamedTuple):
    """A metric in which models are compared: its statistics per sentence and its score from their sums."""

    statistics: Callable[[Sequence[str], Sequence[str]], IntArray]
    """Statistics (N, C) of N translations and their references."""
    score: Callable[[npt.ArrayLike], FloatArray]
    """Score, 0 to 100 and higher is better, from sums of statistics, (..., C) to (...)."""


COMPARED_METRICS = {
    "bleu": ComparedMetric(sentence_counts, bleu),
    "chrf": ComparedMetric(sentence_ngrams, chrf),
}
"""The metrics in which models are compared, by name. Each more makes Holm's correction stricter."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledScore:
    """Score of one run on a test set by one metric, and on resamples of the test set."""

    counts: IntArray
    """Statistics per sentence, (N, C)."""
    score: float
    """Score of the whole test set, 0 to 100."""
    resampled: FloatArray
    """Score of each bootstrap resample of the test set, (R,); resample r is the same for every run."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredRun:
    """Translations of N test sentences by one run, with their statistics."""

    lines: Sequence[str]
    scores: Mapping[str, SampledScore]
    """By the name of the metric, all of ``COMPARED_METRICS``."""

    @cached_property
    def sentence_chrf(self) -> FloatArray:
        """chrF2 of each sentence, (N,), which decides the sentences won and lost.

        Sentence BLEU is not used: most sentences of a weak model share no 4-gram with their reference, so
        that smoothing would decide. chrF correlates better with human judgement of single sentences (Popović
        2015).
        """
        return chrf(self.scores["chrf"].counts)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredTestSet:
    """A test set with its translations by every model and seed."""

    name: str
    references: Sequence[str]
    models: Mapping[str, Mapping[int, ScoredRun]]
    """Runs by label, then by seed."""
    settings: Mapping[str, str | None] = field(default_factory=dict)
    """``Result.settings_hash`` by the name of the run, or that of its config if the result has none: models
    that differ in it are not compared."""
    failed: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Seeds with which a model failed, by its label."""


def bootstrap_draws(sentences: int, resamples: int) -> FloatArray:
    """Draw bootstrap resamples of a test set.

    The random numbers and their seed are those of sacrebleu's confidence interval and paired bootstrap, so
    that both give the same results.

    Args:
        sentences: N, the size of the test set.
        resamples: R.

    Returns:
        How often each resample contains each sentence, (R, N).
    """
    rng = np.random.default_rng(int(BOOTSTRAP_SEED))
    indices = rng.choice(sentences, size=(resamples, sentences), replace=True)
    return np.stack([np.bincount(resample, minlength=sentences) for resample in indices]).astype(np.float64)


def score_test_set(
    name: str,
    references: Sequence[str],
    outputs: Mapping[str, Mapping[int, Sequence[str]]],
    *,
    resamples: int = 1000,
) -> ScoredTestSet:
    """Compute the statistics and resampled scores of one test set.

    Args:
        name: the name of the test set.
        references: one reference per sentence.
        outputs: translations by label and seed, one line per sentence.
        resamples: number of bootstrap resamples.

    Raises:
        ValueError: there are not as many translations as references.
    """
    draws = bootstrap_draws(len(references), resamples)

    def score_lines(lines: Sequence[str], metric: ComparedMetric) -> SampledScore:
        counts = metric.statistics(lines, references)
        return SampledScore(
            counts=counts,
            score=float(metric.score(counts.sum(axis=0))),
            resampled=metric.score(draws @ counts),
        )

    def score_run(lines: Sequence[str]) -> ScoredRun:
        scores = {metric: score_lines(lines, compared) for metric, compared in COMPARED_METRICS.items()}
        return ScoredRun(lines=lines, scores=scores)

    models = {
        label: {seed: score_run(lines) for seed, lines in runs.items()} for label, runs in outputs.items()
    }
    return ScoredTestSet(name=name, references=references, models=models)


def score_tests(finished: FinishedExperiment, *, resamples: int = 1000) -> dict[str, ScoredTestSet]:
    """Score every test set of an experiment; this takes about 1 s per run and 1,000 sentences.

    Args:
        finished: the experiment.
        resamples: number of bootstrap resamples.

    Returns:
        The test sets by name, that of the headline first.
    """
    scored = {}
    settings = {run.result.run: run.result.settings_hash or settings_hash(run.run) for run in finished.runs}
    for test in finished.corpus.tests:
        outputs = {
            label: {run.result.seed: run.outputs[test] for run in runs}
            for label, runs in finished.labels.items()
        }
        test_set = score_test_set(test, finished.corpus.splits[test].tgt, outputs, resamples=resamples)
        scored[test] = replace(test_set, settings=settings, failed=finished.failed_seeds)
    return scored
