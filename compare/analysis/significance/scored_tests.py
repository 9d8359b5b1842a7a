"""The translations of a test set by each model and seed, with the counts that all statistics start from."""

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
    """What one run made of a test set of N sentences."""

    lines: Sequence[str]
    references: Sequence[str]
    counts: IntArray
    """Of each sentence, (N, 10), as ``sentence_counts`` has them."""
    resampled: FloatArray
    """BLEU of each resample of the test set, (R,); resample r is the same for every run."""

    @cached_property
    def bleu(self) -> float:
        """BLEU of the whole test set, 0 to 100."""
        return float(bleu(self.counts.sum(axis=0)))

    @cached_property
    def chrf(self) -> FloatArray:
        """chrF2 of each sentence, (N,), for sentences won and lost.

        Not BLEU: most sentences of a weak model share no four words with their reference, so that smoothing
        would decide, and not the translation; chrF agrees better with people's judgement of single sentences
        (Popović 2015).
        """
        metric = CHRF()
        pairs = zip(self.lines, self.references, strict=True)
        return np.array([metric.sentence_score(line, [reference]).score for line, reference in pairs])


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredTestSet:
    """A test set and what every model, once a seed, made of it."""

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
    """Count and resample ``outputs``, translations by label and seed, against ``references``."""
    drawn = bootstrap_draws(len(references), resamples)

    def scored(lines: Sequence[str]) -> ScoredRun:
        counts = sentence_counts(lines, references)
        return ScoredRun(lines=lines, references=references, counts=counts, resampled=bleu(drawn @ counts))

    models = {label: {seed: scored(lines) for seed, lines in runs.items()} for label, runs in outputs.items()}
    return ScoredTestSet(name=name, references=references, models=models)


def score_tests(finished: FinishedExperiment, *, resamples: int = 1000) -> dict[str, ScoredTestSet]:
    """Every test set of an experiment by name, that of the headline first; 0.5 s a run and 1,000 lines."""
    found = {}
    for test in finished.corpus.tests:
        outputs = {
            label: {run.result.seed: run.outputs[test] for run in runs}
            for label, runs in finished.labels.items()
        }
        found[test] = score_test_set(test, finished.corpus.splits[test].tgt, outputs, resamples=resamples)
    return found
