"""Pairs of models to compare, with the scores of both for the seeds that both have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import combinations

import numpy as np

from compare.analysis.significance.bleu_statistics import FloatArray
from compare.analysis.significance.intervals import Variances, estimate_variances
from compare.analysis.significance.scored_tests import (
    COMPARED_METRICS,
    SampledScore,
    ScoredRun,
    ScoredTestSet,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedRuns:
    """The runs of two models on one test set, paired by seed, and their scores by one metric."""

    test: str
    metric: str
    labels: tuple[str, str]
    seeds: tuple[int, ...]
    runs: Sequence[tuple[ScoredRun, ScoredRun]]
    """First and second model, one pair per seed."""
    failed: tuple[str, ...] = ()
    """Runs of either model that failed, as "label seed 2"."""

    @property
    def scores(self) -> list[tuple[SampledScore, SampledScore]]:
        """Scores of first and second, one pair per seed."""
        return [(first.scores[self.metric], second.scores[self.metric]) for first, second in self.runs]

    @cached_property
    def differences(self) -> FloatArray:
        """Score of first minus score of second, (k,)."""
        return np.array([first.score - second.score for first, second in self.scores])

    @cached_property
    def resampled(self) -> FloatArray:
        """The differences on resamples of the test set, (k, R)."""
        return np.stack([first.resampled - second.resampled for first, second in self.scores])

    @property
    def sentences(self) -> int:
        """N, the size of the test set."""
        return len(self.scores[0][0].counts)

    @property
    def variances(self) -> Variances:
        """Variances of the mean difference."""
        return estimate_variances(self.differences, self.resampled)


def match_runs(scored: Mapping[str, ScoredTestSet], baseline: str | None = None) -> list[MatchedRuns]:
    """Pair the runs of every two models on every test set, for every metric of ``COMPARED_METRICS``.

    Args:
        scored: the test sets.
        baseline: a label to pair every other model with; None: all pairs, the model further down the table
            being the first.

    Returns:
        The pairs; two models without a common seed are left out.

    Raises:
        ValueError: the baseline does not exist.
    """
    return [
        MatchedRuns(
            test=test.name,
            metric=metric,
            labels=labels,
            seeds=tuple(seeds),
            runs=[(test.models[labels[0]][seed], test.models[labels[1]][seed]) for seed in seeds],
            failed=tuple(f"{label} seed {seed}" for label in labels for seed in test.failed.get(label, ())),
        )
        for test in scored.values()
        for metric in COMPARED_METRICS
        for labels in _label_pairs(list(test.models), baseline)
        if (seeds := sorted(test.models[labels[0]].keys() & test.models[labels[1]].keys()))
    ]


def _label_pairs(labels: Sequence[str], baseline: str | None) -> list[tuple[str, str]]:
    """List the pairs of labels to compare."""
    if baseline is None:
        return [(first, second) for second, first in combinations(labels, 2)]
    if baseline not in labels:
        near = get_close_matches(baseline, labels, n=1) or list(labels)
        raise ValueError(f"no finished model is labelled {baseline!r}; did you mean {near[0]!r}?")
    return [(label, baseline) for label in labels if label != baseline]
