"""Comparisons of models: pairs, the rule for "A beats B", means over seeds, and headlines."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compare.analysis import comparison
from compare.analysis.comparison import (
    Comparison,
    aggregate_seeds,
    compare_models,
    compared_with,
    describe_comparison,
    describe_p,
    headlines,
    mean_bleu,
    run_comparisons,
    smallest_differences,
)
from compare.analysis.finished_experiment import FinishedExperiment
from compare.analysis.intervals import (
    Interval,
    Intervals,
    ScoredTestSet,
    confidence_intervals,
    match_runs,
    model_intervals,
    score_test_set,
    score_tests,
    t_quantile,
)
from compare.analysis.statistics import holm_correction
from compare.report.conditions import SMALLEST, list_conditions
from tests.kits.finished_experiments import make_finished, pairs

REFERENCES = [f"the {noun} sat on the {place} {i}" for i in range(10) for noun in "ab" for place in "cd"]


def with_errors(*wrong: int) -> list[str]:
    """Return the references with one wrong word in the lines of these numbers."""
    return [line.replace("sat", "lay") if i in wrong else line for i, line in enumerate(REFERENCES)]


def worse(lines: int, seed: int) -> list[str]:
    """Return the references with ``lines`` + ``seed`` wrong lines, shifted by the seed."""
    return with_errors(*range(seed, lines + 2 * seed))


def scored(**outputs: dict[int, list[str]]) -> dict[str, ScoredTestSet]:
    return {"test": score_test_set("test", REFERENCES, outputs, resamples=50)}


OUTPUTS = {
    "bad": {seed: worse(25, seed) for seed in (3, 1, 2)},
    "good": {seed: worse(0, seed) for seed in (1, 2, 3)},
    "alike": {seed: worse(1, seed) for seed in (1, 2, 3)},
}
THREE = scored(**OUTPUTS)
PAIRS = [("good", "bad"), ("alike", "bad"), ("alike", "good")]


def test_each_model_is_compared_with_each_above_it_or_with_a_baseline(monkeypatch: pytest.MonkeyPatch):
    found = compare_models(THREE, trials=300)[:3]
    assert [(each.first, each.second) for each in found] == PAIRS
    assert {each.seeds for each in found} == {(1, 2, 3)}
    assert [each.beats for each in found] == [True, True, False]
    assert not any(each.swapped().beats for each in found)
    monkeypatch.setattr(comparison, "TRIALS", 300)
    monkeypatch.setattr(comparison, "MOST_COMPARISONS", 5)  # three pairs, two metrics
    against = run_comparisons(THREE, "good")[:2]
    assert [(each.first, each.second) for each in against] == [("bad", "good"), ("alike", "good")]
    monkeypatch.setattr(comparison, "MOST_COMPARISONS", 6)
    assert len(run_comparisons(THREE, "good")) == 6
    with pytest.raises(ValueError, match="no finished model is labelled 'god'; did you mean 'good'"):
        compare_models(THREE, baseline="god")


def test_every_test_set_and_metric_is_of_one_family():
    """Three pairs, two metrics and two test sets: p is corrected for twelve comparisons."""
    shorter = {label: {seed: lines[:30] for seed, lines in runs.items()} for label, runs in OUTPUTS.items()}
    together = compare_models({**THREE, "long": score_test_set("long", REFERENCES[:30], shorter)}, trials=300)
    assert [(each.test, each.metric, each.first, each.second) for each in together] == [
        (test, metric, *pair) for test in ("test", "long") for metric in ("bleu", "chrf") for pair in PAIRS
    ]
    assert [each.p for each in together] == holm_correction([each.p_randomisation for each in together])
    assert min(each.p for each in together) == pytest.approx(12 / 301)
    chrf, models = together[3], THREE["test"].models
    good, bad = ([models[label][s].scores["chrf"].score for s in (1, 2, 3)] for label in ("good", "bad"))
    assert chrf.differences == pytest.approx(np.subtract(good, bad))
    assert min(each.p for each in compare_models(THREE, trials=1)) < 0.05  # as many as it takes


def test_runs_are_paired_by_seed():
    """Models with partly different seeds in another order: runs of common seeds are paired."""
    test = scored(
        old={3: worse(25, 3), 2: worse(20, 2), 1: worse(15, 1)},
        new={4: REFERENCES, 1: worse(4, 1), 3: worse(2, 3)},
        alone={7: REFERENCES},
    )
    found, _ = compare_models(test, trials=200)  # no seed in common with "alone"
    models = test["test"].models
    new, old = ([models[label][seed].scores["bleu"] for seed in (1, 3)] for label in ("new", "old"))
    differences = np.array([one.score - other.score for one, other in zip(new, old, strict=True)])
    resampled = np.array([one.resampled - other.resampled for one, other in zip(new, old, strict=True)])
    assert (found.seeds, found.differences) == ((1, 3), tuple(differences))
    assert found.intervals == confidence_intervals(differences, resampled, 40)


def test_runs_of_different_settings_are_refused():
    (test,) = THREE.values()
    settings = {"bad-seed1": "a" * 64, "good-seed1": "a" * 64, "good-seed2": "b" * 64}
    with pytest.raises(ValueError, match=r"bad-seed1 and good-seed2 .* aaaaaaaaaaaa and bbbbbbbbbbbb"):
        compare_models({"test": replace(test, settings=settings)}, trials=200)


WON = Comparison(
    test="test",
    metric="bleu",
    first="new",
    second="old",
    seeds=(1, 2, 3),
    differences=(2.0, 2.5, 3.0),
    intervals=Intervals(Interval(1, 4), Interval(1.3, 3.7), Interval(0.5, 4.5)),
    p_randomisation=0.001,
    p_bootstrap=0.002,
    p=0.003,
)
ONE = Intervals(Interval(1, 4), None, None)


def combined(low: float, high: float) -> dict[str, Any]:
    return {"intervals": WON.intervals._replace(combined=Interval(low, high))}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"p": 0.05}, "p = 0.05 is not below 0.05"),
        ({"p": 0.0499}, None),
        ({"intervals": ONE}, "significant on this test set, with one seed"),
        ({"intervals": ONE, "p": 0.3}, "p = 0.3 is not below 0.05"),
        (combined(-0.456, 5), "the combined interval, -0.46 to 5.00, includes 0"),
        (combined(0, 5), "the combined interval, 0.00 to 5.00, includes 0"),
        ({"intervals": WON.intervals._replace(seeds=Interval(-1, 5), test_set=Interval(-1, 5))}, None),
        ({"p_randomisation": 0.3, "p_bootstrap": 0.3}, None),
        ({"failed": ("old seed 4",)}, "failed, and so left out: old seed 4"),
    ],
)
def test_a_win_requires_a_corrected_p_and_a_combined_interval_that_excludes_0(
    changes: dict[str, Any], reason: str | None
):
    found = replace(WON, **changes)
    assert found.inconclusive_reason == reason
    assert found.beats == (reason is None)
    assert not found.swapped().beats


def test_a_comparison_from_the_other_side():
    swapped = WON.swapped()
    assert (swapped.first, swapped.second, swapped.difference) == ("old", "new", -2.5)
    assert swapped.intervals.combined == (-4.5, -0.5)
    assert swapped.swapped() == WON
    assert WON.verdict == swapped.verdict == "new beats old"
    other = replace(WON, first="third")
    assert compared_with([WON, other], "old") == {"new": WON, "third": other}
    assert compared_with([WON, other], "new") == {"old": swapped}
    words = {1.0: "p = 1", 0.0312: "p = 0.031", 0.0001: "p = 0.0001", 5e-5: "p < 0.0001"}
    assert [describe_p(p) for p in words] == list(words.values())


# Means over seeds.

LINES = [f"a line of {word} for the model to learn" for word in ("one", "two", "three", "four", "five")]
Figures = dict[tuple[str, int], dict[str, Any]]


def finished_of(
    folder: Path, figures: Figures, wrong: dict[tuple[str, int], int] | None = None, **options: Any
) -> FinishedExperiment:
    """Return runs with figures, and one wrong word in so many lines; BLEU of test_long is 50 + seed."""
    tests = {
        name: pairs(*((line, line) for line in LINES[:size]))
        for name, size in (("test", 5), ("test_long", 4))
    }
    outputs, results = {}, {}
    for run, values in figures.items():
        spoilt = (wrong or {}).get(run, 0)
        lines = [line.replace("model", "x") if i < spoilt else line for i, line in enumerate(LINES)]
        outputs[run] = {"test": lines, "test_long": lines[:4]}
        further = {"test_long": {"bleu": 50.0 + run[1], "bleu_ci_low": 1.0, "bleu_ci_high": 2.0}}
        results[run] = {"settings_hash": "5" * 64, "tests": further} | values
    return make_finished(
        folder, train=tests["test"], tests=tests, outputs=outputs, results=results, **options
    )


def test_figures_become_means_deviations_and_three_intervals(tmp_path: Path):
    """10, 13, 19: mean 14, squares of -4, -1 and 5 make 42, over two 21."""
    common = {"params": 12, "beam": 4}
    figures: Figures = {
        ("a", seed): common | {"bleu": bleu, "updates": seed, "batch_hash": str(seed), "chrf": chrf}
        for seed, bleu, chrf in ((1, 10.0, None), (2, 13.0, 3.0), (3, 19.0, 5.0))
    }
    figures |= {("b", seed): {"bleu": 7.0} for seed in (1, 2, 3)} | {("c", 1): {"bleu": 7.0}}
    finished = finished_of(tmp_path, figures, {("a", 1): 2, ("a", 2): 4, ("b", 1): 1})
    scores = score_tests(finished, resamples=20)
    frame = aggregate_seeds(finished, scores)
    first, second, third = frame.to_dict("records")
    assert [(row["label"], row["seeds"]) for row in (first, second, third)] == [("a", 3), ("b", 3), ("c", 1)]
    assert (first["bleu"], first["bleu_sd"]) == pytest.approx((14, math.sqrt(21)))
    assert (first["bleu_test_long"], first["bleu_test_long_sd"]) == pytest.approx((52, 1))
    assert first["chrf"] is None or math.isnan(first["chrf"])  # one seed lacks it
    assert (first["params"], first["params_sd"], first["beam"], first["updates"]) == (12, 0, 4, 2)
    assert (first["preset"], first["batch_hash"], first["status"]) == ("lstm", None, "done")
    assert math.isnan(third["bleu_sd"])
    matched = match_runs(scores)
    smallest = smallest_differences(matched, len(matched))
    for suffix, test in (("", "test"), ("_test_long", "test_long")):
        expected = model_intervals([run.scores["bleu"] for run in scores[test].models["a"].values()])
        for kind, interval in expected._asdict().items():
            assert (first[f"bleu_{kind}_low{suffix}"], first[f"bleu_{kind}_high{suffix}"]) == interval
        assert first[f"bleu_smallest_difference{suffix}"] == smallest[test, "bleu"] > 0
    assert not [name for name in frame if "_ci_" in name or name == "seed"]
    rows = frame.to_dict("records")
    note = dict(list_conditions(rows, rows))[SMALLEST]
    assert note.startswith(f"{smallest['test', 'bleu']:.1f} BLEU, {smallest['test', 'chrf']:.1f} chrF, ")


def test_without_translations_only_the_interval_over_seeds_is_known(tmp_path: Path):
    """Scores 10, 13, 19; that of one seed is its own mean, so that its bootstrap interval stays."""
    figures: Figures = {
        ("a", seed): {"bleu": bleu, "bleu_ci_low": bleu - 1, "bleu_ci_high": bleu + 1}
        | {"scores": {"comet": bleu, "comet_ci_low": 9.0, "comet_ci_high": 12.0}}
        for seed, bleu in enumerate((10.0, 13.0, 19.0))
    }
    single = {"bleu": 7.0, "bleu_ci_low": 5.0, "bleu_ci_high": 9.0}
    finished = finished_of(tmp_path, figures | {("b", 1): single})
    frame = aggregate_seeds(finished, {})
    several, one = frame.to_dict("records")
    half = t_quantile(2) * math.sqrt(21 / 3)
    for metric in ("bleu", "comet"):  # a metric from outside too; its limits are not averaged
        ends = several[f"{metric}_seeds_low"], several[f"{metric}_seeds_high"]
        assert ends == pytest.approx((14 - half, 14 + half))
        assert math.isnan(several[f"{metric}_test_set_low"])
    assert several["bleu_seeds_high_test_long"] == pytest.approx(51 + t_quantile(2) / math.sqrt(3))
    assert (one["bleu_test_set_low"], one["bleu_test_set_high"]) == (5, 9)
    assert math.isnan(one["bleu_seeds_low"])
    assert not [name for name in frame if "smallest_difference" in name or "_ci_" in name]


# Headlines.


def compared(first: str, second: str, *differences: float, p: float = 0.003) -> Comparison:
    """Return a comparison whose interval over seeds excludes 0."""
    mean = sum(differences) / len(differences)
    interval = Interval(mean - abs(mean) / 2, mean + abs(mean) / 2)
    several = interval if len(differences) > 1 else None
    return replace(
        WON,
        first=first,
        second=second,
        seeds=tuple(range(1, len(differences) + 1)),
        differences=differences,
        intervals=Intervals(interval, several, several),
        p=p,
    )


def two(
    folder: Path, slow: float = 55.0, seeds: Sequence[int] = (1, 2, 3), **changes: Any
) -> FinishedExperiment:
    """Return X and Y with these seeds each; X trains at ``slow`` tokens per second, Y at 100, both +- 10%."""
    figures: Figures = {}
    for label, bleu, rate in (("X", 30.0, slow), ("Y", 20.0, 100.0)):
        timing = {"train_tokens_per_s": rate, "timed_together": "a1"}
        timing |= {"train_tokens_per_s_low": rate * 0.9, "train_tokens_per_s_high": rate * 1.1}
        own = changes if label == "X" else {}
        figures |= {(label, seed): {"bleu": bleu} | timing | own for seed in seeds}
    return finished_of(folder, figures)


@pytest.mark.parametrize(
    ("slow", "changes", "words"),
    [
        (55.0, {}, " and trains 1.8 times slower"),
        (121.0, {}, ""),  # 108.9 to 133.1 overlaps with 90 to 110
        (123.0, {}, " and trains 1.2 times faster"),  # from 110.7 on
        (55.0, {"timed_together": "b2"}, ""),
    ],
)
def test_a_win_is_described_with_the_training_speed_beyond_its_spread(
    tmp_path: Path, slow: float, changes: dict[str, Any], words: str
):
    models = two(tmp_path, slow, **changes)
    for found in (compared("X", "Y", 2.0, 2.1, 2.2), compared("Y", "X", -2.0, -2.1, -2.2)):
        assert describe_comparison(found, models) == f"X beats Y by 2.1 BLEU (p = 0.003, 3 seeds){words}."


def test_an_inconclusive_comparison_gives_the_reason_and_other_seeds_are_named(tmp_path: Path):
    cases = {
        compared("X", "Y", 0.4, 0.5, p=0.12): "0.45 BLEU ahead of Y on seeds 1, 2 but cannot be said to beat "
        "it: p = 0.12 is not below 0.05.",
        compared("X", "Y", 12.5, p=0.001): "12.5 BLEU ahead of Y on seed 1 (p = 0.001): significant on this "
        "test set, with one seed.",
        compared("X", "Y", 0.006, -0.002, 0.0, p=0.9): "less than 0.01 BLEU ahead of Y but cannot be said to "
        "beat it: p = 0.9 is not below 0.05.",
    }
    models = two(tmp_path)
    for found, words in cases.items():
        assert describe_comparison(found, models) == f"X is {words} It trains 1.8 times slower."
    both = describe_comparison(compared("X", "Y", 2.0, 2.1), models)
    assert both.startswith("X beats Y by 2.0 BLEU (p = 0.003 on seeds 1, 2) and")


def test_no_model_wins_by_a_seed_that_failed(tmp_path: Path):
    """With its bad seed, which failed, X would be behind Y."""
    wrong = {("X", 1): 0, ("X", 3): 0, ("Y", 1): 4, ("Y", 2): 0, ("Y", 3): 4}
    figures: Figures = {run: {"bleu": 99.0 - spoilt} for run, spoilt in wrong.items()}
    finished = finished_of(tmp_path, figures, wrong, failed=[("X", 2), ("Z", 1)])
    found = compare_models({"test": score_tests(finished, resamples=20)["test"]}, trials=300)
    assert {each.failed for each in found} == {("X seed 2",)}
    certain = [replace(each, p=0.001) for each in found if each.metric == "bleu"]
    assert replace(certain[0], failed=()).inconclusive_reason is None
    first, second = headlines(finished, certain)
    assert first.startswith(f"X is {-certain[0].difference:.1f} BLEU ahead of Y on seeds 1, 3 but cannot be")
    assert first.endswith(" be said to beat it: failed, and so left out: X seed 2.")
    assert second == "Not compared, as runs failed and none ended: Z."


def test_the_best_model_is_compared_with_every_other_and_the_rest_is_named(tmp_path: Path):
    """By BLEU the models rank c, a, d, b."""
    scores = dict(zip("abcd", (20.0, 10.0, 30.0, 15.0), strict=True))
    finished = finished_of(tmp_path / "four", {(label, 1): {"bleu": bleu} for label, bleu in scores.items()})

    def found(*labels: str) -> list[str]:
        order = {label: position for position, label in enumerate("bdac")}
        comparisons = [compared(*pair, float(order[pair[0]] - order[pair[1]])) for pair in labels]
        return [line.split(" (p =")[0] for line in headlines(finished, comparisons)]

    ahead = [f"c is {points} BLEU ahead of {label}" for points, label in ((1.0, "a"), (2.0, "d"), (3.0, "b"))]
    assert found("ab", "ac", "ad", "bc", "bd", "cd") == ahead
    assert found("bd", "cd", "ad") == [ahead[1], "Not compared with c: a, b."]
    assert found() == ["No two models share a seed."]


def test_means_are_without_the_seeds_that_failed(tmp_path: Path):
    """Else b would be before a, which has a bad seed more."""
    figures = {("a", 1): {"bleu": 30.0}, ("a", 2): {"bleu": 10.0}, ("b", 1): {"bleu": 25.0}}
    for failed, best in (((), "b"), ((("b", 2),), "a")):
        means = mean_bleu(finished_of(tmp_path / best, figures, failed=failed))
        assert max(means, key=means.get) == best
