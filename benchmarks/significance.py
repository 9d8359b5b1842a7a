"""Measure by simulation how often the rule "A beats B" and its interval are right.

    python benchmarks/significance.py > benchmarks/significance.md

Scores are means over sentences. The score of one seed of a model varies by the seed, by the sentences of the
test set, and by the interaction of both; a setting is their three standard deviations, in points. What is
hard for all models alike is left out, as it cancels out. Every simulated experiment goes through the code
that compares trained models.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from compare.analysis.statistics import (
    ALPHA,
    FloatArray,
    SampledScore,
    WelchTest,
    bootstrap_draws,
    holm_correction,
    welch_test,
)

N, RESAMPLES = 500, 400
"""Sentences of the test set, and resamples of the bootstrap."""
DRAWS = bootstrap_draws(N, RESAMPLES) / N


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
COUNTS = (2, 3, 5, 10)


def simulate(
    seeds: int, setting: Setting, experiments: int, gains: Sequence[float] = ()
) -> Iterator[list[list[SampledScore]]]:
    """Yield the scores of ``experiments`` by model and seed; ``gains`` raise the first models."""
    rng = np.random.default_rng([seeds, *(round(1000 * sd) for sd in (*setting.seeds, *setting[1:]))])
    models = len(setting.seeds)
    raised = np.array([*gains, *[0.0] * (models - len(gains))])
    for _ in range(experiments):
        of_seed = rng.normal(size=(models, seeds, 1)) * np.array(setting.seeds)[:, None, None]
        # What is hard for all models cancels out in a difference: here is what is hard for one of them.
        of_model = rng.normal(scale=setting.sentences * (N / 2) ** 0.5, size=(models, 1, N))
        of_both = rng.normal(scale=setting.interaction * N**0.5, size=(models, seeds, N))
        yield [list(map(_score, runs)) for runs in raised[:, None, None] + of_seed + of_model + of_both]


def _score(sentences: FloatArray) -> SampledScore:
    """Return the mean over sentences (N,), and over their resamples."""
    return SampledScore(
        counts=np.zeros((N, 1), dtype=np.int64), score=float(sentences.mean()), resampled=DRAWS @ sentences
    )


class Rates(NamedTuple):
    """Shares of the simulated comparisons of two models, or of experiments."""

    coverage: float
    """Of intervals that contain the true difference."""
    false_wins: float
    """Of the first pair, where both are equal."""
    false_families: float
    """Of experiments in which any of the six pairs is called a win, by Holm, where all are equal."""
    power: float
    """Of first models, better by 1 point, that beat the second, as one of two."""
    promised: float
    """The same for the ``smallest_difference`` of a known variance, which should be 0.8."""


def rates(seeds: int, setting: Setting, experiments: int) -> Rates:
    """Simulate experiments of four models."""
    covered, wins, families = [], [], []
    for models in simulate(seeds, setting, experiments):
        tests = [welch_test(first, second) for first, second in combinations(models, 2)]
        covered += [test.interval.low <= 0 <= test.interval.high for test in tests]
        wins.append(tests[0].p < ALPHA)
        families.append(min(holm_correction([test.p for test in tests])) < ALPHA)
    pair = setting._replace(seeds=setting.seeds[:2])
    found = [_wins(welch_test(*models)) for models in simulate(seeds, pair, experiments, [1.0])]
    truth = _true_test(pair, seeds).smallest_difference(1)
    promised = [_wins(welch_test(*models)) for models in simulate(seeds, pair, experiments, [truth])]
    return Rates(*(float(np.mean(each)) for each in (covered, wins, families, found, promised)))


def _wins(test: WelchTest) -> bool:
    return test.p < ALPHA and test.difference > 0


def _true_test(setting: Setting, seeds: int) -> WelchTest:
    """Return the test of two models whose variances are known."""
    parts = [((sd**2 + setting.interaction**2) / seeds, seeds - 1) for sd in setting.seeds]
    parts.append((setting.sentences**2, N - 1))
    variance = sum(part for part, _ in parts)
    return WelchTest(0.0, variance**0.5, variance**2 / sum(part**2 / dof for part, dof in parts))


def main(experiments: int) -> None:
    """Print the table as Markdown."""
    print(__doc__.split("\n\n", 1)[1].replace("    python", "```\npython").replace(".md\n", ".md\n```\n", 1))
    error = (0.05 * 0.95 / experiments) ** 0.5
    print(f"{experiments:,} experiments per figure, {N} sentences; standard error {error:.4f} near 0.05.")
    print(f"\n| four models | seeds | {' | '.join(name.replace('_', ' ') for name in Rates._fields)} |")
    print("|---|--:|" + "--:|" * len(Rates._fields))
    for name, setting in SETTINGS.items():
        for seeds in COUNTS:
            cells = [f"{rate:.3f}" for rate in rates(seeds, setting, experiments)]
            print(f"| {name} | {seeds} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
