"""Aggregation over seeds and headlines, from made-up and from trained runs."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare.analysis.comparison import (
    Comparison,
    aggregate_seeds,
    compare_models,
    describe_comparison,
    headlines,
    smallest_differences,
)
from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, load_finished
from compare.analysis.intervals import (
    Interval,
    Intervals,
    match_runs,
    model_intervals,
    score_tests,
    t_quantile,
)
from compare.report.conditions import list_conditions
from compare.results.store import Result
from data.corpus import Corpus, Pairs

LINES = tuple(f"a line of {word} for the model to learn" for word in ("one", "two", "three", "four", "five"))
CORPUS = Corpus(
    name="made up",
    src_lang="en",
    tgt_lang="de",
    splits={"test": Pairs(LINES, LINES), "test_long": Pairs(LINES[:4], LINES[:4])},
)


def run_of(label: str, seed: int, wrong: int = 0, **figures: Any) -> FinishedRun:
    """Return a run with one wrong word in each of ``wrong`` lines; its training settings are not used."""
    lines = tuple(line.replace("model", "x") if i < wrong else line for i, line in enumerate(LINES))
    fields = {
        "train_tokens_per_s": 100.0,
        "device": "cpu",
        "precision": "fp32",
        "threads": 1,
        "torch": "2",
        "settings_hash": "5" * 64,
    } | figures
    result = Result(label=label, preset="lstm", seed=seed, status="done", **fields)
    result = replace(
        result, tests={"test_long": {"bleu": 50.0 + seed, "bleu_ci_low": 1.0, "bleu_ci_high": 2.0}}
    )
    outputs = {"test": lines, "test_long": lines[:4]}
    return FinishedRun(result=result, folder=Path(), run=None, outputs=outputs)  # type: ignore[arg-type]


def finished_of(*runs: FinishedRun, failed: Sequence[tuple[str, int]] = ()) -> FinishedExperiment:
    lost = [Result(label=label, preset="lstm", seed=seed, status="failed") for label, seed in failed]
    results = (*(run.result for run in runs), *lost)
    return FinishedExperiment(folder=Path(), corpus=CORPUS, runs=runs, results=results)


def test_numbers_become_means_and_deviations():
    """10, 13, 19: mean 14, squares of -4, -1 and 5 make 42, over two 21."""
    runs = [run_of("a", seed, bleu=bleu) for seed, bleu in ((1, 10.0), (2, 13.0), (3, 19.0))]
    finished = finished_of(*runs, run_of("b", 1, bleu=7.0))
    frame = aggregate_seeds(finished, score_tests(finished, resamples=20))
    first, second = frame.to_dict("records")
    assert (first["label"], first["seeds"], second["label"], second["seeds"]) == ("a", 3, "b", 1)
    assert (first["bleu"], first["bleu_sd"]) == pytest.approx((14, math.sqrt(21)))
    assert (first["bleu_test_long"], first["bleu_test_long_sd"]) == pytest.approx((52, 1))
    assert second["bleu"] == 7
    assert math.isnan(second["bleu_sd"])


def test_a_figure_missing_for_one_seed_is_missing_in_the_mean():
    finished = finished_of(run_of("a", 1, valid_loss=2.0, chrf=3.0), run_of("a", 2, chrf=5.0))
    (row,) = aggregate_seeds(finished, score_tests(finished, resamples=20)).to_dict("records")
    assert (row["valid_loss"], row["chrf"]) == (None, 4)


def test_equal_integers_and_strings_are_kept():
    runs = [run_of("a", seed, params=12, updates=seed, batch_hash=str(seed), beam=4) for seed in (1, 2)]
    finished = finished_of(*runs)
    (row,) = aggregate_seeds(finished, score_tests(finished, resamples=20)).to_dict("records")
    assert (row["params"], row["params_sd"], row["beam"], row["updates"]) == (12, 0, 4, 1.5)
    assert isinstance(row["params"], int)
    assert (row["preset"], row["device"], row["batch_hash"], row["status"]) == ("lstm", "cpu", None, "done")


def test_the_three_intervals_replace_that_of_a_run():
    finished = finished_of(
        run_of("a", 1, wrong=2, bleu=1.0), run_of("a", 2, wrong=4, bleu=2.0), run_of("b", 1)
    )
    scored = score_tests(finished, resamples=20)
    frame = aggregate_seeds(finished, scored)
    assert list(scored) == ["test", "test_long"]
    for suffix, test in (("", "test"), ("_test_long", "test_long")):
        expected = model_intervals([run.scores["bleu"] for run in scored[test].models["a"].values()])
        for kind, interval in expected._asdict().items():
            limits = frame.loc[0, [f"bleu_{kind}_low{suffix}", f"bleu_{kind}_high{suffix}"]]
            assert tuple(limits) == interval
    assert frame.loc[1, ["bleu_seeds_low", "bleu_combined_high"]].isna().all()
    alone = finished_of(run_of("b", 1, bleu=3.0))
    dtypes = aggregate_seeds(alone, score_tests(alone, resamples=20)).dtypes
    for name in ("bleu_sd", "bleu_seeds_low", "bleu_combined_high_test_long"):
        assert dtypes[name] == "float64"
    assert not [name for name in frame if "_ci_" in name or name == "seed"]
    names = list(frame)
    assert names[names.index("bleu") :][:3] == ["bleu", "bleu_sd", "bleu_test_set_low"]


def test_without_translations_only_the_interval_over_seeds_is_known():
    """Scores 10, 13, 19; that of one seed is its own mean, so that its bootstrap interval stays."""
    runs = [
        run_of("a", seed, bleu=bleu, bleu_ci_low=bleu - 1, bleu_ci_high=bleu + 1)
        for seed, bleu in enumerate((10.0, 13.0, 19.0))
    ]
    frame = aggregate_seeds(
        finished_of(*runs, run_of("b", 1, bleu=7.0, bleu_ci_low=5.0, bleu_ci_high=9.0)), {}
    )
    several, single = frame.to_dict("records")
    half = t_quantile(2) * math.sqrt(21 / 3)
    assert (several["bleu_seeds_low"], several["bleu_seeds_high"]) == pytest.approx((14 - half, 14 + half))
    assert math.isnan(several["bleu_test_set_low"])
    assert math.isnan(several["bleu_combined_high"])
    assert (several["bleu"], several["bleu_sd"]) == pytest.approx((14, math.sqrt(21)))
    assert (single["bleu_test_set_low"], single["bleu_test_set_high"]) == (5, 9)
    assert math.isnan(single["bleu_seeds_low"])
    half = t_quantile(2) / math.sqrt(3)  # scores 50, 51, 52
    assert several["bleu_seeds_high_test_long"] == pytest.approx(51 + half)
    assert not [name for name in frame if "smallest_difference" in name]


def test_limits_of_further_metrics_are_not_averaged():
    scores = [{"comet": 10.0 + seed, "comet_ci_low": 9.0, "comet_ci_high": 12.0} for seed in (0, 1)]
    finished = finished_of(*(run_of("a", seed, scores=score) for seed, score in enumerate(scores)))
    (row,) = aggregate_seeds(finished, score_tests(finished, resamples=20)).to_dict("records")
    assert not [name for name in row if "_ci_" in name]
    half = t_quantile(1) / 2
    assert (row["comet_seeds_low"], row["comet_seeds_high"]) == pytest.approx((10.5 - half, 10.5 + half))
    assert math.isnan(row["comet_test_set_low"])


def test_the_smallest_difference_is_that_of_all_comparisons():
    runs = [
        run_of(label, seed, wrong=wrong + seed) for label, wrong in (("a", 0), ("b", 2)) for seed in (1, 2)
    ]
    finished = finished_of(*runs)
    scored = score_tests(finished, resamples=50)
    matched = match_runs(scored)
    assert len(matched) == 4  # one pair, two metrics, two test sets
    found = smallest_differences(matched, 4)
    rows = aggregate_seeds(finished, scored).to_dict("records")
    for row in rows:
        assert row["bleu_smallest_difference"] == found["test", "bleu"] > 0
        assert row["chrf_smallest_difference_test_long"] == found["test_long", "chrf"]
    note = dict(list_conditions(rows, rows))[
        "Smallest difference that would be found with a probability of 80%, median over pairs of models"
    ]
    assert note.startswith(f"{found['test', 'bleu']:.1f} BLEU, {found['test', 'chrf']:.1f} chrF, ")
    assert note.endswith(f" BLEU on test_long, {found['test_long', 'chrf']:.1f} chrF on test_long")


def test_a_trained_experiment_is_aggregated(finished: Path):
    """With one seed, means and test set interval are the figures of the run."""
    read = load_finished(finished)
    frame = aggregate_seeds(read, score_tests(read))
    assert list(frame["label"]) == ["luong", "transformer"]
    for run, (_, row) in zip(read.runs, frame.iterrows(), strict=True):
        assert (row["bleu"], row["params"], row["seeds"]) == (run.result.bleu, run.result.params, 1)
        ends = (run.result.bleu_ci_low, run.result.bleu_ci_high)
        assert (row["bleu_test_set_low"], row["bleu_test_set_high"]) == pytest.approx(ends, abs=1e-3)


def compared(first: str, second: str, *differences: float, p: float = 0.003) -> Comparison:
    """Return a comparison whose interval over seeds excludes 0."""
    mean = sum(differences) / len(differences)
    interval = Interval(mean - abs(mean) / 2, mean + abs(mean) / 2)
    several = len(differences) > 1
    return Comparison(
        test="test",
        metric="bleu",
        first=first,
        second=second,
        seeds=tuple(range(1, len(differences) + 1)),
        differences=differences,
        intervals=Intervals(interval, interval if several else None, interval if several else None),
        p_randomisation=p,
        p_bootstrap=p,
        p=p,
        wins=1.0,
        losses=1.0,
        ties=1.0,
    )


def timed(rate: float, *, spread: float = 0.1, **figures: Any) -> dict[str, Any]:
    """Return the fields of a training speed with its spread."""
    ends = {"train_tokens_per_s_low": rate * (1 - spread), "train_tokens_per_s_high": rate * (1 + spread)}
    return {"train_tokens_per_s": rate, **ends, "timed_together": "a1", **figures}


def two(slow: float = 55.0, seeds: Sequence[int] = (1, 2, 3), **figures: Any) -> FinishedExperiment:
    """Return X and Y with these seeds each; X trains at ``slow`` tokens per second, Y at 100."""
    x = [run_of("X", seed, bleu=30.0, **timed(slow, **figures)) for seed in seeds]
    return finished_of(*x, *(run_of("Y", seed, bleu=20.0, **timed(100.0)) for seed in seeds))


@pytest.mark.parametrize(
    ("slow", "spread", "words"),
    [
        (55.0, 0.1, " and trains 1.8 times slower"),
        (250.0, 0.1, " and trains 2.5 times faster"),
        (121.0, 0.1, ""),  # 108.9 to 133.1 overlaps with 90 to 110
        (123.0, 0.1, " and trains 1.2 times faster"),  # from 110.7 on
        (80.0, 0.1, " and trains 1.2 times slower"),  # up to 88
        (82.0, 0.1, ""),
        (250.0, 0.9, ""),
    ],
)
def test_a_win_is_described_with_the_training_speed_beyond_its_spread(slow: float, spread: float, words: str):
    expected = f"X beats Y by 2.1 BLEU (p = 0.003, 3 seeds){words}."
    models = two(slow, spread=spread)
    assert describe_comparison(compared("X", "Y", 2.0, 2.1, 2.2), models) == expected
    assert describe_comparison(compared("Y", "X", -2.0, -2.1, -2.2), models) == expected


@pytest.mark.parametrize(
    "figures", [{"timed_together": "b2"}, {"timed_together": None}, {"train_tokens_per_s_low": None}]
)
def test_speeds_that_were_not_timed_together_are_not_compared(figures: dict[str, Any]):
    comparison = compared("X", "Y", 2.0, 2.1, 2.2)
    assert describe_comparison(comparison, two(**figures)) == "X beats Y by 2.1 BLEU (p = 0.003, 3 seeds)."


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (
            compared("X", "Y", 0.4, 0.5, p=0.12),
            "0.45 BLEU ahead of Y but cannot be said to beat it: p = 0.12 is",
        ),
        (
            compared("X", "Y", 12.5, p=0.001),
            "12.5 BLEU ahead of Y (p = 0.001): significant on this test set, with one seed.",
        ),
        (
            compared("X", "Y", 0.006, -0.002, p=0.9),
            "less than 0.01 BLEU ahead of Y but cannot be said to beat it: p = 0.9 is not below 0.05",
        ),
    ],
)
def test_an_inconclusive_comparison_gives_the_reason(comparison: Comparison, words: str):
    text = describe_comparison(comparison, two(seeds=comparison.seeds))
    assert text.startswith(f"X is {words}")
    assert text.endswith(". It trains 1.8 times slower.")


def test_seeds_are_named_where_the_models_have_others_too():
    both, one = compared("X", "Y", 2.0, 2.1), compared("X", "Y", 2.0)
    assert describe_comparison(both, two()).startswith("X beats Y by 2.0 BLEU (p = 0.003 on seeds 1, 2) and")
    assert describe_comparison(one, two()).startswith("X is 2.0 BLEU ahead of Y on seed 1 (p = 0.003): ")


def test_no_model_wins_by_a_seed_that_failed():
    """With its bad seed, which failed, X would be behind Y."""
    x = [run_of("X", seed, wrong=0, bleu=99.0) for seed in (1, 3)]
    y = [run_of("Y", seed, wrong=wrong, bleu=90.0 - wrong) for seed, wrong in ((1, 4), (2, 0), (3, 4))]
    finished = finished_of(*x, *y, failed=[("X", 2), ("Z", 1)])
    found = compare_models({"test": score_tests(finished, resamples=20)["test"]}, trials=300)
    assert {each.failed for each in found} == {("X seed 2",)}
    certain = [replace(each, p=0.001) for each in found if each.metric == "bleu"]
    assert certain[0].inconclusive_reason == "failed, and so left out: X seed 2"
    assert replace(certain[0], failed=()).inconclusive_reason is None
    first, second = headlines(finished, certain)
    assert first.startswith(f"X is {-certain[0].difference:.1f} BLEU ahead of Y on seeds 1, 3 but cannot be")
    assert first.endswith(" be said to beat it: failed, and so left out: X seed 2.")
    assert second == "Not compared, as runs failed and none ended: Z."


def test_models_are_ranked_without_the_seeds_that_failed():
    """By the mean of its own seeds, b is before a, which has a bad seed more: b failed with that one."""
    runs = [run_of("a", 1, bleu=30.0), run_of("a", 2, bleu=10.0)]
    runs += [run_of("b", 1, bleu=25.0), run_of("c", 1, bleu=28.0)]
    pairs = [compared("a", "b", 5.0), compared("a", "c", 2.0), compared("c", "b", 3.0)]

    def ranked(*failed: tuple[str, int]) -> list[str]:
        lines = headlines(finished_of(*runs, failed=failed), pairs)
        return [re.split(r" on seed| \(p", line)[0] for line in lines]

    assert ranked() == ["c is 3.0 BLEU ahead of b", "a is 2.0 BLEU ahead of c"]
    assert ranked(("b", 2)) == ["a is 2.0 BLEU ahead of c", "a is 5.0 BLEU ahead of b"]


@pytest.fixture
def four() -> Callable[..., list[str]]:
    """Return a function that gives the headlines of models a to d; by BLEU they rank c, a, d, b."""
    runs = [run_of(label, 1, bleu=bleu) for label, bleu in zip("abcd", (20.0, 10.0, 30.0, 15.0), strict=True)]

    def headlines_of(*pairs: str) -> list[str]:
        order = {label: position for position, label in enumerate("bdac")}
        comparisons = [compared(*pair, float(order[pair[0]] - order[pair[1]])) for pair in pairs]
        return [line.split(" (p =")[0] for line in headlines(finished_of(*runs), comparisons)]

    return headlines_of


def test_the_best_model_is_compared_with_every_other(four: Callable[..., list[str]]):
    all_pairs = ("ab", "ac", "ad", "bc", "bd", "cd")
    assert four(*all_pairs) == [
        "c is 1.0 BLEU ahead of a",
        "c is 2.0 BLEU ahead of d",
        "c is 3.0 BLEU ahead of b",
    ]


def test_models_that_were_not_compared_with_the_best_are_named(four: Callable[..., list[str]]):
    assert four("bd", "cd", "ad") == ["c is 2.0 BLEU ahead of d", "Not compared with c: a, b."]
    assert four("ab") == ["a is 2.0 BLEU ahead of b", "Not compared with a: c, d."]


ONLY = "There is one finished model, so nothing to compare."


def test_without_comparisons_the_reason_is_given():
    assert headlines(finished_of(run_of("a", 1)), []) == [ONLY]
    assert headlines(finished_of(run_of("a", 1), failed=[("Z", 1)]), []) == [
        ONLY,
        "Not compared, as runs failed and none ended: Z.",
    ]
    assert headlines(finished_of(run_of("a", 1), run_of("b", 2)), []) == ["No two models share a seed."]
