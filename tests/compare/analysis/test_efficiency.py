"""Training cost of quality, Pareto fronts, means over seeds, and random search."""

from itertools import combinations, product
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import strategies as st

from compare.analysis.efficiency import COSTS, pareto, pareto_front, progress, time_to_quality
from compare.analysis.finished_experiment import Spread, load_finished
from compare.analysis.tables import Table, mean_over_seeds
from compare.analysis.tuning import expected_best, expected_best_with_replacement, tuning_curve
from compare.experiment.tune import TrialResult
from compare.training.metrics_log import read_metrics
from tests.kits.finished_experiments import make_finished, pairs, write_metrics

POINTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12)
LINES = pairs(("a", "x"))


def train_line(update: int, tokens: int) -> dict[str, object]:
    return {"kind": "train", "update": update, "src_tokens": tokens, "tgt_tokens": 2 * tokens}


def valid_line(update: int, seconds: float, bleu: float) -> dict[str, object]:
    return {"kind": "valid", "update": update, "seconds": seconds, "loss": 10 - bleu, "bleu": bleu}


def curve(label: str, seed: int, *bleu: float) -> list[dict[str, object]]:
    """Return rows of ``progress``: validation n at 10 n updates, other costs in proportion."""
    factors = dict(zip(COSTS, (2, 1, 100, 1e6, 3), strict=True))
    return [
        {"label": label, "seed": seed, "bleu": score, "loss": 1.0}
        | {cost: 10 * factor * number for cost, factor in factors.items()}
        for number, score in enumerate(bleu, start=1)
    ]


def test_progress_sums_training_costs(tmp_path: Path):
    figures = {"train_flops_per_token": 1e6, "energy_j_per_1k_tokens": 4.0}
    finished = make_finished(
        tmp_path,
        train=LINES,
        tests={"test": LINES},
        outputs={("a", 1): {"test": ["x"]}, ("b", 2): {"test": ["x"]}},
        results={("a", 1): figures},
    )
    log = [train_line(5, 100), train_line(10, 200), valid_line(10, 8.0, 1.0)]
    log += [train_line(15, 50), train_line(15, 300), train_line(20, 400)]
    log += [valid_line(20, 99.0, 9.0), valid_line(20, 16.0, 3.0)]
    log += [{"kind": "average", "update": 20, "seconds": 17.0, "loss": 0.0, "bleu": 50.0}]
    for run in finished.runs:
        write_metrics(run.folder, log)
    rows = progress(finished).rows
    names = {"label": "a", "seed": 1}
    assert rows[0] == names | {"seconds": 8.0, "updates": 10, "tokens": 900, "flops": 9e8, "joules": 3.6} | {
        "loss": 9.0,
        "bleu": 1.0,
    }
    # The run was resumed: updates 15 and 20 were logged twice, and the later lines count.
    assert rows[1] == names | {
        "seconds": 16.0,
        "updates": 20,
        "tokens": 3_000,
        "flops": 3e9,
        "joules": 12.0,
    } | {
        "loss": 7.0,
        "bleu": 3.0,
    }
    assert [(row["label"], row["seed"], row["flops"], row["joules"]) for row in rows[2:]] == [
        ("b", 2, None, None)
    ] * 2


def test_progress_of_a_trained_run_ends_with_the_figures_of_its_result(finished: Path):
    experiment = load_finished(finished)
    rows = progress(experiment).rows
    for run in experiment.runs:
        run_rows = [row for row in rows if row["label"] == run.result.label]
        assert [row["updates"] for row in run_rows] == [40, 80, 90]
        assert run_rows[-1]["tokens"] == run.result.tokens_seen
        assert run_rows[-1]["flops"] == run.result.tokens_seen * run.result.train_flops_per_token
        assert run_rows[-1]["seconds"] == pytest.approx(run.result.data_s + run.result.train_s, abs=0.01)
        scores = [
            line["bleu"] for line in read_metrics(run.folder / "metrics.jsonl") if line["kind"] == "valid"
        ]
        assert [row["bleu"] for row in run_rows] == scores


def test_the_first_validation_that_reaches_a_share_of_the_best_counts():
    curves = [*curve("a", 1, 10, 25, 20, 50), *curve("a", 2, 30, 10, 40), *curve("b", 1, 1, 2, 26)]
    table = time_to_quality(curves, shares=(0.5, 1.0))
    costs = [
        (row["share_of_best"], row["bleu"], row["label"], row["seed"], row["updates"]) for row in table.rows
    ]
    assert costs == [
        ("50%", 25, "a", 1, 20),  # 25 is enough; the later decrease does not matter
        ("50%", 25, "a", 2, 10),
        ("50%", 25, "b", 1, 30),
        ("100%", 50, "a", 1, 40),
        ("100%", 50, "a", 2, None),
        ("100%", 50, "b", 1, None),
    ]
    assert [table.rows[0][cost] for cost in COSTS] == [40, 20, 2000, 2e7, 60]
    assert "(50.0)" in table.caption
    assert all(table.rows[-1][cost] is None for cost in COSTS)


def test_a_pareto_front_by_hand():
    points = [(1, 5), (2, 4), (2, 3), (3, 1), (3, 1), (0, 5), (1, 1)]
    # (2, 3) and (1, 1) are dominated by (2, 4), (0, 5) by (1, 5); the equal points (3, 1) are both on it.
    assert pareto_front(points) == [True, True, False, True, True, False, False]
    assert pareto_front([(0.0, 0.0)]) == [True]
    assert pareto_front([]) == []


def test_models_on_the_fronts_of_speed_and_size(tmp_path: Path):
    figures = {
        ("slow", 1): (30.0, 10.0, 900),
        ("slow", 2): (34.0, 14.0, 900),
        ("fast", 1): (20.0, 99.0, 900),
        ("small", 1): (20.0, 50.0, 100),
        ("lost", 1): (50.0, None, 100),
        ("worse", 1): (19.0, 50.0, 100),
    }
    names = ("bleu", "beam_sentences_per_s", "params")
    finished = make_finished(
        tmp_path,
        train=LINES,
        tests={"test": LINES},
        outputs={run: {"test": ["x"]} for run in figures},
        results={run: dict(zip(names, values, strict=True)) for run, values in figures.items()},
    )
    rows = pareto(finished).rows
    assert [(row["label"], row["speed_front"], row["size_front"]) for row in rows] == [
        ("slow", True, True),
        ("fast", True, False),  # as good as "small", but larger
        ("small", False, True),
        ("worse", False, False),
    ]
    slow = {"label": "slow", "seeds": 2, "bleu": 32, "bleu_low": 30, "bleu_high": 34}
    assert rows[0].items() >= (slow | {"beam_sentences_per_s": 12, "params": 900}).items()
    ends = {"beam_sentences_per_s_low": 10, "beam_sentences_per_s_high": 14}  # of the seeds, timed alone
    assert rows[0].items() >= ends.items()


def test_a_front_takes_overlapping_speeds_for_equal():
    """By hand: the speeds of a and b overlap, and those of b and c; c is slower than a."""
    spreads = [Spread(11, 14), Spread(9, 12), Spread(7, 9)]
    assert pareto_front([(12, 20.0), (10, 30.0), (8, 25.0)], spreads) == [False, True, False]
    assert pareto_front([(12, 20.0), (10, 20.0), (8, 20.0)], spreads) == [True, True, False]
    assert pareto_front([(12, 20.0), (8, 30.0)], [spreads[0], spreads[2]]) == [True, True]


def test_means_over_seeds_by_hand():
    rows = [
        {"label": "a", "seed": 1, "words": "1–5", "sentences": 7, "bleu": 10.0, "rate": None, "joules": 1.0},
        {"label": "b", "seed": 1, "words": "1–5", "sentences": 7, "bleu": 50.0, "rate": None, "joules": 1.0},
        {"label": "a", "seed": 2, "words": "1–5", "sentences": 7, "bleu": 13.0, "rate": None, "joules": None},
        {"label": "a", "seed": 1, "words": "6–9", "sentences": 2, "bleu": 4.0, "rate": 1.0, "joules": 1.0},
    ]
    table = mean_over_seeds(Table("caption", rows))
    assert table.caption == "caption"
    assert table.rows == [
        {
            "label": "a",
            "words": "1–5",
            "sentences": 7,
            "bleu": 11.5,
            "rate": None,
            "joules": None,
            "seeds": 2,
        },
        {"label": "b", "words": "1–5", "sentences": 7, "bleu": 50.0, "rate": None, "joules": 1.0, "seeds": 1},
        {"label": "a", "words": "6–9", "sentences": 2, "bleu": 4.0, "rate": 1.0, "joules": 1.0, "seeds": 1},
    ]
    assert isinstance(table.rows[0]["sentences"], int)


SCORES = [3.0, 11.5, 0.0, 7.25, 7.25, 20.0]


@pytest.mark.parametrize("draws", range(1, 7))
def test_the_estimators_are_means_over_all_draws(draws: int):
    """Without replacement: over all subsets; with: over all sequences."""
    subsets = fmean(max(subset) for subset in combinations(SCORES, draws))
    sequences = fmean(max(sequence) for sequence in product(SCORES, repeat=draws))
    assert expected_best(SCORES, draws) == pytest.approx(subsets, rel=1e-12)
    assert expected_best_with_replacement(SCORES, draws) == pytest.approx(sequences, rel=1e-12)


def test_the_ends_of_the_curve():
    assert (
        expected_best(SCORES, 1) == expected_best_with_replacement(SCORES, 1) == pytest.approx(fmean(SCORES))
    )
    assert expected_best(SCORES, 6) == pytest.approx(20)
    assert expected_best_with_replacement(SCORES, 6) < 20  # its bias
    assert expected_best([5.0] * 2000, 1000) == pytest.approx(5)  # binomials beyond a float


@pytest.mark.parametrize("draws", [0, 7])
def test_more_draws_than_trials(draws: int):
    for estimator in (expected_best, expected_best_with_replacement):
        with pytest.raises(ValueError, match="from 1 to the 6 trials"):
            estimator(SCORES, draws)


def test_a_failed_trial_counts_as_nothing():
    trials = [
        TrialResult(
            label=label,
            trial=number,
            settings={},
            status="done" if bleu is not None else "diverged",
            bleu=bleu,
            loss=bleu,
            best_update=None if bleu is None else 1,
            updates=5,
            seconds=2.0 * number,
            code_version="test",
            reason=None if bleu is not None else "why",
        )
        for label, scores in {"a": [4.0, None], "b": [6.0, 8.0]}.items()
        for number, bleu in enumerate(scores, start=1)
    ]
    rows = tuning_curve(trials).rows
    assert [(row["label"], row["trials"], row["expected_bleu"]) for row in rows] == [
        ("a", 1, 2.0),
        ("a", 2, 4.0),
        ("b", 1, 7.0),
        ("b", 2, 8.0),
    ]
    assert [row["expected_bleu_with_replacement"] for row in rows] == [2.0, 3.0, 7.0, 7.5]
    assert [row["expected_seconds"] for row in rows] == [3.0, 6.0, 3.0, 6.0]
