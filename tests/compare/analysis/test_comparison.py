"""Comparisons of models: pairs, the rule for "A beats B", means over seeds, and headlines."""

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ttest_ind

from benchmarks.significance import SETTINGS, rates
from compare.analysis.comparison import (
    FALSE_FAMILIES,
    FALSE_WINS,
    Comparison,
    compare_models,
    compared_with,
    further_outcomes,
    headlines,
    mean_bleu,
)
from compare.analysis.finished_experiment import FinishedExperiment, speed_ratios
from compare.analysis.statistics import (
    Interval,
    SampledScore,
    ScoredTestSet,
    WelchTest,
    aggregate_seeds,
    holm_correction,
    mean_score,
    model_intervals,
    score_test_set,
    score_tests,
    t_quantile,
    welch_test,
)
from compare.config.sections import ScoringConfig
from compare.results.formatting import describe_p
from compare.results.records import Likelihoods, LikelihoodSums, RawSpeed, Session, Timings
from compare.results.store import write_record
from compare.system.device import this_machine
from compare.system.timer import Speed
from data.text import read_lines
from tests.kits.common import SHARED
from tests.kits.experiments import make_finished, pairs

REFERENCES = [f"the {noun} sat on the {seat} {i}" for i in range(10) for noun in "ab" for seat in "cd"]


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


def test_each_model_is_compared_with_each_above_it_or_as_planned():
    """On the first test set alone; p is corrected for all pairs."""
    comparisons = compare_models({**THREE, "long": THREE["test"]})
    assert [(pair.first, pair.second) for pair in comparisons] == PAIRS
    assert {pair.seeds for pair in comparisons} == {(3, 3)}
    assert [pair.kind == "decided" for pair in comparisons] == [True, True, False]
    assert [pair.p for pair in comparisons] == holm_correction([pair.p_alone for pair in comparisons])
    against = compare_models(THREE, baseline="good")
    assert [(pair.first, pair.second) for pair in against] == [("bad", "good"), ("alike", "good")]
    planned = [("bad", "good"), ("alike", "good"), ("alike", "bad")]
    with_further = compare_models({"test": replace(THREE["test"], pairs=planned)})
    assert [(pair.first, pair.second) for pair in with_further] == planned
    assert [pair.p for pair in with_further] == holm_correction([pair.p_alone for pair in with_further])
    assert [pair.p_alone for pair in with_further[:2]] == [pair.p_alone for pair in against]
    with pytest.raises(ValueError, match="no finished model is labelled 'god'; did you mean 'good'"):
        compare_models(THREE, baseline="god")
    assert compare_models({}) == []


def sampled(*runs: tuple[float, Sequence[float]]) -> list[SampledScore]:
    """Return seeds with a score and the changes of it on resamples of fifty sentences."""
    return [
        SampledScore(units=50, score=score, resampled=score + np.array(changes)) for score, changes in runs
    ]


def test_with_equal_sentences_the_test_is_that_of_scipy():
    """No score changes over resamples: Welch's t test of the seeds alone."""
    one, other = (10.0, 12.0, 14.5), (9.0, 8.0, 8.4, 9.1, 7.0)
    same = np.zeros(20)
    result = welch_test(*(sampled(*((score, same) for score in scores)) for scores in (one, other)))
    expected = ttest_ind(one, other, equal_var=False)
    assert result.p == pytest.approx(expected.pvalue, rel=1e-12)
    assert result.dof == pytest.approx(expected.df, rel=1e-12)
    assert result.interval() == pytest.approx(expected.confidence_interval(), rel=1e-9)
    assert result.interval(0.9) == pytest.approx(expected.confidence_interval(0.9), rel=1e-9)


def test_the_variance_over_sentences_is_added_and_an_interaction_counted_once():
    """By hand: the seeds of the first model change alike, those of the second in opposite directions."""
    swing = np.tile([-1.0, 1.0], 100)  # variance 200 / 199
    result = welch_test(sampled((10.0, 3 * swing), (14.0, 3 * swing)), sampled((4.0, swing), (7.0, -swing)))
    sentences, unit = 9 * 200 / 199, 200 / 199
    seeds = 8 / 2, 4.5 / 2
    shared = sentences - unit  # the mean of the second does not change; its interaction is that of one seed
    total = shared + sum(seeds)
    assert (result.difference, result.error) == (6.5, pytest.approx(math.sqrt(total)))
    assert result.dof == pytest.approx(total**2 / (shared**2 / 49 + seeds[0] ** 2 + seeds[1] ** 2))
    half = t_quantile(result.dof) * result.error
    assert result.interval() == pytest.approx((6.5 - half, 6.5 + half))
    # Seeds that agree by luck have at least the variance that their sentences show, and its freedom.
    result = welch_test(sampled((10.0, 3 * swing), (14.0, 3 * swing)), sampled((5.4, swing), (5.6, -swing)))
    total = shared + seeds[0] + unit
    assert (result.difference, result.error) == (6.5, pytest.approx(math.sqrt(total)))
    assert result.dof == pytest.approx(total**2 / (shared**2 / 49 + seeds[0] ** 2 + unit**2 / 49))
    assert welch_test(sampled((1.0, 0 * swing)), sampled((1.0, 0 * swing))).p == 1
    assert welch_test(sampled((1.0, 0 * swing)), sampled((2.0, 0 * swing))).p == 0


def test_with_one_seed_the_test_is_of_the_sentences_alone():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 400))
    result = welch_test(sampled((10.0, one)), sampled((9.0, other), (9.5, other)))
    assert result.error == pytest.approx(math.sqrt((one - other).var(ddof=1) + 0.125 / 2))
    alone = welch_test(sampled((10.0, one)), sampled((9.0, other)))
    assert (alone.error, alone.dof) == (pytest.approx((one - other).std(ddof=1)), pytest.approx(49))


def test_the_smallest_difference_is_that_of_the_textbook():
    """Many degrees of freedom, one test: (1.96 + 0.84) standard errors; six tests need more."""
    test = WelchTest(0.0, 0.5, 1e9)
    assert test.smallest_difference(1) == pytest.approx((1.959964 + 0.841621) * 0.5, abs=1e-5)
    assert test.smallest_difference(6) == pytest.approx((2.638257 + 0.841621) * 0.5, abs=1e-5)
    assert WelchTest(0.0, 0.5, 4).smallest_difference(1) > test.smallest_difference(1)


WMT17 = SHARED / "scored-wmt17-en-de"


@pytest.mark.skipif(not WMT17.is_dir(), reason="no ../shared/data/scored-wmt17-en-de here")
def test_with_one_seed_p_is_that_of_multeval():
    """Submissions to WMT17 with their published p-values of randomisation, BLEU without tokenisation."""
    names = ("LIUM-NMT.4900", "online-A.0", "online-B.0", "online-F.0", "online-G.0")
    read = partial(read_lines, allow_blank=True)
    outputs = {name: {1: read(WMT17 / f"sys/{name}.de.gz")} for name in names}
    models = score_test_set("test", read(WMT17 / "ref.de.gz"), outputs, tokenize="none").models
    with (WMT17 / "EXPECTED.tsv").open(encoding="utf-8", newline="") as file:
        published = {row["system"]: row["multeval_AR_p_BLEU"] for row in csv.DictReader(file, delimiter="\t")}
    baseline, *others = (list(models[name].values()) for name in names)
    for name, other in zip(names[1:], others, strict=True):
        assert welch_test(baseline, other).p == pytest.approx(float(published[name]), abs=0.03)


@pytest.mark.parametrize("name", ["alike seeds", "seeds 0.5", "seeds 0.5, 0.7, 0.3 and 3.6"])
def test_the_rule_is_right_as_often_as_it_says(name: str):
    """600 experiments of four models: standard errors of 0.9% (0.4% of the intervals of six pairs)."""
    measured = rates(3, SETTINGS[name], 600)
    assert 0.93 <= measured.coverage <= 0.97
    assert measured.false_wins <= 0.08
    assert measured.false_families <= 0.1
    assert measured.false_alike <= 0.08
    assert measured.promised == pytest.approx(0.77, abs=0.07)


def test_the_rates_of_two_seeds_are_those_of_the_published_simulation():
    lines = Path("benchmarks/significance.md").read_text(encoding="utf-8").splitlines()
    rows = (line.split(" | ") for line in lines)
    two_seeds = [cells for cells in rows if len(cells) == 10 and cells[1] == "2"]
    wins, families = (max(float(cells[column]) for cells in two_seeds) for column in (3, 4))
    assert (round(wins, 2), round(families, 2)) == (FALSE_WINS, FALSE_FAMILIES)


# The outcome that decides.


def test_the_mean_over_test_sets_decides_where_the_experiment_says_so():
    """By hand: scores 10 and 20, whose resamples change independently, though both share the draws."""
    changes = np.random.default_rng(0).normal(size=5000)
    one, other = (sampled((score, changes))[0] for score in (10.0, 20.0))
    both = mean_score([one, other])
    assert (both.units, both.score) == (100, 15)
    assert both.resampled.var() == pytest.approx(changes.var() / 2, rel=0.05)
    long = scored(good={1: worse(0, 0), 2: worse(1, 0)}, bad={1: worse(9, 1), 2: worse(7, 2)})["test"]
    short = scored(good={1: worse(5, 0), 2: worse(2, 0)}, bad={1: worse(4, 1), 2: worse(3, 2)})["test"]
    expected = np.mean([[score.score for score in test.models["bad"].values()] for test in (long, short)])
    expected -= np.mean([[score.score for score in test.models["good"].values()] for test in (long, short)])
    sets = {name: replace(test, outcome="mean") for name, test in (("long", long), ("short", short))}
    (comparison,) = compare_models(sets)
    assert (comparison.difference, comparison.test) == (pytest.approx(expected), "the mean of 2 test sets")
    named = {name: replace(test, name=name, outcome="short") for name, test in sets.items()}
    (comparison,) = compare_models(named)
    assert (comparison.test, comparison.difference) == (
        "short",
        compare_models({"short": short})[0].difference,
    )
    missing = {name: replace(test, outcome="test_x") for name, test in sets.items()}
    with pytest.raises(ValueError, match=r'"test_x" is no test set; choose one of first, mean, long, short$'):
        compare_models(missing)


def test_documents_are_resampled_instead_of_sentences():
    """Ten documents of four sentences each; all errors are in one of them, so that the score varies more."""
    documents = [f"document {line // 4}" for line in range(40)]
    outputs = {"a": {1: with_errors(0, 1, 2, 3)}}
    by_sentence, by_document = (
        score_test_set("test", REFERENCES, outputs, resamples=500, documents=names).models["a"][1]
        for names in ((), documents)
    )
    assert (by_sentence.units, by_document.units) == (40, 10)
    assert by_document.score == by_sentence.score
    assert 1.5 < by_document.resampled.std() / by_sentence.resampled.std() < 2.5  # the square root of four


def test_one_sentence_says_nothing_about_others():
    one = score_test_set("test", REFERENCES[:1], {"a": {1: REFERENCES[:1]}, "b": {1: ["x"]}}, resamples=50)
    with pytest.raises(ValueError, match="test has only one sentence"):
        compare_models({"test": one})


def test_runs_of_different_settings_are_refused():
    (test,) = THREE.values()
    settings = {"bad-seed1": "a" * 64, "good-seed1": "a" * 64, "good-seed2": "b" * 64}
    with pytest.raises(ValueError, match="different settings"):
        compare_models({"test": replace(test, settings=settings)})


WON = Comparison(
    first="new",
    second="old",
    seeds=(3, 4),
    difference=2.5,
    interval=Interval(0.5, 4.5),
    interval_90=Interval(0.9, 4.1),
    p_alone=0.001,
    test="test",
    p=0.003,
    smallest=3.25,
)


PROBABLY = "would probably have been detected"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "new beats old"),
        ({"difference": -2.5}, "old beats new"),
        ({"p": 0.0499}, "new beats old"),
        ({"p": 0.05}, f"not significant; a difference of about 3.2 {PROBABLY}"),
        ({"p": 0.05, "smallest": 250.0}, "not significant; no difference would have been detected"),
        ({"p": 0.05, "interval_90": Interval(-0.9, 0.99)}, "alike within 1 BLEU"),
        (
            {"p": 0.05, "interval_90": Interval(-0.9, 1.01)},
            f"not significant; a difference of about 3.2 {PROBABLY}",
        ),
        ({"interval_90": Interval(0.1, 0.8)}, "new beats old, alike within 1 BLEU"),
        ({"seeds": (3, 1)}, "significant on this test set, with one seed"),
        (
            {"seeds": (3, 1), "p": 0.3, "interval_90": Interval(-0.5, 0.5)},
            f"not significant; a difference of about 3.2 between trained models {PROBABLY}",
        ),
        ({"failed": ("old seed 4",)}, "not compared, because runs failed: old seed 4"),
    ],
)
def test_the_verdict_follows_from_the_corrected_p_the_interval_and_the_seeds(
    changes: dict[str, Any], verdict: str
):
    comparison = replace(WON, **changes)
    assert comparison.verdict == comparison.swapped().verdict == verdict


def test_a_comparison_from_the_other_side():
    swapped = WON.swapped()
    assert (swapped.first, swapped.second, swapped.difference) == ("old", "new", -2.5)
    assert (swapped.interval, swapped.interval_90, swapped.seeds) == ((-4.5, -0.5), (-4.1, -0.9), (4, 3))
    assert swapped.swapped() == WON
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
    common = {"params": 12, "settings": {"decode.beam_size": 4}}
    figures: Figures = {
        ("a", seed): common | {"bleu": bleu, "updates": seed, "batch_hash": str(seed), "chrf": chrf}
        for seed, bleu, chrf in ((1, 10.0, None), (2, 13.0, 3.0), (3, 19.0, 5.0))
    }
    figures |= {("b", seed): {"bleu": 7.0} for seed in (1, 2, 3)} | {("c", 1): {"bleu": 7.0}}
    finished = finished_of(tmp_path, figures, {("a", 1): 2, ("a", 2): 4, ("b", 1): 1})
    scores = score_tests(finished, resamples=20)
    first, second, third = aggregate_seeds(finished, scores)
    assert [(row["label"], row["seeds"]) for row in (first, second, third)] == [("a", 3), ("b", 3), ("c", 1)]
    assert (first["bleu"], first["bleu_sd"]) == pytest.approx((14, math.sqrt(21)))
    assert (first["bleu_test_long"], first["bleu_test_long_sd"]) == pytest.approx((52, 1))
    assert first["chrf"] is None  # one seed lacks it
    assert (first["params"], first["params_sd"], first["decode.beam_size"], first["updates"]) == (12, 0, 4, 2)
    assert "decode.beam_size_sd" not in first
    assert (first["preset"], first["batch_hash"], first["status"]) == ("lstm", None, "done")
    assert third["bleu_sd"] is None
    for suffix, test in (("", "test"), ("_test_long", "test_long")):
        expected = model_intervals(list(scores[test].models["a"].values()))
        for kind, interval in expected._asdict().items():
            assert (first[f"bleu_{kind}_low{suffix}"], first[f"bleu_{kind}_high{suffix}"]) == interval
    assert not [name for name in first if "_ci_" in name or name == "seed"]


def test_without_translations_only_the_interval_over_seeds_is_known(tmp_path: Path):
    """Scores 10, 13, 19; that of one seed is its own mean, so that its bootstrap interval stays."""
    figures: Figures = {
        ("a", seed): {"bleu": bleu, "bleu_ci_low": bleu - 1, "bleu_ci_high": bleu + 1}
        | {"scores": {"comet": bleu, "comet_ci_low": 9.0, "comet_ci_high": 12.0}}
        for seed, bleu in enumerate((10.0, 13.0, 19.0))
    }
    single = {"bleu": 7.0, "bleu_ci_low": 5.0, "bleu_ci_high": 9.0}
    finished = finished_of(tmp_path, figures | {("b", 1): single})
    several, one = aggregate_seeds(finished, {})
    half = t_quantile(2) * math.sqrt(21 / 3)
    for metric in ("bleu", "comet"):  # an external metric too; its limits are not averaged
        ends = several[f"{metric}_seeds_low"], several[f"{metric}_seeds_high"]
        assert ends == pytest.approx((14 - half, 14 + half))
        assert several[f"{metric}_test_set_low"] is None
    assert several["bleu_seeds_high_test_long"] == pytest.approx(51 + t_quantile(2) / math.sqrt(3))
    assert (one["bleu_test_set_low"], one["bleu_test_set_high"]) == (5, 9)
    assert one["bleu_seeds_low"] is None
    assert not [name for name in one if "_ci_" in name]


# Headlines.


def compared(first: str, second: str, difference: float, **changes: Any) -> Comparison:
    settings = {"first": first, "second": second, "difference": difference, "seeds": (3, 3), **changes}
    return replace(WON, **settings)


def two(folder: Path, slow: float = 55.0, **changes: Any) -> FinishedExperiment:
    """Return X and Y with three seeds; in the rounds X takes 100 / ``slow`` as long as Y, -10, 0 and +10%."""
    figures = {
        (label, seed): {"bleu": bleu, "timed_together": "a1"} | (changes if label == "X" else {})
        for label, bleu in (("X", 30.0), ("Y", 20.0))
        for seed in (1, 2, 3)
    }
    finished = finished_of(folder, figures)
    machine = {"timed_together": "a1", **asdict(this_machine(torch.device("cpu")))}
    for label, factors in (("X", (90 / slow, 100 / slow, 110 / slow)), ("Y", (1.0, 1.0, 1.0))):
        seconds = [round_s * factor for round_s, factor in zip((2.0, 5.0, 2.0), factors, strict=True)]
        speed = Speed(sentences=8, tokens=90, seconds=seconds)
        timings = Timings(train=speed, beam=speed, greedy=None, latency=None, session=Session(**machine))
        path = finished.labels[label][0].speed
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, RawSpeed(decode_s=None, peak_memory_bytes=None, timings=timings))
    return finished


@pytest.mark.parametrize(
    ("slow", "changes", "ratio"),
    [
        (55.0, {}, "Y {} 1.82 times as fast as X (1.64–2.00)."),
        (109.0, {}, "Y {} 0.83–1.01 times as fast as X: no difference is shown."),
        (123.0, {}, "X {} 1.23 times as fast as Y (1.12–1.37)."),
        (55.0, {"timed_together": "b2"}, None),
        (55.0, {"cpu_share": 0.95, "reference_share": 0.85}, "Y {} 1.82 times as fast as X (1.64–2.00)."),
    ],
)
def test_speeds_are_compared_round_by_round_in_each_phase(
    tmp_path: Path, slow: float, changes: dict[str, Any], ratio: str | None
):
    words = [ratio.format(verb) for verb in ("trains", "decodes by beam search") if ratio]
    words[:1] = [f"{first} Brackets show the range over the timed rounds." for first in words[:1]]
    if "reference_share" in changes:
        words.append(
            "These timings were disturbed: at the lowest, a model had 85% of the processor or of the "
            "machine's best speed."
        )
    for comparison in (compared("X", "Y", 2.1), compared("Y", "X", -2.1)):
        first, *others = headlines(two(tmp_path, slow, **changes), [comparison])
        assert first == "On test, X beats Y by 2.1 BLEU (p = 0.003), 3 seeds each."
        assert others == words


def test_models_whose_timing_is_to_be_made_again_have_no_ratios(tmp_path: Path):
    runs = [replace(run, result=replace(run.result, timed_together=None)) for run in two(tmp_path).runs]
    assert speed_ratios(runs[:3], runs[3:]) == {}


def test_no_model_wins_by_a_seed_that_failed(tmp_path: Path):
    """With its bad seed, which failed, X would be behind Y."""
    wrong = {("X", 1): 0, ("X", 3): 0, ("Y", 1): 4, ("Y", 2): 0, ("Y", 3): 4}
    figures: Figures = {run: {"bleu": 99.0 - spoilt} for run, spoilt in wrong.items()}
    finished = finished_of(tmp_path, figures, wrong, failed=[("X", 2), ("Z", 1)])
    (comparison,) = compare_models({"test": score_tests(finished, resamples=20)["test"]})
    assert comparison.failed == ("X seed 2",)
    assert headlines(finished, [replace(comparison, p=0.001)]) == [
        "On test, X is not compared where runs failed: X seed 2.",
        "Not compared, because all their runs failed: Z.",
    ]


def test_the_best_model_is_compared_with_every_other_by_kind_of_verdict(tmp_path: Path):
    """By BLEU the models rank c, a, d, b, e."""
    scores = dict(zip("abcde", (20.0, 10.0, 30.0, 15.0, 9.0), strict=True))
    finished = finished_of(tmp_path / "four", {(label, 1): {"bleu": bleu} for label, bleu in scores.items()})
    alike = {"p": 0.3, "interval_90": Interval(-0.5, 0.5)}
    pairs = [
        compared("b", "c", -20.0),
        compared("c", "a", 10.0, p=0.2, interval=Interval(-1, 20), smallest=12.3),
        compared("d", "c", -0.1, **alike),
        compared("e", "c", -0.2, p=0.0005, interval_90=Interval(-0.3, -0.1)),
        *(compared(one, other, 1.0) for one, other in combinations("abde", 2)),
    ]
    assert headlines(finished, pairs) == [
        "On test, c beats b by 20.0 BLEU (p = 0.003), 3 seeds each.",
        "On test, c is 0.20 BLEU ahead of e (p = 0.0005), alike within 1 BLEU.",
        "On test, d is within 1 BLEU of c: alike.",
        "On test, a is behind c by 10.0 BLEU: not significant. With these seeds a difference of about 12.3 "
        f"{PROBABLY}.",
    ]
    two_seeds = [replace(pair, seeds=(2, 3)) for pair in pairs]
    assert headlines(finished, two_seeds)[-1].startswith(
        "Two seeds make the test lenient. Of two equal models it calls one better in up to 6% of experiments"
    )
    one_seed = [replace(pair, seeds=(1, 1)) for pair in pairs]
    assert headlines(finished, one_seed)[0] == (
        "On test, c is ahead of b by 20.0 BLEU (p = 0.003) and e by 0.20 BLEU (p = 0.0005): significant on "
        "this test set, with one seed."
    )


def with_scoring(finished: FinishedExperiment, scoring: ScoringConfig) -> FinishedExperiment:
    runs = [replace(run, run=replace(run.run, scoring=scoring)) for run in finished.runs]
    return replace(finished, runs=tuple(runs))


def test_the_pairs_of_the_plan_have_sentences(tmp_path: Path):
    """The baseline is compared with the models above and below it, then those of each further pair."""
    figures: Figures = {(label, 1): {"bleu": bleu} for label, bleu in (("a", 30.0), ("b", 20.0), ("c", 40.0))}
    every = finished_of(tmp_path, figures)
    assert every.planned_pairs == [("b", "a"), ("c", "a"), ("c", "b")]
    finished = with_scoring(every, ScoringConfig(baseline="a", pairs=(("c", "b"), ("c", "unfinished"))))
    assert finished.planned_pairs == [("b", "a"), ("c", "a"), ("c", "b")]
    planned = [compared("b", "a", -10.0), compared("c", "a", 10.0)]
    assert headlines(finished, [*planned, compared("c", "b", 20.0)])[2:] == [
        "On test, c beats b by 20.0 BLEU (p = 0.003), 3 seeds each."
    ]
    assert headlines(finished, planned) == [
        "On test, a beats b by 10.0 BLEU (p = 0.003), 3 seeds each.",
        "On test, c beats a by 10.0 BLEU (p = 0.003).",
    ]
    unclear = [replace(pair, p=0.2, smallest=12.0) for pair in planned]
    assert headlines(finished, unclear) == [
        "On test, c is ahead of a by 10.0 BLEU; b is behind a by 10.0 BLEU: not significant. With these "
        f"seeds a difference of about 12.0 {PROBABLY}.",
    ]
    unclear[0] = replace(unclear[0], smallest=150.0)
    assert headlines(finished, unclear)[-1].endswith(
        f"With these seeds a difference of about 12.0 to more than 100 {PROBABLY}."
    )


def test_a_sentence_about_several_models_repeats_nothing(tmp_path: Path):
    scores = dict(zip("abcd", (30.0, 20.0, 19.0, 18.0), strict=True))
    finished = finished_of(tmp_path, {(label, 1): {"bleu": bleu} for label, bleu in scores.items()})
    pairs = [compared(label, "a", -lead, p=0.2) for label, lead in (("b", 1.5), ("c", 2.5), ("d", 3.5))]
    (sentence,) = headlines(finished, pairs)
    assert sentence.startswith(
        "On test, b is behind a by 1.5 BLEU, c by 2.5 BLEU and d by 3.5 BLEU: not significant. "
    )


def test_models_at_the_ceiling_are_not_compared(tmp_path: Path):
    figures: Figures = {(label, 1): {"bleu": bleu} for label, bleu in (("a", 99.0), ("b", 98.5), ("c", 40.0))}
    pairs = [compared("a", "b", 0.5), compared("a", "c", 59.0)]
    assert headlines(finished_of(tmp_path, figures), pairs) == [
        "On test, a and b are at the ceiling (above 98 BLEU), where they cannot be separated.",
        "On test, a beats c by 59.0 BLEU (p = 0.003), 3 seeds each.",
    ]


def test_every_test_set_and_the_likelihood_has_a_sentence(tmp_path: Path):
    """The models differ in all words of half of the sentences; likelihoods are in nats per token."""
    figures: Figures = {(label, seed): {"bleu": 30.0} for label in "ab" for seed in (1, 2, 3)}
    finished = finished_of(tmp_path, figures, {("a", 1): 1, ("b", 1): 3, ("b", 2): 3, ("b", 3): 2})
    scores = score_tests(finished, resamples=50)
    (sentence,) = further_outcomes(finished, scores)
    assert re.fullmatch(
        r"On test_long, which does not decide: a beats b by .+ BLEU \(p = .+\), 3 seeds each\.", sentence
    )
    for number, run in enumerate(finished.runs):
        sums = LikelihoodSums(nll=50.0, tokens=10, characters=50, unknown=0)
        values = {test: [-1.0 - number // 3] * size for test, size in (("test", 5), ("test_long", 4))}
        record = Likelihoods(tests=dict.fromkeys(values, sums), weights="0" * 64, sentences=values)
        write_record(run.likelihoods, record)
    assert further_outcomes(finished, scores)[1:] == [
        "By log-likelihood, the second outcome: a beats b by 0.500 nats per token (p < 0.0001), 3 seeds each."
    ]
    planned = with_scoring(finished, replace(finished.scoring, outcome="mean"))
    assert [
        sentence.split(",")[0] for sentence in further_outcomes(planned, score_tests(planned, resamples=50))
    ] == [
        "On test",
        "On test_long",
        "By log-likelihood",
    ]
    (first, _) = aggregate_seeds(planned, score_tests(planned, resamples=50))
    assert first["bleu_mean"] == pytest.approx((30 + 52) / 2)
    assert first["bleu_mean_sd"] == pytest.approx(0.5)
    assert first["bleu_seeds_low_mean"] < first["bleu_seeds_high_mean"]


def test_models_that_have_not_learned_are_not_compared(tmp_path: Path):
    figures: Figures = {("a", 1): {"bleu": 5.5}, ("b", 1): {"bleu": 2.1}}
    sentences = headlines(finished_of(tmp_path / "both", figures), [compared("a", "b", 3.4)])
    assert sentences == ["No model translates yet (highest BLEU 5.5): train longer before comparing."]
    same: Figures = {("a", 1): {"bleu": 30.0}, ("b", 1): {"bleu": 30.0}}
    sentences = headlines(finished_of(tmp_path / "same", same), [compared("a", "b", 0.0)])
    assert sentences == ["All models have the same BLEU, 30.0."]
    alone = headlines(finished_of(tmp_path / "one", {("a", 1): {"bleu": 30.0}}), [])
    assert alone == ["There is one finished model, so nothing to compare."]


def test_means_are_without_the_seeds_that_failed(tmp_path: Path):
    """Else b would be before a, which has a bad seed more."""
    figures = {("a", 1): {"bleu": 30.0}, ("a", 2): {"bleu": 10.0}, ("b", 1): {"bleu": 25.0}}
    for failed, best in (((), "b"), ((("b", 2),), "a")):
        means = mean_bleu(finished_of(tmp_path / best, figures, failed=failed))
        assert max(means, key=means.get) == best
