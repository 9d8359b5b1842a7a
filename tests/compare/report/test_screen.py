"""Tests of the view of an experiment in a terminal."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compare.analysis import comparison
from compare.analysis.seeds import find_groups
from compare.analysis.summary import summarise
from compare.cli import main
from compare.report import screen
from compare.report.conditions import find_warnings
from compare.report.result_table import refresh_views, write_views
from compare.report.screen import (
    CLOSING_WIDTH,
    length_table,
    screen_table,
    show_closing,
    show_experiment,
    show_experiments,
)
from compare.report.table_formats import terminal
from compare.results.store import SUMMARY, has_means, read_results, save_result, stored_summary
from tests.compare.report.test_result_table import DONE, FAILED, SCORES, changed
from tests.kits.common import ROWS


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(made: Path, width: int):
    text = show_experiment(made, width=width)
    assert max(len(line) for line in text.splitlines() if str(made) not in line) <= width
    lines = text.split("\n\n")[1].splitlines()
    assert lines[0].startswith("model")
    assert {line.split()[0] for line in lines[1:4]} == {"lstm", "rnn", "transformer"}


def test_two_experiments_are_told_apart_and_paths_can_be_pasted(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    copied = Path(shutil.copytree(made, "an other"))
    assert "attnbench report 'an other'" in show_experiment(copied, width=200)
    text = show_experiments([made, copied], width=100)
    assert max(map(len, text.splitlines())) <= 100
    assert {made.name, "other"} <= set(text.split())
    rows = [{"experiment": name} | changed(seed=seed).flat() for name, seed in (("a", 1), ("a", 2), ("b", 3))]
    assert "1 to 2 seeds" in terminal(screen_table(rows, rows), 100)


def test_rows_are_sorted_by_bleu_and_the_fullest_screen_has_the_rest(made: Path):
    heading, *rows = show_experiment(made, width=200).split("\n\n")[1].splitlines()
    scores = {row["label"]: row["bleu"] for row in summarise(made).means}
    assert [row.split()[0] for row in rows] == sorted(scores, key=scores.get, reverse=True)
    for name in ("BLEU", "combined [95%]", "test_long", "chrF", "params"):
        assert name in heading
    narrow = show_experiment(made, width=80).split("\n\n")[1].splitlines()[0]
    assert "combined [95%]" in narrow
    assert "params" not in narrow


def show(*results: Any, **options: Any) -> str:
    rows = [result.flat() for result in results]
    return terminal(screen_table(rows, rows, **options), 120)


def test_single_runs_show_their_interval_their_status_and_one_line_per_warning():
    text = show(
        changed(label="b", bleu=40.0, length_ratio=1.2, stopped_by="updates"),
        changed(length_ratio=0.9, stopped_by="updates", train_tokens_per_s=40_123.0),
        FAILED,
        outcome=["b is ahead."],
    )
    above, table, below = text.split("\n\n")
    assert above == "b is ahead."
    assert table.splitlines()[0].split()[:4] == ["model", "status", "BLEU", "[95%]"]
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["b", "lstm", "gru"]
    assert "40.1k" in table
    assert below.splitlines() == [
        "! runs that failed or have not ended: gru seed 1 (failed: loss became NaN at update 37)",
        "! 2 of 2 length ratios are outside 0.97 to 1.03, which lowers BLEU; worst: b, 1.200",
        "Presets: b: lstm.",
        "1 seed, 6,000 updates, 2 CPU threads.",
    ]


def test_seeds_in_two_groups_are_listed_and_have_no_deviation():
    runs = [changed(seed=seed, bleu=bleu).flat() for seed, bleu in ((1, 94.0), (2, 27.9), (3, 93.4))]
    mean = {**runs[0], "seeds": 3, "bleu": 71.8, "bleu_sd": 38.0, "bleu_groups": "27.9 / 93.4, 94.0"}
    table, below = terminal(screen_table([mean], runs), 100).split("\n\n")
    assert "71.8 (27.9 / 93.4, 94.0)" in table
    assert "! the seeds of lstm form two groups, 27.9 / 93.4, 94.0 BLEU, 1 of 3 in the lower one" in below


def test_several_budgets_are_no_groups_of_seeds_and_are_named():
    runs = [
        changed(seed=seed, budget=budget, bleu=bleu + seed, length_ratio=ratio).flat()
        for budget, bleu, ratio in ((1_000, 20.0, 0.5), (2_000, 60.0, 1.1))
        for seed in (1, 2)
    ]
    text = "\n".join(find_warnings(runs))
    assert "two groups" not in text
    assert (
        "4 of 4 length ratios are outside 0.97 to 1.03, which lowers BLEU; worst: lstm budget 1000 seed 1"
        in text
    )


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([94.0, 27.9, 93.4], True),
        ([39.5, 40.1, 33.6], False),  # three draws from one distribution may lie so
        ([89.4, 81.9, 90.3], False),  # less than a tenth of the mean
        ([21.7, 14.2, 16.0], False),
        ([38.0, 38.8, 37.1, 37.9, 39.0], False),
        ([38.0, 38.8, 37.1, 37.9, 20.0], True),
        ([0.2, 0.3, 0.2], False),
        ([38.0, 10.0], False),
    ],
)
def test_two_groups_have_a_gap_far_above_the_deviation_within(scores: list[float], expected: bool):
    assert (find_groups(scores) is not None) is expected


def test_seeds_of_one_distribution_seldom_seem_to_form_groups():
    draws = np.random.default_rng(0)
    for seeds in (3, 4, 5):
        assert sum(find_groups(draws.normal(30, 6, seeds)) is not None for _ in range(500)) <= 35


def test_language_models_show_perplexity():
    plain = dict.fromkeys([*SCORES, "chrf", "length_ratio"])
    text = show(changed(label="b", perplexity=9.5, **plain), changed(perplexity=9.0, **plain))
    lines = text.splitlines()
    assert "perplexity" in lines[0]
    assert [line.split()[0] for line in lines[1:3]] == ["lstm", "b"]


# The summary on disk.


def test_what_is_shown_is_stored_and_computed_once(copied: Path, monkeypatch: pytest.MonkeyPatch):
    (copied / SUMMARY).unlink(missing_ok=True)
    first = show_experiment(copied, width=100)
    assert stored_summary(copied, read_results(copied)) == summarise(copied)
    monkeypatch.setattr(comparison, "score_tests", None)
    assert show_experiment(copied, width=100) == first
    only = show_experiment(copied, width=100, only=["rnn"])
    assert "transformer" not in only


@pytest.mark.usefixtures("without_plots")
def test_a_summary_of_other_results_is_not_used(copied: Path):
    write_views(copied)
    results = read_results(copied)
    assert stored_summary(copied, results) is not None
    save_result(copied / results[0].run, replace(results[0], chrf=1.0))
    assert stored_summary(copied, read_results(copied)) is None
    refresh_views(copied)
    assert stored_summary(copied, read_results(copied)) is not None
    assert json.loads((copied / "table.json").read_text(encoding="utf-8"))[0]["chrf"] == 1.0


def test_means_are_of_models_with_several_seeds_that_all_ended():
    assert has_means([DONE, changed(seed=2)])
    assert not has_means([DONE, changed(label="other")])
    assert not has_means([DONE, changed(seed=2), FAILED])


def test_a_pipe_has_the_columns_that_fit_and_commands_on_lines_of_their_own(
    made: Path, capfd: pytest.CaptureFixture[str]
):
    show_experiment(made, width=100)  # stores the outcome
    assert main(["table", str(made)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert max(len(line) for line in lines if str(made) not in line) <= 100
    assert f"  attnbench report {made}" in lines
    assert main(["table", str(made), "--columns", "all"]) == 0
    whole = capfd.readouterr().out
    assert whole.startswith("- On test, rnn is ")
    assert "\n\n| model" in whole


# Below the table of `run`.


def test_scores_by_length_are_means_over_seeds():
    scores = {("a", 1, "1–5"): 40.0, ("a", 2, "1–5"): 60.0, ("a", 1, "6–9"): 0.0, ("a", 2, "6–9"): 0.0}
    rows = [
        {"label": label, "seed": seed, "source_words": words, "bleu": bleu}
        for (label, seed, words), bleu in scores.items()
    ]
    *_, line = length_table(rows).splitlines()
    assert line.split() == ["a", "50", "0"]


def test_it_shows_each_model_and_the_picture(copy: Path):
    text = show_closing(copy, [name.partition("-seed")[0] for name in ROWS])
    assert (copy / "plots" / "length.png").is_file()
    assert all(
        name in text for name in ("reference", ROWS[0].partition("-seed")[0], " report ", "length.png")
    )
    assert all(len(line) <= CLOSING_WIDTH for line in text.splitlines() if str(copy) not in line)


def test_labels_are_whole(copy: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [{"label": "long" * 12, "source_words": words, "bleu": 50.0} for words in ("1-5", "6-10")]
    assert "long" * 12 in length_table(rows)
    monkeypatch.setattr(screen, "NAME_WIDTH", 3)
    label = ROWS[0].partition("-seed")[0]
    assert f"\n{label}\n  " in show_closing(copy, [label])
