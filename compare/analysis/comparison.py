"""Comparison of models: significant differences, power, means over seeds, and the main outcome in sentences.

References:
- Cohen 1988, Statistical Power Analysis for the Behavioral Sciences. Erlbaum.
- Satterthwaite 1946, An Approximate Distribution of Estimates of Variance Components. Biometrics Bulletin
  2(6).
"""

import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, ndtri

from compare.analysis.finished_experiment import (
    FinishedExperiment,
    FinishedRun,
    are_timed_together,
    timed_spread,
)
from compare.analysis.intervals import (
    Interval,
    Intervals,
    MatchedRuns,
    ScoredRun,
    ScoredTestSet,
    Variances,
    check_label,
    clip_intervals,
    combined_half_width,
    confidence_intervals,
    estimate_variances,
    match_runs,
    model_intervals,
    seed_interval,
)
from compare.analysis.statistics import (
    COMPARED_METRICS,
    BoolArray,
    bootstrap_p,
    holm_correction,
    randomisation_p,
    swap_draws,
)
from compare.analysis.tables import Row, seed_mean
from compare.scoring.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd


# Result of comparing two models, and the rule by which one beats the other.


ALPHA = 0.05
"""Significance level of the corrected p-value."""
ONE_SEED = "significant on this test set, with one seed"
"""Verdict on a difference that may be one of these seeds only."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of model ``first`` with model ``second`` on one test set by one metric.

    One model beats the other if ``p`` is below ``ALPHA`` and the combined interval excludes 0. Neither alone
    suffices: the p-value ignores how much seeds differ, and the interval is not corrected for the number of
    comparisons. Where a run of either model failed, none beats the other: the seeds that are left are not
    any seeds, but those with which training went well.
    """

    test: str
    metric: str
    """One of ``COMPARED_METRICS``; for all of them, higher is better."""
    first: str
    second: str
    seeds: tuple[int, ...]
    """The seeds that both models have."""
    differences: tuple[float, ...]
    """Score of first minus score of second, one per seed."""
    intervals: Intervals
    """95% confidence intervals of the mean difference."""
    p_randomisation: float
    """p-value of approximate randomisation over all seeds together, uncorrected."""
    p_bootstrap: float
    """p-value of the paired bootstrap over all seeds together, uncorrected."""
    p: float
    """``p_randomisation`` with Holm's correction for all comparisons made together with this one.

    Randomisation decides because the bootstrap rejects the null hypothesis too often (Riezler and Maxwell
    2005).
    """
    failed: tuple[str, ...] = ()
    """Runs of either model that failed, as "label seed 2"; they have no translations to compare."""

    @property
    def difference(self) -> float:
        """The mean of ``differences``."""
        return sum(self.differences) / len(self.differences)

    @property
    def significant(self) -> bool:
        """Whether ``p`` is below ``ALPHA``: the difference is not an accident of the test set."""
        return self.p < ALPHA

    @property
    def inconclusive_reason(self) -> str | None:
        """Reason why neither model beats the other; None if one does."""
        if not self.significant:
            return f"{describe_p(self.p)} is not below {ALPHA}"
        if self.failed:
            return f"failed, and so left out: {', '.join(self.failed)}"
        if self.intervals.combined is None:
            return ONE_SEED
        low, high = self.intervals.combined
        if low <= 0 <= high:
            return f"the combined interval, {low:.2f} to {high:.2f}, includes 0"
        return None

    @property
    def beats(self) -> bool:
        """Whether first beats second."""
        return self.inconclusive_reason is None and self.difference > 0

    def swapped(self) -> "Comparison":
        """Return the same comparison with first and second exchanged."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            differences=tuple(-difference for difference in self.differences),
            intervals=self.intervals.map(lambda interval: Interval(-interval.high, -interval.low)),
        )

    @property
    def verdict(self) -> str:
        """Who beats whom, or the reason why neither does."""
        winner = f"{self.first} beats {self.second}" if self.beats else f"{self.second} beats {self.first}"
        return self.inconclusive_reason or winner


def describe_p(p: float) -> str:
    """Format a p-value with two digits, as in "p = 0.0031"; below 0.0001 as "p < 0.0001"."""
    return f"p = {p:.2g}" if p >= 0.0001 else "p < 0.0001"


def compared_with(comparisons: Iterable[Comparison], label: str) -> dict[str, Comparison]:
    """Index the comparisons of a model, on one test set by one metric, by the other model, which is first."""
    both = (direction for each in comparisons for direction in (each, each.swapped()))
    return {each.first: each for each in both if each.second == label}


# Paired comparison of models on all test sets, over all seeds together, with Holm's correction.


logger = logging.getLogger(__name__)


TRIALS = 10_000


def compare_models(
    scored: Mapping[str, ScoredTestSet], *, baseline: str | None = None, trials: int | None = None
) -> list[Comparison]:
    """Compare every other model with ``baseline``, or all pairs of models, on every test set.

    Each pair is compared by BLEU and by chrF. Two models without a common seed are left out. A comparison
    takes about 0.5 s for 3 seeds and 1,000 sentences.

    Args:
        scored: the test sets by name, as ``score_tests`` returns them.
        baseline: a label; None compares all pairs, the model further down the table being the first.
        trials: trials of the approximate randomisation test; more if with these none could be significant.

    Returns:
        One comparison per test set, metric and pair, its ``p`` corrected for all of them.

    Raises:
        ValueError: the baseline does not exist, or two runs differ in the settings that a table shares.
    """
    for test in scored.values():
        _check_settings(test.settings)
    matched = match_runs(scored, baseline)
    trials = max(trials or TRIALS, round(len(matched) / ALPHA))  # the smallest p is 1 / (trials + 1)
    swaps = {test.name: swap_draws(len(test.references), trials) for test in scored.values()}
    comparisons = []
    for runs in matched:
        logger.info("paired tests on %s, %s: %s against %s", runs.test, runs.metric, *runs.labels)
        comparisons.append(_compare(runs, swaps[runs.test]))
    corrected = holm_correction([comparison.p_randomisation for comparison in comparisons])
    return [replace(comparison, p=p) for comparison, p in zip(comparisons, corrected, strict=True)]


def _compare(matched: MatchedRuns, swaps: BoolArray) -> Comparison:
    """Compare two models; ``p`` is not yet corrected."""
    first, second = zip(*matched.scores, strict=True)
    p = randomisation_p(
        [score.counts for score in first],
        [score.counts for score in second],
        COMPARED_METRICS[matched.metric].score,
        swaps,
    )
    differences = matched.differences
    return Comparison(
        test=matched.test,
        metric=matched.metric,
        first=matched.labels[0],
        second=matched.labels[1],
        seeds=matched.seeds,
        differences=tuple(differences.tolist()),
        intervals=confidence_intervals(differences, matched.resampled, matched.sentences),
        p_randomisation=p,
        p_bootstrap=bootstrap_p(float(differences.mean()), matched.resampled),
        p=p,
        failed=matched.failed,
    )


def _check_settings(settings: Mapping[str, str | None]) -> None:
    """Reject runs with different shared settings, given their hashes by the name of the run."""
    for run, value in settings.items():
        first, expected = next(iter(settings.items()))
        if value != expected:
            hashes = " and ".join((each or "not recorded")[:12] for each in (expected, value))
            raise ValueError(
                f"{first} and {run} were trained or decoded with different settings (settings_hash "
                f"{hashes}), so no test can compare their models: keep them in folders of their own"
            )


# The comparisons of a report, and the model that all others are set against.


MOST_COMPARISONS = 1_000
"""Maximum number of comparisons, 10 minutes for 3 seeds and 1,000 sentences.

If there are more, one model is compared with each of the others.
"""


def choose_reference(finished: FinishedExperiment, baseline: str) -> str:
    """Return the model to compare the others with: ``baseline``, or if empty, the highest ``mean_bleu``.

    Raises:
        ValueError: no finished model has that label.
    """
    if baseline:
        check_label(baseline, finished.labels)
        return baseline
    means = mean_bleu(finished)
    return max(means, key=lambda label: means[label])


def run_comparisons(scored: Mapping[str, ScoredTestSet], reference: str) -> list[Comparison]:
    """Compare all pairs of models; if that would take too long, ``reference`` with each other model."""
    return compare_models(scored, baseline=reference if len(match_runs(scored)) > MOST_COMPARISONS else None)


# Power of a comparison: how probable it was that a true difference would be found.
#
# The rule is that of ``Comparison``. k seeds, m tests made together.


POWER = 0.8
"""Power of the smallest difference that is reported, the usual choice (Cohen 1988)."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


class RulePower:
    """Probability that the rule of ``Comparison`` finds a true difference, given the variances.

    The variance over sentences counts as known. That over seeds is estimated anew by each experiment: k - 1
    times the estimate over its true value has a chi-squared distribution with k - 1 degrees of freedom, over
    whose quantiles the power is averaged. With one seed, a difference of these very models counts as found
    where it is significant on the test set.
    """

    def __init__(self, variances: Variances, seeds: int, sentences: int, tests: int) -> None:
        """Compute the threshold of the mean difference for each node of the integral.

        Args:
            variances: of the mean difference over seeds; true values.
            seeds: k.
            sentences: size of the test set.
            tests: m; the p-value must stay significant when multiplied by it, the worst case of Holm.
        """
        by_test_set = float(ndtri(1 - ALPHA / (2 * tests))) * math.sqrt(variances.sentences)
        self.standard_error = math.sqrt(variances.total)
        if seeds == 1:
            self.weights, self.thresholds = np.ones(1), np.array([by_test_set])
            return
        dof = seeds - 1
        ratios = chdtri(dof, (1 - _NODES) / 2) / dof  # of the estimated variance over seeds to the true one
        estimates = (variances._replace(seeds=variances.seeds * ratio) for ratio in ratios.tolist())
        widths = [combined_half_width(estimate, seeds, sentences) for estimate in estimates]
        self.weights, self.thresholds = _WEIGHTS / 2, np.maximum(by_test_set, widths)

    def __call__(self, difference: float) -> float:
        """Return the probability that a true ``difference`` above 0 is found."""
        if not self.standard_error:
            return float(difference > 0)
        return float(self.weights @ ndtr((difference - self.thresholds) / self.standard_error))

    def smallest_difference(self, power: float = POWER) -> float:
        """Return the smallest true difference that is found with probability ``power``."""
        if not self.standard_error:
            return 0.0
        highest = float(self.thresholds.max()) + 8 * self.standard_error
        return float(brentq(lambda difference: self(difference) - power, 0.0, highest))


def smallest_differences(matched: Sequence[MatchedRuns], tests: int) -> dict[tuple[str, str], float]:
    """Estimate the smallest true differences that an experiment would have found with a power of ``POWER``.

    Args:
        matched: the pairs of models.
        tests: number of comparisons made together.

    Returns:
        By test set and metric, the median over pairs of models.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for runs in matched:
        power = RulePower(
            estimate_variances(runs.differences, runs.resampled), len(runs.seeds), runs.sentences, tests
        )
        found.setdefault((runs.test, runs.metric), []).append(power.smallest_difference())
    return {key: median(differences) for key, differences in found.items()}


# Results with one row per model instead of one row per run: means, standard deviations, intervals.


_LIMIT = re.compile(r"(?P<metric>.+)_ci_(?P<end>low|high)(?P<suffix>(_.+)?)")
"""Column of a limit of the interval of one run; the suffix names a further test set."""


def aggregate_seeds(finished: FinishedExperiment, scored: Mapping[str, ScoredTestSet]) -> "pd.DataFrame":
    """Aggregate the runs of each label over their seeds.

    - A number becomes its mean, with the standard deviation over seeds beside it as ``<name>_sd`` (NaN for
      one seed). If one seed lacks the figure, there is no mean: over the remaining seeds it would be biased.
    - Any other value is kept if all seeds agree on it. ``seeds`` is the number of seeds.
    - The interval of each run is replaced by the intervals of the mean score: ``bleu_test_set_low``,
      ``bleu_seeds_low``, ``bleu_combined_low`` and the same with ``_high``. Columns of further test sets end
      in their name, as in ``bleu_seeds_low_test_long``. Without translations there is only the interval over
      seeds, and for one seed, which is its own mean, the interval of the run.
    - With translations, ``bleu_smallest_difference`` is the smallest true difference between two models that
      the experiment would have found, see ``smallest_differences``; also for chrF and further test sets.

    Args:
        finished: the experiment.
        scored: its test sets by name, as returned by ``score_tests``; empty if there are no translations.

    Returns:
        One row per label, in the order of the experiment's table, with the column names of its runs.
    """
    import pandas as pd

    test_by_suffix = {f"_{test}" if number else "": test for number, test in enumerate(scored)}
    suffixes = {test: suffix for suffix, test in test_by_suffix.items()}
    matched = match_runs(scored)
    smallest = {
        f"{metric}_smallest_difference{suffixes[test]}": difference
        for (test, metric), difference in smallest_differences(matched, len(matched)).items()
    }
    rows = []
    for label, runs in finished.labels.items():
        by_suffix = {
            suffix: list(scored[test].models[label].values()) for suffix, test in test_by_suffix.items()
        }
        rows.append(_aggregate_row([run.result.flat() for run in runs], by_suffix) | smallest)
    return pd.DataFrame(rows)


def _aggregate_row(seed_rows: Sequence[Row], scored: Mapping[str, Sequence[ScoredRun]]) -> Row:
    """Aggregate the rows of one label.

    Args:
        seed_rows: one row per seed.
        scored: the translations of the label, by suffix of the columns of their test set.

    Returns:
        One row; an interval that is not known is NaN, so that pandas gives its column a numeric type.
    """
    aggregate: Row = {}
    for name in dict.fromkeys(name for row in seed_rows for name in row):
        limit = _LIMIT.fullmatch(name)
        if name == "seed":
            aggregate["seeds"] = len(seed_rows)
        elif limit is None:
            values: list[Any] = [row.get(name) for row in seed_rows]
            aggregate[name] = seed_mean(values)
            if all(isinstance(value, int | float) for value in values):
                aggregate[f"{name}_sd"] = stdev(values) if len(values) > 1 else math.nan
        elif limit["end"] == "low":
            metric, suffix = limit["metric"], limit["suffix"]
            if suffix in scored and metric in COMPARED_METRICS:
                intervals = model_intervals([run.scores[metric] for run in scored[suffix]])
            else:
                intervals = _intervals_of_rows(seed_rows, metric, suffix)
            columns = intervals.columns(metric, suffix)
            aggregate |= {key: math.nan if value is None else value for key, value in columns.items()}
    return aggregate


def _intervals_of_rows(seed_rows: Sequence[Row], metric: str, suffix: str) -> Intervals:
    """Return the intervals of a mean that are known without the translations.

    The bootstrap intervals of several runs do not give that of their mean, because the runs are good and bad
    on the same sentences.
    """
    names = [f"{metric}{end}{suffix}" for end in ("", "_ci_low", "_ci_high")]
    if any(row.get(name) is None for row in seed_rows for name in names):
        return Intervals(None, None, None)
    score, low, high = names
    if len(seed_rows) == 1:
        return Intervals(Interval(seed_rows[0][low], seed_rows[0][high]), None, None)
    intervals = Intervals(None, seed_interval([row[score] for row in seed_rows]), None)
    return clip_intervals(intervals) if metric in COMPARED_METRICS else intervals


# Main outcome of an experiment, one sentence per model.


def headlines(finished: FinishedExperiment, comparisons: Sequence[Comparison]) -> list[str]:
    """Compare the best model with every other model, in the order of their BLEU.

    BLEU is the mean over seeds, without those with which another model failed: none is ahead because its bad
    seed is missing.

    Args:
        finished: the experiment.
        comparisons: comparisons by BLEU on its first test set.

    Returns:
        One sentence per other model, or the reason why there is no comparison; one that names the models that
        were not compared with the best, and one those of which runs failed and none ended.
    """
    failed = [label for label in finished.failed_seeds if label not in finished.labels]
    lost = [f"Not compared, as runs failed and none ended: {', '.join(failed)}."] if failed else []
    if not comparisons:
        only = len(finished.labels) == 1
        reason = (
            "There is one finished model, so nothing to compare." if only else "No two models share a seed."
        )
        return [reason, *lost]
    known = {label for each in comparisons for label in (each.first, each.second)}
    means = mean_bleu(finished)
    best, *others = sorted(means, key=lambda label: (label in known, means[label]), reverse=True)
    found = compared_with(comparisons, best)
    sentences = [describe_comparison(found[label], finished) for label in others if label in found]
    if missing := [label for label in others if label not in found]:
        sentences.append(f"Not compared with {best}: {', '.join(missing)}.")
    return [*sentences, *lost]


def describe_comparison(comparison: Comparison, finished: FinishedExperiment) -> str:
    """Describe a comparison in words, the model with the higher score first.

    Args:
        comparison: a comparison of two models of ``finished``.
        finished: the experiment, which has the training speeds.

    Returns:
        The difference with its p-value, or why it is inconclusive, and the ratio of the training speeds if
        their spreads do not overlap. The seeds are named where they are not all those of both models.
    """
    ordered = comparison if comparison.difference >= 0 else comparison.swapped()
    speed = _describe_speed(finished.labels[ordered.first], finished.labels[ordered.second])
    points = f"{_points(ordered.difference)} {METRICS[ordered.metric].heading}"
    if ordered.beats:
        seeds = _name_seeds(ordered, finished) or f", {len(ordered.seeds)} seeds"
        evidence = f"by {points} ({describe_p(ordered.p)}{seeds})"
        return f"{ordered.first} beats {ordered.second} {evidence}" + (f" and {speed}." if speed else ".")
    text = f"{ordered.first} is {points} ahead of {ordered.second}{_name_seeds(ordered, finished)}"
    if ordered.inconclusive_reason == ONE_SEED:
        text += f" ({describe_p(ordered.p)}): {ONE_SEED}."
    else:
        text += f" but cannot be said to beat it: {ordered.inconclusive_reason}."
    return text + (f" It {speed}." if speed else "")


def _points(difference: float) -> str:
    """Format a difference that is not negative; one that would be rounded to 0 as "less than 0.01"."""
    if difference >= 1:
        return f"{difference:.1f}"
    return f"{difference:.2f}" if difference >= 0.01 else "less than 0.01"


def _name_seeds(comparison: Comparison, finished: FinishedExperiment) -> str:
    """Name the seeds of a comparison if either model has others too."""
    every = {
        seed
        for label in (comparison.first, comparison.second)
        for seed in (run.result.seed for run in finished.labels[label])
    }
    if every == set(comparison.seeds):
        return ""
    number = "seeds" if len(comparison.seeds) > 1 else "seed"
    return f" on {number} {', '.join(map(str, comparison.seeds))}"


def _describe_speed(first: Sequence[FinishedRun], second: Sequence[FinishedRun]) -> str | None:
    """Compare training speeds; None unless they were timed together and their spreads do not overlap."""
    one, other = (timed_spread(runs, "train_tokens_per_s") for runs in (first, second))
    if one is None or other is None or not are_timed_together([*first, *second]):
        return None
    rates = [fmean(run.result.train_tokens_per_s or 0.0 for run in runs) for runs in (first, second)]
    if one.is_above(other):
        return f"trains {rates[0] / rates[1]:.1f} times faster"
    return f"trains {rates[1] / rates[0]:.1f} times slower" if other.is_above(one) else None


def mean_bleu(finished: FinishedExperiment) -> dict[str, float]:
    """Average BLEU on the first test set by label, over the seeds with which no model failed, if any."""
    models, failures = finished.labels, finished.failed_seeds
    failed = {seed for label in models for seed in failures.get(label, ())}
    means = {}
    for label, runs in models.items():
        scores = {run.result.seed: run.result.bleu or 0.0 for run in runs}
        means[label] = fmean([bleu for seed, bleu in scores.items() if seed not in failed] or scores.values())
    return means
