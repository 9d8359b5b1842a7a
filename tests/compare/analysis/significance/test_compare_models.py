"""Comparisons of models: which pairs are compared, and when one model beats the other."""

from dataclasses import replace

import pytest

from compare.analysis.significance.compare_models import compare_models
from compare.analysis.significance.comparison import Comparison, comparison_matrix, describe_p
from compare.analysis.significance.intervals import Interval, Intervals, difference_intervals
from compare.analysis.significance.paired_tests import holm_correction
from compare.analysis.significance.scored_tests import ScoredTestSet, score_test_set

REFERENCES = [f"the {noun} sat on the {place} {i}" for i in range(10) for noun in "ab" for place in "cd"]
WON = Comparison(
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


def scored(**outputs: dict[int, list[str]]) -> ScoredTestSet:
    return score_test_set("test", REFERENCES, outputs, resamples=50)


OUTPUTS = {
    "bad": {seed: worse(25, seed) for seed in (3, 1, 2)},
    "good": {seed: worse(0, seed) for seed in (1, 2, 3)},
    "alike": {seed: worse(1, seed) for seed in (1, 2, 3)},
}
THREE = scored(**OUTPUTS)


@pytest.fixture(scope="module")
def pairwise() -> list[Comparison]:
    return compare_models(THREE, trials=300, resamples=100)


def test_each_model_is_compared_with_each_model_above_it_in_the_table(pairwise: list[Comparison]):
    pairs = [(each.first, each.second) for each in pairwise]
    assert pairs == [("good", "bad"), ("alike", "bad"), ("alike", "good")]
    assert {each.seeds for each in pairwise} == {(1, 2, 3)}


def test_a_baseline_is_compared_with_every_other_model():
    comparisons = compare_models(THREE, baseline="good", trials=300, resamples=100)
    assert [(each.first, each.second) for each in comparisons] == [("bad", "good"), ("alike", "good")]


def test_p_is_corrected_for_the_comparisons_made_together(pairwise: list[Comparison]):
    assert [each.p for each in pairwise] == holm_correction([each.p_randomisation for each in pairwise])
    assert [each.p for each in pairwise] != [each.p_randomisation for each in pairwise]
    (alone,) = compare_models(scored(bad=OUTPUTS["bad"], good=OUTPUTS["good"]), trials=300)
    assert alone.p == alone.p_randomisation == pairwise[0].p_randomisation


def test_only_a_real_difference_is_significant(pairwise: list[Comparison]):
    assert [each.beats for each in pairwise] == [True, True, False]
    assert not any(each.swapped().beats for each in pairwise)
    assert pairwise[2].p > 0.05


def test_each_test_gets_its_own_number_of_samples():
    (comparison,) = compare_models(scored(bad={1: ["x"] * 40}, good={1: REFERENCES}), trials=99, resamples=49)
    assert (comparison.p_randomisation, comparison.p_bootstrap) == pytest.approx((1 / 100, 1 / 50))


def test_runs_are_paired_by_seed(pairwise: list[Comparison]):
    """Models with partly different seeds in another order: runs of common seeds are paired."""
    test = scored(
        old={3: worse(25, 3), 2: worse(20, 2), 1: worse(15, 1)},
        new={4: REFERENCES, 1: worse(4, 1), 3: worse(2, 3)},
    )
    (comparison,) = compare_models(test, trials=200, resamples=50)
    matched = [(test.models["new"][seed], test.models["old"][seed]) for seed in (1, 3)]
    assert comparison.seeds == (1, 3)
    assert comparison.differences == tuple(new.bleu - old.bleu for new, old in matched)
    assert comparison.intervals == difference_intervals(matched)


def test_sentences_won_lost_and_tied_are_means_over_seeds():
    """New is better in lines 0 to 3 with both seeds; old is better in line 5 with seed 2 only."""
    (comparison,) = compare_models(
        scored(
            old={1: with_errors(0, 1, 2, 3), 2: with_errors(0, 1, 2, 3)},
            new={1: with_errors(), 2: with_errors(5)},
        ),
        trials=50,
        resamples=50,
    )
    assert (comparison.wins, comparison.losses, comparison.ties) == (4, 0.5, 35.5)


def test_models_without_a_common_seed_are_left_out():
    test = scored(a={1: with_errors(0)}, b={2: with_errors(1)}, c={2: with_errors(2), 1: with_errors(3)})
    comparisons = compare_models(test, trials=100, resamples=50)
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
    """Three comparisons: the smallest corrected p is 3 / 60 = .05 with 59 trials, and 3 / 61 with 60."""
    with pytest.raises(ValueError, match=r"59 trials cannot show any of 3 comparisons .* take 60 trials"):
        compare_models(THREE, trials=59, resamples=10)
    assert min(each.p for each in compare_models(THREE, trials=60, resamples=10)) < 0.05


def test_each_comparison_is_announced(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", logger="compare"):
        compare_models(THREE, baseline="good", trials=100, resamples=10)
    assert caplog.messages == ["paired tests: bad against good", "paired tests: alike against good"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"p": 0.05}, "p = 0.05 is not below 0.05"),
        ({"p": 0.0499}, None),
        ({"differences": (2.0, -0.5, 3.0)}, "the seeds do not agree on which is better"),
        ({"differences": (2.0, 0.0, 3.0)}, "the seeds do not agree on which is better"),
        ({"intervals": Intervals(Interval(1, 4), None, None)}, "one seed says nothing about others"),
        (
            {"intervals": WON.intervals._replace(seeds=Interval(-0.456, 5))},
            "the interval over seeds, -0.46 to 5.00, includes 0",
        ),
        (
            {"intervals": WON.intervals._replace(seeds=Interval(0, 5))},
            "the interval over seeds, 0.00 to 5.00, includes 0",
        ),
        ({"intervals": WON.intervals._replace(combined=Interval(-1, 5), test_set=Interval(-1, 5))}, None),
        ({"p_randomisation": 0.3, "p_bootstrap": 0.3}, None),
    ],
)
def test_a_win_requires_several_seeds_a_corrected_p_and_an_interval_that_excludes_0(
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
    assert (row["model"], row["against"], row["seeds"], row["bleu_difference"]) == ("new", "old", 3, 2.5)
    assert (row["bleu_difference_seeds_low"], row["bleu_difference_combined_high"]) == (1.3, 4.5)
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
    (comparison,) = compare_models(
        scored(bad={1: ["x"] * 40}, good={1: REFERENCES}), trials=300, resamples=50
    )
    assert (comparison.difference, comparison.p < 0.05) == (pytest.approx(100), True)
    assert comparison.inconclusive_reason == "one seed says nothing about others"
    assert not comparison.beats
