"""Measure by simulation how often the rule "A beats B" and the confidence intervals are right.

    python benchmarks/significance.py > benchmarks/significance.md

Scores are means over sentences. The difference of one seed between two models varies by the seed, by the
sentences of the test set, and by the interaction of both; a setting is their three standard deviations, in
points. Every simulated experiment goes through the code that compares trained models.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from compare.analysis.comparison import Comparison, RulePower
from compare.analysis.intervals import Variances, bootstrap_draws, confidence_intervals
from compare.analysis.statistics import FloatArray, holm_correction, randomisation_p, swap_draws

N, RESAMPLES, TRIALS = 500, 400, 2000
"""Sentences of the test set, resamples of the bootstrap, trials of the randomisation test."""
DRAWS = bootstrap_draws(N, RESAMPLES)
SWAPS = swap_draws(N, TRIALS)


class Setting(NamedTuple):
    """Standard deviations of the difference of one seed, by their source."""

    seeds: float
    sentences: float
    interaction: float = 0.0


POWER_SETTING, DIFFERENCE, TESTS = Setting(0.7, 0.6), 2.0, 6
"""Setting, true difference and number of tests (pairs of four models) of the table of power."""
FAMILY_NOTE = """\
Holm's correction is of the p-values, which know nothing of seeds; the interval is one per comparison. Where
seeds dominate, each pair has the error rate of its interval.
"""
SETTINGS = (
    Setting(0.0, 1.0),
    Setting(0.7, 0.6),
    Setting(1.0, 1.0),
    Setting(0.3, 0.6, 0.6),
    Setting(1.0, 0.3),
    Setting(1.0, 0.3, 0.3),
    Setting(1.0, 0.1),
)


def simulate_differences(
    seeds: int, setting: Setting, truth: float, experiments: int, draw: int = 0
) -> Iterator[FloatArray]:
    """Yield the differences of ``experiments`` by seed and sentence, each (k, N)."""
    rng = np.random.default_rng([draw, seeds, *(round(1000 * sd) for sd in setting)])
    scale = np.array(setting) * np.sqrt([1, N, N])
    for _ in range(experiments):
        sources = [rng.normal(size=shape) for shape in ((seeds, 1), (1, N), (seeds, N))]
        yield truth + sum(sd * source for sd, source in zip(scale, sources, strict=True))


def compare(differences: FloatArray, tests: int = 1) -> Comparison:
    """Compare two models by their differences (k, N); p is multiplied by ``tests``, Holm's worst case.

    Where the combined interval includes 0, which settles the verdict, p is not computed but set to 1.
    """
    scores = differences.mean(axis=1)
    intervals = confidence_intervals(scores, differences @ DRAWS.T / N, N)
    p = 1.0
    if intervals.combined.low > 0 or intervals.combined.high < 0:
        p = randomisation_p(
            [by_seed[:, None] for by_seed in differences],
            [np.zeros((N, 1))] * len(differences),
            lambda sums: sums[..., 0] / N,
            SWAPS,
        )
    return Comparison(
        test="simulated",
        metric="bleu",
        first="A",
        second="B",
        seeds=tuple(range(len(scores))),
        differences=tuple(scores.tolist()),
        intervals=intervals,
        p_randomisation=p,
        p_bootstrap=p,
        p=min(tests * p, 1.0),
    )


def power(seeds: int, experiments: int) -> float:
    """Return how often A beats B where its true score is higher by ``DIFFERENCE``."""
    simulated = simulate_differences(seeds, POWER_SETTING, DIFFERENCE, experiments)
    return float(np.mean([compare(differences, TESTS).beats for differences in simulated]))


class ErrorRates(NamedTuple):
    """Shares of experiments without a true difference."""

    coverage: float
    """In which the combined interval contains the true difference."""
    false_positives: float
    """In which one model beats the other, when they are the only two."""


def error_rates(seeds: int, setting: Setting, experiments: int) -> ErrorRates:
    """Simulate experiments of two equal models."""
    simulated = simulate_differences(seeds, setting, 0.0, experiments)
    comparisons = [compare(differences) for differences in simulated]
    covered = [each.intervals.combined.low <= 0 <= each.intervals.combined.high for each in comparisons]
    wins = [each.beats or each.swapped().beats for each in comparisons]
    return ErrorRates(float(np.mean(covered)), float(np.mean(wins)))


def family_error_rate(seeds: int, setting: Setting, experiments: int, models: int = 4) -> float:
    """Return how often any of several equal models beats another; Holm corrects for all pairs."""
    of_model = Setting(*(sd / 2**0.5 for sd in setting))
    families = zip(
        *(simulate_differences(seeds, of_model, 0.0, experiments, draw=model) for model in range(models)),
        strict=True,
    )
    errors = 0
    for scores in families:
        comparisons = [compare(first - second) for first, second in combinations(scores, 2)]
        corrected = holm_correction([each.p for each in comparisons])
        found = [replace(each, p=p) for each, p in zip(comparisons, corrected, strict=True)]
        errors += any(each.inconclusive_reason is None for each in found)
    return errors / experiments


def analytic_power(seeds: int) -> float:
    """Return the power that ``RulePower`` computes, which reports use for the smallest difference."""
    sd = POWER_SETTING
    variances = Variances(sd.sentences**2, sd.seeds**2 / seeds, 0.0)
    return RulePower(variances, seeds, N, TESTS)(DIFFERENCE)


def main(experiments: int) -> None:
    """Print the three tables as Markdown."""
    print(__doc__.split("\n\n", 1)[1].replace("    python", "```\npython").replace(".md\n", ".md\n```\n", 1))
    print(f"{experiments:,} experiments per figure, {N} sentences: a standard error of at most ", end="")
    print(f"{0.5 / experiments**0.5:.3f}, near 0.95 of {(0.95 * 0.05 / experiments) ** 0.5:.4f}.\n")
    print(f'## Power of "A beats B": true difference {DIFFERENCE}, p-values times {TESTS}\n')
    print("| seeds | simulated | computed (`RulePower`) |\n|---|---|---|")
    for seeds in (2, 3, 5, 10, 20):
        print(f"| {seeds} | {power(seeds, experiments):.3f} | {analytic_power(seeds):.3f} |", flush=True)
    print("\n## Two equal models: coverage of the combined interval / false positives of the rule\n")
    counts = (2, 3, 4, 5, 10)
    print("| seeds, sentences, interaction | " + " | ".join(f"{seeds} seeds" for seeds in counts) + " |")
    print("|---|" + "---|" * len(counts))
    for setting in SETTINGS:
        rates = [error_rates(seeds, setting, experiments) for seeds in counts]
        cells = [f"{rate.coverage:.3f} / {rate.false_positives:.3f}" for rate in rates]
        print(f"| {', '.join(map(str, setting))} | {' | '.join(cells)} |", flush=True)
    print("\n## Any false positive among the six pairs of four equal models\n")
    print(FAMILY_NOTE)
    print("| seeds, sentences, interaction | 3 seeds | 5 seeds |\n|---|---|---|")
    for setting in (SETTINGS[0], POWER_SETTING, Setting(1.0, 0.3)):
        family = [f"{family_error_rate(seeds, setting, experiments // 4):.3f}" for seeds in (3, 5)]
        print(f"| {', '.join(map(str, setting))} | {' | '.join(family)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
