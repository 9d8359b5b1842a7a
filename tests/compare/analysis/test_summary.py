"""An experiment of two budgets: what tables and outcome show of each, and of both together."""

from pathlib import Path

import pytest

from compare.analysis.cost import cost_points
from compare.analysis.finished_experiment import load_finished
from compare.analysis.summary import summarise
from compare.cli import main
from compare.config.sections import QUICK_TRY
from compare.report.result_table import find_summary, load_table
from compare.results.store import load_results, of_budget, read_results, setting_text
from tests.kits.experiments import change_result, edit_text


def test_tables_show_the_largest_budget_or_the_one_asked_for(
    budgets: Path, capsys: pytest.CaptureFixture[str]
):
    assert {run.budget for run in of_budget(read_results(budgets))} == {4_000}
    assert len(load_results(budgets)) == 12
    assert set(load_table(budgets)["budget"]) == {4_000}
    for budget, expected in ((1_000, [1_000] * 3), ("all", [1_000] * 3 + [4_000] * 3), (None, [4_000] * 3)):
        means = load_table(budgets, "aggregated", budget=budget)  # type: ignore[arg-type]
        assert list(means["budget"]) == expected
        assert list(means["seeds"]) == [2] * len(expected)
    assert main(["table", str(budgets), "--budget", "1000", "--columns", "budget,model"]) == 0
    shown = capsys.readouterr().out
    assert "1,000 | lstm" in shown
    assert "4,000" not in shown
    assert main(["table", str(budgets), "--budget", "50"]) == 2
    assert "no run has the budget 50; choose one of 1000, 4000" in capsys.readouterr().err


def test_pairs_are_the_same_text_from_a_file_and_from_a_result():
    assert setting_text((("a", "b"), ("c", "d"))) == setting_text([["a", "b"], ["c", "d"]]) == "a, b, c, d"


def test_the_summary_that_is_stored_is_that_of_the_largest_budget(budgets: Path):
    small = find_summary(budgets, of_budget(read_results(budgets), 1_000))
    assert not (budgets / "summary.json").exists()
    large = find_summary(budgets, of_budget(read_results(budgets)))
    assert (budgets / "summary.json").is_file()
    assert [row["budget"] for row in small.means + large.means] == [1_000] * 3 + [4_000] * 3


def test_the_outcome_names_who_leads_where_and_where_the_curves_cross(budgets: Path):
    outcome = summarise(budgets).outcome
    assert outcome[0].startswith("On test at 4,000 updates, ")
    (pair,) = (line for line in outcome if "cross" in line and "lstm" in line and "transformer" in line)
    assert "1,000 updates" in pair
    flops = [1e6 * 100 * budget for budget in (1_000, 4_000)]
    crossing = float(next(word for word in pair.replace(",", "").split() if "e1" in word))
    assert flops[0] < crossing < flops[1]
    assert sum(line.startswith("Each doubling of the training FLOPs") for line in outcome) == 3
    assert not any("cross" in line for line in summarise(budgets, budget=1_000).outcome)


def test_the_planned_curves_are_compared_and_a_quick_try_is_called_one(budgets: Path):
    scoring = '[scoring]\nbaseline = "rnn"\npairs = [["transformer", "lstm"]]\n'
    for config in budgets.glob("*/config.toml"):
        edit_text(config, "[train]", f"{scoring}[train]\nquick = true")
    first, *others = summarise(budgets).outcome
    assert first == QUICK_TRY
    slopes = [line.split(" ") for line in others if line.startswith("Each doubling")]
    assert [(words[10], words[15]) for words in slopes] == [
        *(("lstm", "rnn:"), ("transformer", "rnn:"), ("transformer", "lstm:"))
    ]
    assert sum("cross" in line for line in others) == 3


def test_a_point_of_a_budget_has_the_costs_of_its_result(budgets: Path):
    times = {"train_s": 60.0, "data_s": 30.0, "validation_s": 600.0}
    change_result(budgets, "lstm-seed1-budget1000", **times, energy_j_per_1k_tokens=2.0)
    point = cost_points(load_finished(budgets)).rows[0]
    costs = {"updates": 1_000, "minutes": 1.5, "tokens": 100_000, "flops": 1e11, "joules": 200.0}
    assert point.items() >= {"label": "lstm", "seed": 1, **costs}.items()
