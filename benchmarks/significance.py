"""Measure by simulation how often the rules of comparisons are right.

    python benchmarks/significance.py > benchmarks/significance.md

Scores are means over sentences. The score of one seed of a model varies by the seed, by the sentences of the
test set, and by the interaction of both; a setting is their three standard deviations, in points. What is
hard for all models alike is left out, as it cancels out. Every simulated experiment goes through the code
that compares trained models.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from compare.analysis.comparison import ALIKE
from compare.analysis.cost import Curve, compare_slopes, find_crossing
from compare.analysis.statistics import (
    ALPHA,
    SampledScore,
    WelchTest,
    bootstrap_draws,
    estimate_variances,
    holm_correction,
    mean_score,
    welch_test,
)

N, RESAMPLES = 500, 400
"""Sentences of the test set, and resamples of the bootstrap."""
DRAWS = bootstrap_draws(N, RESAMPLES)
COUNTS = (2, 3, 5, 10)
"""Numbers of seeds."""

# One test set.


class Setting(NamedTuple):
    """Standard deviations of the score of one seed, by their source."""

    seeds: Sequence[float]
    """Of each model."""
    sentences: float = 0.27
    """Of the difference of two models."""
    interaction: float = 0.34


SETTINGS = {
    "alike seeds": Setting([0.0] * 4),
    "seeds 0.3": Setting([0.3] * 4),
    "seeds 0.5": Setting([0.5] * 4),
    "seeds 1": Setting([1.0] * 4),
    "seeds 3.6": Setting([3.6] * 4),
    "seeds 0.5, 0.7, 0.3 and 3.6": Setting([0.5, 0.7, 0.3, 3.6]),
    "seeds 0.5, sentences alone": Setting([0.5] * 4, 1.0, 0.0),
}
"""Spreads of four models; those of sentences and interaction were measured on Multi30k, as the sixth."""


def simulate(
    seeds: int, setting: Setting, experiments: int, gains: Sequence[float] = (), number: int = 0
) -> Iterator[list[list[SampledScore]]]:
    """Yield the scores of ``experiments`` by model and seed; ``gains`` raise the first models."""
    rng = np.random.default_rng([seeds, number, *(round(1000 * sd) for sd in (*setting.seeds, *setting[1:]))])
    models = len(setting.seeds)
    raised = np.array([*gains, *[0.0] * (models - len(gains))])
    for _ in range(experiments):
        of_seed = rng.normal(size=(models, seeds, 1)) * np.array(setting.seeds)[:, None, None]
        # Sentences that are hard for all models cancel out in a difference; these are hard for one model.
        of_model = rng.normal(scale=setting.sentences * (N / 2) ** 0.5, size=(models, 1, N))
        of_both = rng.normal(scale=setting.interaction * N**0.5, size=(models, seeds, N))
        values = raised[:, None, None] + of_seed + of_model + of_both
        yield [[SampledScore.of(run[:, None], _mean, DRAWS) for run in runs] for runs in values]


def _mean(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / N


class Rates(NamedTuple):
    """Shares of the simulated comparisons of two models, or of experiments."""

    coverage: float
    """Of 95% intervals that contain the true difference."""
    false_wins: float
    """Of the first pair, where both are equal."""
    false_families: float
    """Of experiments in which any of the six pairs is called a win, by Holm, where all are equal."""
    floored: float
    """Of the first pair, where both are equal and a variance over seeds is below the interaction: wins."""
    alike: float
    """Of the first pair, where both are equal: called alike."""
    false_alike: float
    """Of first models, better by 1 point: called alike."""
    power: float
    """Of first models, better by 1 point, that beat the second, as one of two."""
    promised: float
    """The same for the ``smallest_difference`` of a known variance, which should be 0.8."""


def rates(seeds: int, setting: Setting, experiments: int) -> Rates:
    """Simulate experiments of four models."""
    covered, wins, families, floored, alike = [], [], [], [], []
    for models in simulate(seeds, setting, experiments):
        tests = [welch_test(first, second) for first, second in combinations(models, 2)]
        covered += [test.interval().low <= 0 <= test.interval().high for test in tests]
        wins.append(tests[0].p < ALPHA)
        families.append(min(holm_correction([test.p for test in tests])) < ALPHA)
        alike.append(_is_alike(tests[0]))
        if any(map(_is_floored, models[:2])):
            floored.append(wins[-1])
    pair = setting._replace(seeds=setting.seeds[:2])
    better = [welch_test(*models) for models in simulate(seeds, pair, experiments, [1.0])]
    truth = _true_test(pair, seeds).smallest_difference(1)
    promised = [_wins(welch_test(*models)) for models in simulate(seeds, pair, experiments, [truth])]
    columns = covered, wins, families, floored, alike, map(_is_alike, better), map(_wins, better), promised
    return Rates(*(float(np.mean(list(column) or [math.nan])) for column in columns))


def _wins(test: WelchTest) -> bool:
    return test.p < ALPHA and test.difference > 0


def _is_alike(test: WelchTest) -> bool:
    return max(map(abs, test.interval(0.9))) < ALIKE


def _is_floored(runs: Sequence[SampledScore]) -> bool:
    variances = estimate_variances(
        np.array([run.score for run in runs]), np.stack([run.resampled for run in runs])
    )
    return variances.seeds < variances.interaction


def _true_test(setting: Setting, seeds: int) -> WelchTest:
    """Return the test of two models whose variances are known."""
    parts = [((sd**2 + setting.interaction**2) / seeds, seeds - 1) for sd in setting.seeds]
    return WelchTest.of(0.0, [*parts, (setting.sentences**2, N - 1)])


# The mean of three test sets.


class OutcomeRates(NamedTuple):
    """Shares of experiments of two models, by one test set and by the mean of three."""

    one_false_wins: float
    """Where both are equal."""
    one_power: float
    """Where the first is better by 0.9 points on each test set."""
    mean_false_wins: float
    mean_power: float


def outcome_rates(seeds: int, experiments: int, sd: float = 0.5, common: float = 0.35) -> OutcomeRates:
    """Simulate three test sets whose scores correlate over seeds.

    Args:
        seeds: of each model.
        experiments: number of experiments.
        sd: over seeds on one test set, without the interaction.
        common: share of its variance that the test sets have in common.
    """
    setting = Setting([sd * (1 - common) ** 0.5] * 2)
    rng = np.random.default_rng(seeds)
    shares = []
    for gain in (0.0, 0.9):
        tests = zip(
            *(simulate(seeds, setting, experiments, [gain], number) for number in (1, 2, 3)), strict=True
        )
        wins: list[tuple[bool, bool]] = []
        for sets in tests:
            shift = rng.normal(scale=sd * common**0.5, size=(2, seeds))
            moved = [
                [
                    [_moved(run, by) for run, by in zip(runs, shifts, strict=True)]
                    for runs, shifts in zip(models, shift, strict=True)
                ]
                for models in sets
            ]
            pooled = [
                [mean_score(scores) for scores in zip(*runs, strict=True)]
                for runs in zip(*moved, strict=True)
            ]
            wins.append((welch_test(*moved[0]).p < ALPHA, welch_test(*pooled).p < ALPHA))
        shares.append(np.mean(wins, axis=0))
    (one, mean), (one_power, mean_power) = shares
    return OutcomeRates(float(one), float(one_power), float(mean), float(mean_power))


def _moved(run: SampledScore, by: float) -> SampledScore:
    return SampledScore(units=run.units, score=run.score + by, resampled=run.resampled + by)


# Curves over budgets.


class CurveRates(NamedTuple):
    """Shares of experiments of two models at four budgets, each twice the one before."""

    slope_coverage: float
    """Of 95% intervals that contain the true difference of the slopes."""
    slope_false_wins: float
    """Where both slopes are equal."""
    slope_power: float
    """Where they differ by 0.5 points per doubling."""
    crossing_coverage: float
    """Of 95% intervals that contain the true crossing, in the middle of the budgets."""
    crossing_at_end: float
    """The same, where it is an eighth of a doubling before the largest budget."""


def curve_rates(seeds: int, experiments: int, sd: float = 0.35) -> CurveRates:
    """Simulate curves whose points vary by the seed of the whole curve, and by themselves.

    Args:
        seeds: of each model.
        experiments: number of experiments.
        sd: of each of the two.
    """
    rng = np.random.default_rng([seeds, round(1000 * sd)])
    costs = np.arange(4.0)

    def curve(label: str, truth: np.ndarray) -> Curve:
        noise = rng.normal(scale=sd, size=(seeds, 1)) + rng.normal(scale=sd, size=(seeds, 4))
        return Curve(label=label, updates=[1, 2, 4, 8], costs=2**costs, scores=truth + noise)

    columns: list[list[bool]] = [[], [], [], [], []]
    for _ in range(experiments):
        (equal,) = compare_slopes([(curve("a", costs), curve("b", costs))])
        (steeper,) = compare_slopes([(curve("a", 1.5 * costs), curve("b", costs))])
        low, high = steeper.test.interval()
        columns[0].append(low <= 0.5 <= high)
        columns[1].append(equal.p < ALPHA)
        columns[2].append(steeper.p < ALPHA and steeper.test.difference > 0)
        for column, left in zip(columns[3:], (1.5, 2.875), strict=True):
            crossing = find_crossing(curve("a", 0.5 * (costs - left)), curve("b", 0 * costs), resamples=2000)
            if crossing.interval is not None:
                column.append(crossing.interval.low <= 2**left <= crossing.interval.high)
    return CurveRates(*(float(np.mean(column or [math.nan])) for column in columns))


TEXT = """
False wins: the first two of four equal models; floored: the same, where their seeds vary less than the
interaction alone; alike: equal models shown to be so; false alike: models that differ by 1 point. Power: a
difference of 1 point; promised: one that should be detected four times out of five.
"""
OUTCOME_TEXT = """
Two models on three test sets, a third of whose variance over seeds (0.5) is common to all; by one of them
and by the mean of all. Power: a difference of 0.9 points on all three.
"""
CURVES_TEXT = """
Curves of two models at four budgets, each twice the one before: coverage of the 95% interval of the
difference of slopes, false wins, power for 0.5 points per doubling; coverage of the interval of the
crossing, in the middle and an eighth of a doubling before the end.
"""


def print_table(
    text: str, title: str, kind: type[NamedTuple], rows: Iterable[tuple[str, int, NamedTuple]]
) -> None:
    """Print a table of rates with its explanation."""
    names = kind._fields
    print(f"{text}\n| {title} | seeds | {' | '.join(name.replace('_', ' ') for name in names)} |")
    print("|---|--:|" + "--:|" * len(names))
    for name, seeds, result in rows:
        cells = ("–" if math.isnan(rate) else f"{rate:.3f}" for rate in result)
        print(f"| {name} | {seeds} | {' | '.join(cells)} |", flush=True)


def main(experiments: int) -> None:
    """Print the tables as Markdown."""
    print(__doc__.split("\n\n", 1)[1].replace("    python", "```\npython").replace(".md\n", ".md\n```\n", 1))
    error = (0.05 * 0.95 / experiments) ** 0.5
    print(f"{experiments:,} experiments per figure, {N} sentences; standard error {error:.4f} near 0.05.")
    every = ((name, k) for name in SETTINGS for k in COUNTS)
    tests = ((name, k, rates(k, SETTINGS[name], experiments)) for name, k in every)
    print_table(TEXT, "four models", Rates, tests)
    outcomes = (("seeds 0.5", k, outcome_rates(k, experiments)) for k in COUNTS)
    print_table(OUTCOME_TEXT, "outcome", OutcomeRates, outcomes)
    deviations = ((sd, k) for sd in (0.2, 0.35) for k in COUNTS)
    curves = ((f"seeds {sd}, points {sd}", k, curve_rates(k, experiments, sd)) for sd, k in deviations)
    print_table(CURVES_TEXT, "curves", CurveRates, curves)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)
