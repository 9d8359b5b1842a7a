"""Columns of result tables: complete, unique, formatted in the unit of their heading."""

from dataclasses import fields

import pytest

from compare.report.table_formats import table_text
from compare.results.columns import (
    COLUMNS,
    FIGURES,
    INTERVALS,
    bleu_interval_column,
    explain_columns,
    find_column,
    further_tests,
    list_columns,
    score_column,
)
from compare.results.store import Result
from compare.scoring import METRICS

ROW = {"bleu": 38.125, "bleu_ci_low": 36.5625, "bleu_ci_high": 39.6875, "bleu_long": 9.5, "ter": 41.26}


def test_explanations_fit_a_narrow_terminal():
    assert "explanation" in table_text(explain_columns(), width=80).splitlines()[0]


def test_every_figure_of_a_result_is_declared_in_its_order():
    assert [*COLUMNS][:4] == [
        "label",
        "experiment",
        "seed",
        "seeds",
    ]  # also of joined and of aggregated tables
    assert FIGURES.keys() - {"experiment", "seeds"} == {item.name for item in fields(Result)}
    assert all(figure.help for figure in FIGURES.values())


def test_no_two_columns_share_a_heading():
    headings = [column.heading for column in COLUMNS.values()]
    headings += [score_column(metric).heading for metric in METRICS]
    headings += [bleu_interval_column(kind).heading for kind in INTERVALS]
    assert len(set(headings)) == len(headings)


@pytest.mark.parametrize(
    ("name", "row", "heading", "text", "order"),
    [
        ("params", {"params": 7_126_000}, "params (M)", "7.13", 7.126),
        ("train_s", {"train_s": 810.0, "train_s_sd": 6.0}, "train (min)", "13.5 ± 0.1", 13.5),
        (
            "latency_ms_p50",
            {"latency_ms_p50": 20.04, "latency_ms_p50_low": 19.0, "latency_ms_p50_high": 22.26},
            "latency p50 (ms)",
            "20.0 (19.0–22.3)",
            20.04,
        ),
        ("timed_tokens_per_s", {"timed_tokens_per_s": 4012.3}, "timed tokens/s", "4,012", 4012.3),
        ("cpu_share", {"cpu_share": 0.61}, "CPU share", "61%, disturbed", 0.61),
        ("cpu_share", {}, "CPU share", "–", None),
        ("seed", {"seed": 12345}, "seed", "12345", 12345),
        ("matched_off", {"matched": "params", "matched_off": -0.004}, "matched", "params -0.4%", -0.004),
        ("status", {"status": "failed", "reason": "NaN"}, "status", "failed: NaN", None),
    ],
)
def test_cells_are_formatted_values(name: str, row: dict, heading: str, text: str, order: float | None):
    column = COLUMNS[name]
    assert (column.heading, column.text(row)) == (heading, text)
    assert column.order(row) == pytest.approx(order)


def test_the_interval_of_the_test_set_is_that_of_the_mean_or_of_the_run():
    column, seeds = bleu_interval_column("test_set"), bleu_interval_column("seeds", "long")
    assert (column.text(ROW), column.order(ROW)) == ("[36.6, 39.7]", 36.5625)
    assert column.text(ROW | {"bleu_test_set_low": 1.0, "bleu_test_set_high": 2.0}) == "[1.0, 2.0]"
    assert column.text({"bleu_ci_low": 1.0, "bleu_ci_high": None}) == seeds.text(ROW) == "–"
    assert seeds.text({"bleu_seeds_low_long": 3, "bleu_seeds_high_long": 4}) == "[3.0, 4.0]"


def test_bleu_with_its_interval_is_a_column_of_its_own():
    assert find_column("BLEU [95%]").text(ROW) == "38.1 [36.6, 39.7]"
    assert find_column("bleu").text(ROW) == "38.1"
    mean = {"bleu": 38.1, "bleu_sd": 0.5, "bleu_combined_low": 35.0, "bleu_combined_high": 41.0}
    assert find_column("BLEU [95%]").text(mean) == "38.1 ± 0.5 [35.0, 41.0]"
    assert all(find_column(column.heading, ["long"]) == column for column in list_columns(["long"]))


def test_further_test_sets_are_found_by_their_perplexity():
    means = ["perplexity", "perplexity_sd", "char_perplexity_sd", "perplexity_test_long"]
    assert further_tests([*means, "perplexity_test_long_sd", "char_perplexity_test_long"]) == ["test_long"]
