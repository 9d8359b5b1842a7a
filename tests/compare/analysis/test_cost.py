"""Curves of scores over training costs: slopes, crossings and their intervals, time to quality, sentences."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import linregress, ttest_1samp, ttest_ind

from benchmarks.significance import curve_rates
from compare.analysis.comparison import Comparison
from compare.analysis.cost import (
    Curve,
    budget_table,
    compare_slopes,
    describe_costs,
    describe_curves,
    find_crossing,
    make_curves,
    name_leaders,
    progress,
    time_to_quality,
)
from compare.analysis.statistics import FloatArray, Interval, holm_correction
from compare.results.formatting import Row
from tests.kits.experiments import make_finished, pairs

BUDGETS = [1000, 2000, 4000, 8000]
COSTS = np.array([1e14, 2e14, 4e14, 8e14])
LINES = pairs(("a", "x"))


def curve(label: str, *scores: list[float], costs: FloatArray = COSTS) -> Curve:
    return Curve(label=label, updates=BUDGETS, costs=costs, scores=np.array(scores))


def noisy(label: str, means: list[float], seed: int, sd: float = 0.3, seeds: int = 5) -> Curve:
    rng = np.random.default_rng(seed)
    return curve(label, *(np.array(means) + rng.normal(scale=sd, size=(seeds, 4))).tolist())


FLAT, STEEP = noisy("flat", [38, 38.5, 39, 39.5], 1), noisy("steep", [36, 37.6, 39.2, 40.8], 2)


def point(label: str, seed: int, updates: int, flops: float, bleu: float | None) -> Row:
    """Return a row of ``cost_points``: a minute per thousand updates."""
    return {
        **{"label": label, "seed": seed, "updates": updates, "flops": flops, "bleu": bleu},
        **{"minutes": updates / 1000, "loss": 1.0, "outcome": "test"},
    }


def train_line(update: int, tokens: int) -> dict[str, object]:
    line = {"kind": "train", "update": update, "src_tokens": tokens, "tgt_tokens": 2 * tokens}
    return line | {"updates": 1, "tokens_per_s": 1.0, "data_s": 1.0, "train_s": 1.0}


def valid_line(update: int, seconds: float, bleu: float) -> dict[str, object]:
    return {"kind": "valid", "update": update, "seconds": seconds, "loss": 10 - bleu, "bleu": bleu}


def test_progress_sums_training_costs(tmp_path: Path):
    finished = make_finished(
        tmp_path,
        train=LINES,
        tests={"test": LINES},
        outputs={("a", 1): {"test": ["x"]}, ("b", 2): {"test": ["x"]}},
        results={("a", 1): {"train_flops_per_token": 1e6, "energy_j_per_1k_tokens": 4.0}},
    )
    log = [train_line(5, 100), train_line(10, 200), valid_line(10, 8.0, 1.0)]
    log += [train_line(15, 300), train_line(20, 400)]
    log += [valid_line(20, 16.0, 3.0)]
    log += [{"kind": "average", "update": 20, "minutes": 17.0, "loss": 0.0, "bleu": 50.0}]
    for run in finished.runs:
        (run.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    names = ("label", "seed", "minutes", "updates", "tokens", "flops", "joules", "loss", "bleu")
    assert [[row[name] for name in names] for row in progress(finished).rows] == [
        ["a", 1, 8 / 60, 10, 900, 9e8, 3.6, 9.0, 1.0],
        ["a", 1, 16 / 60, 20, 3_000, 3e9, 12.0, 7.0, 3.0],
        ["b", 2, 8 / 60, 10, 900, None, None, 9.0, 1.0],
        ["b", 2, 16 / 60, 20, 3_000, None, None, 7.0, 3.0],
    ]


def test_curves_are_built_of_the_budgets_that_all_seeds_have():
    """Costs are means, as tokens seen differ by seed."""
    points = [
        point("a", seed, budget, flops * budget, 30.0 + seed + budget / 1000)
        for seed, flops in ((1, 1e11), (2, 3e11))
        for budget in (4000, 1000, 2000)
    ]
    (trimmed,) = make_curves([*points, point("a", 1, 8000, 8e14, 40.0)]).values()
    assert list(trimmed.updates) == [1000, 2000, 4000]
    assert trimmed.costs == pytest.approx([2e14, 4e14, 8e14])
    assert trimmed.scores.tolist() == [[32, 33, 35], [33, 34, 36]]
    (minutes,) = make_curves(points, "bleu", "minutes").values()
    assert minutes.costs.tolist() == [1, 2, 4]
    assert make_curves([point("lm", 1, 1000, 1e14, None)]) == {}


def test_the_table_by_budget_has_means_deviations_and_slopes():
    points = [point("a", seed, 1000 * 2**n, 1e14 * 2**n, 30 + n + seed) for seed in (1, 2) for n in range(3)]
    points += [point("b", 1, 1000, 1e14, 9.0), point("b", 1, 2000, 2e14, 9.5)]
    table = budget_table(points)
    assert table.headings[2:] == [
        *("1,000 updates", "2,000 updates", "4,000 updates", "BLEU per doubling of FLOPs", "95% interval")
    ]
    assert table.cells == [
        ["a", "2", "31.5 ± 0.7", "32.5 ± 0.7", "33.5 ± 0.7", "1.00", "[1.00, 1.00]"],
        ["b", "1", "9.0", "9.5", "–", "0.50", "–"],
    ]


def test_time_to_quality_is_that_of_the_mean_curve():
    """A level between two points is reached at the same share of the doubling."""
    points = [point("a", 1, 1000, 1e14, 20.0), point("a", 1, 4000, 4e14, 31.0)]
    points += [
        point("a", 2, 1000, 1e14, 20.0),
        point("a", 2, 4000, 4e14, 29.0),
        point("b", 1, 1000, 1e14, 28.5),
    ]
    assert time_to_quality(points, [25, 28, 29]).rows == [
        {
            **{"label": "a", "minutes_to_25": 2.0, "updates_to_25": 2000},
            **{"minutes_to_28": pytest.approx(4**0.8), "updates_to_28": round(1000 * 4**0.8)},
            **{"minutes_to_29": pytest.approx(4**0.9), "updates_to_29": round(1000 * 4**0.9)},
        },
        {
            **{"label": "b", "minutes_to_25": 1.0, "updates_to_25": 1000, "minutes_to_28": 1.0},
            **{"updates_to_28": 1000, "minutes_to_29": None, "updates_to_29": None},
        },
    ]
    assert [name for name in time_to_quality(points).rows[0] if "minutes" in name] == [
        *("minutes_to_24", "minutes_to_26", "minutes_to_28")
    ]
    with pytest.raises(ValueError, match="language models have no BLEU"):
        time_to_quality([point("lm", 1, 1000, 1e14, None)])


@pytest.mark.parametrize(
    ("means", "leaders"),
    [
        (
            {"flat": [38, 38.5, 39, 39.5], "steep": [36, 37.6, 39.2, 40.8], "low": [1, 1, 1, 1]},
            "flat has the highest BLEU up to 3.5e14 training FLOPs, steep beyond",
        ),
        ({"flat": [38] * 4, "low": [1, 2, 3, 4]}, "flat has the highest BLEU at every training cost"),
        (
            {"a": [3, 2, 1, 1], "b": [2, 3, 2, 2], "c": [1, 2, 3, 3]},
            "a has the highest BLEU at the lowest training cost, c at the highest",
        ),
        ({"alone": [1, 2, 3, 4]}, ""),
    ],
)
def test_the_leaders_are_named_in_one_line(means: dict[str, list[float]], leaders: str):
    curves = {label: curve(label, scores) for label, scores in means.items()}
    assert name_leaders(curves, "bleu", "flops") == leaders


def test_slopes_and_their_tests_are_those_of_scipy():
    curves = [noisy(name, [30, 31, 32, 33 + i], i) for i, name in enumerate("abc")]
    slopes = [[linregress(np.log2(line.costs), row).slope for row in line.scores] for line in curves]
    assert [line.slopes.tolist() for line in curves] == [pytest.approx(line) for line in slopes]
    expected = ttest_1samp(slopes[0], 0).confidence_interval()
    assert curves[0].slope_interval == pytest.approx(tuple(expected))
    differences = compare_slopes([(curves[0], curves[1]), (curves[0], curves[2])])
    tests = [ttest_ind(slopes[0], other, equal_var=False) for other in slopes[1:]]
    assert [difference.test.p for difference in differences] == pytest.approx([test.pvalue for test in tests])
    assert differences[1].test.interval() == pytest.approx(tuple(tests[1].confidence_interval()))
    assert [difference.p for difference in differences] == pytest.approx(
        holm_correction([test.pvalue for test in tests])
    )
    assert str(differences[0]).startswith("Each doubling of the training FLOPs adds ")
    with pytest.raises(ValueError, match=r"^one has one seed; comparing slopes needs two or more$"):
        compare_slopes([(curves[0], curve("one", [1, 2, 3, 4]))])


def test_a_level_is_reached_where_the_mean_curve_meets_it():
    """The means are 20, 30, 30, 40: 25 is half a doubling after the first budget."""
    rising = curve("a", [19, 31, 29, 40], [21, 29, 31, 40])
    assert [rising.cost_of(score) for score in (19, 25, 30, 40, 41)] == [
        *(pytest.approx(cost) for cost in (1e14, 1e14 * 2**0.5, 2e14, 8e14)),
        None,
    ]


def test_crossings_by_hand():
    """b is 1 behind and then 1 ahead: the lines cross in the middle of the second doubling."""
    one, other = curve("a", [30, 31, 32, 33]), curve("b", [28, 30, 33, 36])
    crossing = find_crossing(one, other)
    assert (crossing.leader, crossing.interval, crossing.several) == ("b", None, False)
    assert crossing.cost == pytest.approx(2e14 * 2**0.5)
    assert find_crossing(other, one) == crossing
    assert find_crossing(one, replace(other, scores=other.scores - 9))[:2] == ("a", 0)
    assert find_crossing(one, replace(other, scores=one.scores)).cost == np.inf
    twice = curve("c", [31, 30, 33, 34])
    assert find_crossing(one, twice) == ("c", pytest.approx(2e14 * 2**0.5), None, True)
    moved = replace(other, costs=2 * COSTS, scores=other.scores - 1)  # a ends where b is at 32
    assert find_crossing(one, moved)[:2] == ("a", 0)
    with pytest.raises(ValueError, match="a and b have no training costs in common"):
        find_crossing(one, replace(other, costs=8 * COSTS))


def test_the_interval_of_a_crossing_is_a_bootstrap_over_seeds():
    """It contains the true crossing, shrinks with the noise, and is open where curves may not cross."""
    crossing = find_crossing(FLAT, STEEP)
    assert crossing.interval is not None
    assert crossing.interval.low < crossing.cost < crossing.interval.high
    assert crossing.interval.low < 1e14 * 2 ** (2 / 1.1) < crossing.interval.high
    quiet = [
        noisy(line.label, means, 1, sd=0.01)
        for line, means in ((FLAT, [38, 38.5, 39, 39.5]), (STEEP, [36, 37.6, 39.2, 40.8]))
    ]
    narrow = find_crossing(*quiet).interval
    assert narrow is not None
    assert narrow.high - narrow.low < 0.1 * (crossing.interval.high - crossing.interval.low)
    open_end = find_crossing(noisy("a", [30] * 4, 1, sd=1), noisy("b", [30, 30, 30, 30.5], 2, sd=1)).interval
    assert open_end is not None
    assert open_end.high == np.inf
    few = [replace(line, scores=line.scores[:2]) for line in (FLAT, STEEP)]
    assert find_crossing(*few).interval is None


def test_the_interval_of_a_crossing_has_expanded_percentiles():
    """With five seeds, each tail has 0.1%; by t alone it would have 0.3%.

    Two seeds of each model delay the crossing: of ten that are drawn, nine do so in 0.17%, eight in 1.2%.
    """
    flat = curve("flat", *[[30.0] * 4] * 3, *[[31.0] * 4] * 2)
    steep = curve("steep", *[[28.0, 30, 32, 34]] * 3, *[[27.0, 29, 31, 33]] * 2)
    assert find_crossing(flat, steep).interval == pytest.approx((2e14, 1e14 * 2**1.9))


def test_intervals_of_slopes_and_crossings_cover_the_truth():
    """400 experiments of five seeds: a standard error of 1.1%."""
    measured = curve_rates(5, 400)
    assert 0.92 <= measured.slope_coverage <= 0.98
    assert measured.slope_false_wins <= 0.08
    assert measured.slope_power > 0.8
    assert measured.crossing_coverage >= 0.92
    assert measured.crossing_at_end >= 0.92


VERDICT = Comparison(
    first="flat",
    second="steep",
    seeds=(5, 5),
    difference=2.0,
    interval=Interval(1, 3),
    interval_90=Interval(1, 3),
    p_alone=0.001,
    p=0.002,
    smallest=1.0,
)
UNCLEAR = replace(VERDICT, p=0.2)


def test_the_outcome_over_budgets_is_a_sentence():
    first, second = ([38, 38.5, 39, 39.5], [36, 37.6, 39.2, 40.8])
    one, other = (curve(label, *[means] * 3) for label, means in (("flat", first), ("steep", second)))
    verdicts = {1000: VERDICT, 2000: VERDICT, 4000: UNCLEAR, 8000: VERDICT}
    crossing = 2e14 * 2 ** (0.9 / 1.1)
    at = f"{crossing:.1e}".replace("e+", "e")
    assert describe_curves(one, other, verdicts) == (
        "flat leads steep up to 2,000 updates and steep leads flat at 8,000 updates; steep is 0.20 BLEU "
        f"ahead of flat at 4,000 updates, which is not significant; the curves cross at {at} FLOPs."
    )
    later = dict.fromkeys(BUDGETS, VERDICT)
    assert describe_curves(one, other, later).startswith(
        "flat leads steep up to 2,000 updates and steep leads flat from 4,000 updates; the curves cross at"
    )
    below = replace(other, scores=other.scores - 9)
    assert describe_curves(one, below, later) == (
        "flat leads steep at all budgets, 1,000 to 8,000 updates; on average flat is ahead throughout."
    )
    assert describe_curves(one, below, {}).startswith(
        "flat is 11.0 to 7.7 BLEU ahead of steep at all budgets"
    )
    assert "(95% interval of the crossing " in describe_curves(FLAT, STEEP, verdicts)


def test_all_sentences_come_from_scores_and_comparisons_by_budget():
    curves = {line.label: line for line in (FLAT, STEEP, curve("one", [1, 2, 3, 4]))}
    comparisons = {1000: [VERDICT], 8000: [VERDICT.swapped()], 4000: []}
    planned = [("flat", "steep"), ("one", "steep")]
    crossing, other, slopes = describe_costs(curves, planned, comparisons)
    assert crossing.startswith("flat leads steep at 1,000 updates and steep leads flat at 8,000 updates; ")
    lead = STEEP.scores.mean(axis=0) - [1, 2, 3, 4]
    assert other.startswith(f"steep is {lead[0]:.1f} to {lead[-1]:.1f} BLEU ahead of one at all budgets")
    (expected,) = compare_slopes([(FLAT, STEEP)])
    assert slopes == str(expected)
    short = Curve(label="short", updates=BUDGETS[:1], costs=COSTS[:1], scores=np.array([[1.0]]))
    with pytest.raises(ValueError, match=r"^short: its seeds share 1 budgets, but a curve needs two$"):
        describe_costs({**curves, "short": short}, planned, comparisons)
