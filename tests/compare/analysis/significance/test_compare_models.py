"""Comparisons of models: which pairs are compared, and when one model beats the other."""

from dataclasses import replace

import numpy as np
import pytest

from compare.analysis.comparison import Comparison, compare_models, comparison_matrix, describe_p
from compare.analysis.intervals import (
    Interval,
    Intervals,
    ScoredTestSet,
    confidence_intervals,
    score_test_set,
)
from compare.analysis.statistics import holm_correction

REFERENCES = [f"the {noun} sat on the {place} {i}" for i in range(10) for noun in "ab" for place in "cd"]
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
    wins=20.0,
    losses=12.0,
    ties=8.0,
)


def with_errors(*wrong: int) -> list[str]:
    """Return the references with one wrong word in the lines of these numbers."""
    return [line.replace("sat", "lay") if i in wrong else line for i, line in enumerate(REFERENCES)]


def worse(lines: int, seed: int) -> list[str]:
    """Return the references with ``lines`` + ``seed`` wrong lines, shifted by the seed."""
    return with_errors(*range(seed, lines + 2 * seed))


def scored(**outputs: dict[int, list[str]]) -> dict[str, ScoredTestSet]:
    return {"test": score_test_set("test", REFERENCES, outputs, resamples=50)}


def by_bleu(comparisons: list[Comparison]) -> list[Comparison]:
    return [each for each in comparisons if each.metric == "bleu"]


OUTPUTS = {
    "bad": {seed: worse(25, seed) for seed in (3, 1, 2)},
    "good": {seed: worse(0, seed) for seed in (1, 2, 3)},
    "alike": {seed: worse(1, seed) for seed in (1, 2, 3)},
}
THREE = scored(**OUTPUTS)


@pytest.fixture(scope="module")
def pairwise() -> list[Comparison]:
    return by_bleu(compare_models(THREE, trials=300))


def test_each_model_is_compared_with_each_model_above_it_in_the_table(pairwise: list[Comparison]):
    pairs = [(each.first, each.second) for each in pairwise]
    assert pairs == [("good", "bad"), ("alike", "bad"), ("alike", "good")]
    assert {each.seeds for each in pairwise} == {(1, 2, 3)}


def test_a_baseline_is_compared_with_every_other_model():
    comparisons = by_bleu(compare_models(THREE, baseline="good", trials=300))
    assert [(each.first, each.second) for each in comparisons] == [("bad", "good"), ("alike", "good")]


def test_every_test_set_and_metric_is_of_one_family():
    """Three pairs, two metrics and two test sets: p is corrected for twelve comparisons."""
    long = score_test_set(
        "long", REFERENCES[:30], {k: {s: v[:30] for s, v in d.items()} for k, d in OUTPUTS.items()}
    )
    together = compare_models({**THREE, "long": long}, trials=300)
    keys = [(each.test, each.metric, each.first, each.second) for each in together]
    pairs = [("good", "bad"), ("alike", "bad"), ("alike", "good")]
    assert keys == [
        (test, metric, *pair) for test in ("test", "long") for metric in ("bleu", "chrf") for pair in pairs
    ]
    assert [each.p for each in together] == holm_correction([each.p_randomisation for each in together])
    assert min(each.p for each in together) == pytest.approx(12 / 301)
    alone = compare_models(scored(bad=OUTPUTS["bad"], good=OUTPUTS["good"]), trials=300)
    assert [each.p for each in alone] == [2 / 301, 2 / 301]
    assert alone[0].p_randomisation == together[0].p_randomisation


def test_each_metric_has_its_own_differences(pairwise: list[Comparison]):
    chrf = compare_models(THREE, trials=300)[3]
    assert (chrf.metric, chrf.first, chrf.second) == ("chrf", "good", "bad")
    models = THREE["test"].models
    expected = [
        models["good"][s].scores["chrf"].score - models["bad"][s].scores["chrf"].score for s in (1, 2, 3)
    ]
    assert chrf.differences == pytest.approx(expected)
    assert chrf.differences != pytest.approx(pairwise[0].differences, rel=0.01)


def test_only_a_real_difference_is_significant(pairwise: list[Comparison]):
    assert [each.beats for each in pairwise] == [True, True, False]
    assert not any(each.swapped().beats for each in pairwise)
    assert pairwise[2].p > 0.05


def test_runs_are_paired_by_seed(pairwise: list[Comparison]):
    """Models with partly different seeds in another order: runs of common seeds are paired."""
    test = scored(
        old={3: worse(25, 3), 2: worse(20, 2), 1: worse(15, 1)},
        new={4: REFERENCES, 1: worse(4, 1), 3: worse(2, 3)},
    )
    (comparison,) = by_bleu(compare_models(test, trials=200))
    models = test["test"].models
    new, old = ([models[label][seed].scores["bleu"] for seed in (1, 3)] for label in ("new", "old"))
    differences = np.array([one.score - other.score for one, other in zip(new, old, strict=True)])
    resampled = np.array([one.resampled - other.resampled for one, other in zip(new, old, strict=True)])
    assert comparison.seeds == (1, 3)
    assert comparison.differences == tuple(differences)
    assert comparison.intervals == confidence_intervals(differences, resampled, 40)


def test_sentences_won_lost_and_tied_are_means_over_seeds():
    """New is better in lines 0 to 3 with both seeds; old is better in line 5 with seed 2 only."""
    comparison, _ = compare_models(
        scored(
            old={1: with_errors(0, 1, 2, 3), 2: with_errors(0, 1, 2, 3)},
            new={1: with_errors(), 2: with_errors(5)},
        ),
        trials=50,
    )
    assert (comparison.wins, comparison.losses, comparison.ties) == (4, 0.5, 35.5)


def test_models_without_a_common_seed_are_left_out():
    test = scored(a={1: with_errors(0)}, b={2: with_errors(1)}, c={2: with_errors(2), 1: with_errors(3)})
    comparisons = by_bleu(compare_models(test, trials=100))
    assert [(each.first, each.second, each.seeds) for each in comparisons] == [
        ("c", "a", (1,)),
        ("c", "b", (2,)),
    ]
    assert compare_models(scored(a={1: REFERENCES})) == []


def test_an_unknown_baseline_is_reported_with_the_nearest_label():
    with pytest.raises(ValueError, match="no finished model is labelled 'god'; did you mean 'good'"):
        compare_models(THREE, baseline="god")
    with pytest.raises(ValueError, match="labelled 'xyz'; did you mean 'bad'"):
        compare_models(THREE, baseline="xyz")


def test_too_few_trials_are_refused():
    """Six comparisons: the smallest corrected p is 6 / 120 = .05 with 119 trials, and 6 / 121 with 120."""
    with pytest.raises(ValueError, match=r"119 trials cannot show any of 6 comparisons .* take 120 trials"):
        compare_models(THREE, trials=119)
    assert min(each.p for each in compare_models(THREE, trials=120)) < 0.05


def test_runs_of_different_settings_are_refused():
    """Also if only one of them is of a version that did not record them."""
    (test,) = THREE.values()
    for other, shown in (("b" * 64, "bbbbbbbbbbbb"), (None, "not recorded")):
        settings = {"bad-seed1": "a" * 64, "good-seed1": "a" * 64, "good-seed2": other, "good-seed3": other}
        with pytest.raises(ValueError, match=rf"bad-seed1 and good-seed2 .* aaaaaaaaaaaa and {shown}"):
            compare_models({"test": replace(test, settings=settings)}, trials=200)
    same = {"test": replace(test, settings={"bad-seed1": "a", "good-seed1": "a"})}
    assert compare_models(same, trials=200) == compare_models(THREE, trials=200)


def test_each_comparison_is_announced(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", logger="compare"):
        compare_models(scored(bad=OUTPUTS["bad"], good=OUTPUTS["good"]), baseline="good", trials=100)
    assert caplog.messages == [
        "paired tests on test, bleu: bad against good",
        "paired tests on test, chrf: bad against good",
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"p": 0.05}, "p = 0.05 is not below 0.05"),
        ({"p": 0.0499}, None),
        ({"differences": (2.0, -0.5, 3.0)}, None),
        (
            {"intervals": Intervals(Interval(1, 4), None, None)},
            "significant on this test set, with one seed",
        ),
        ({"intervals": Intervals(Interval(1, 4), None, None), "p": 0.3}, "p = 0.3 is not below 0.05"),
        (
            {"intervals": WON.intervals._replace(combined=Interval(-0.456, 5))},
            "the combined interval, -0.46 to 5.00, includes 0",
        ),
        (
            {"intervals": WON.intervals._replace(combined=Interval(0, 5))},
            "the combined interval, 0.00 to 5.00, includes 0",
        ),
        ({"intervals": WON.intervals._replace(seeds=Interval(-1, 5), test_set=Interval(-1, 5))}, None),
        ({"p_randomisation": 0.3, "p_bootstrap": 0.3}, None),
    ],
)
def test_a_win_requires_a_corrected_p_and_a_combined_interval_that_excludes_0(
    changes: dict, reason: str | None
):
    comparison = replace(WON, **changes)
    assert comparison.inconclusive_reason == reason
    assert comparison.beats == (reason is None)
    assert not comparison.swapped().beats


def test_a_swapped_comparison_has_the_same_verdict():
    swapped = WON.swapped()
    assert (swapped.first, swapped.second, swapped.difference) == ("old", "new", -2.5)
    assert (swapped.wins, swapped.losses, swapped.ties) == (12, 20, 8)
    assert swapped.intervals.combined == (-4.5, -0.5)
    assert swapped.swapped() == WON
    assert WON.row["verdict"] == swapped.row["verdict"] == "new beats old"
    assert replace(WON, p=0.5).row["verdict"] == "p = 0.5 is not below 0.05"


def test_a_row_has_all_figures():
    row = WON.row
    assert (row["test"], row["metric"]) == ("test", "bleu")
    assert (row["model"], row["against"], row["seeds"], row["difference"]) == ("new", "old", 3, 2.5)
    assert (row["difference_seeds_low"], row["difference_combined_high"]) == (1.3, 4.5)
    assert (row["p_randomisation"], row["p_bootstrap"], row["p_holm"]) == (0.001, 0.002, 0.003)
    assert (row["sentences_won"], row["sentences_lost"], row["sentences_tied"]) == (20, 12, 8)


def test_the_matrix_has_every_comparison_in_both_directions():
    other = replace(WON, first="third")
    assert comparison_matrix([WON, other]) == {
        "new": {"old": WON},
        "old": {"new": WON.swapped(), "third": other.swapped()},
        "third": {"old": other},
    }


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (1.0, "p = 1"),
        (0.0312, "p = 0.031"),
        (0.0031, "p = 0.0031"),
        (0.0001, "p = 0.0001"),
        (5e-5, "p < 0.0001"),
    ],
)
def test_p_is_formatted_with_two_digits(p: float, words: str):
    assert describe_p(p) == words


def test_one_seed_never_wins():
    comparison, _ = compare_models(scored(bad={1: ["x"] * 40}, good={1: REFERENCES}), trials=300)
    assert (comparison.difference, comparison.p < 0.05) == (pytest.approx(100), True)
    assert comparison.inconclusive_reason == "significant on this test set, with one seed"
    assert not comparison.beats
