"""Result rows on disk and in frames."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from compare.results.store import (
    Result,
    fill_model_settings,
    load_results,
    of_budget,
    read_result,
    read_results,
    save_result,
    to_frame,
    train_commands,
)

DONE = Result(label="lstm", preset="lstm", seed=1, status="done", params=7, bleu=38.125, bleu_signature="v:2")


def test_commands_that_train_name_the_models_where_their_seeds_differ():
    results = [
        replace(DONE, label=label, seed=seed) for label, seed in (("a b", 2), ("c", 1), ("c", 2), ("d", 2))
    ]
    assert train_commands("x.toml", results[1:3]) == ["attnbench run x.toml --seeds 1,2"]
    assert train_commands("x.toml", results) == [
        "attnbench run x.toml --seeds 2 --only 'a b,d'",
        "attnbench run x.toml --seeds 1,2 --only c",
    ]


def back(result: Result) -> Result:
    return msgspec.json.decode(result.to_json(), type=Result)


def test_a_row_survives_json():
    row = replace(DONE, tests={"long": {"bleu": 1.0, "chrf": None}}, scores={"comet": 0.5})
    row = replace(
        row,
        label="größer \u2028 x",
        params=2**62 + 1,
        repeats=0,  # a known zero
        valid_loss=1 / 3,
        files={"a/b.hyp": "0" * 64},
        reason="two\nlines",
    )
    assert back(row) == row
    assert "\n" not in row.to_json(indent=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_becomes_unknown(value: float):
    result = replace(DONE, valid_loss=value, tests={"long": {"bleu": value, "chrf": 1.0}})
    assert back(result) == replace(DONE, valid_loss=None, tests={"long": {"bleu": None, "chrf": 1.0}})


def changed(**changes: object) -> str:
    return json.dumps(json.loads(DONE.to_json()) | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "missing required field `label`"),
        (changed(bleu="38.1"), "$.bleu"),
        (changed(tests={"long": 3.0}), "$.tests[...]"),
        ("{", "truncated"),
    ],
)
def test_a_file_that_is_no_row_is_named(text: str, message: str, tmp_path: Path):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_result(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_result_of_another_folder_is_refused(tmp_path: Path):
    """Tables, plots and ``check`` look for the other files of a run by its label and seed."""
    save_result(tmp_path / "lstm-seed2", DONE)
    for read in (read_results, lambda folder: load_results(folder / "lstm-seed2")):
        with pytest.raises(ValueError, match="belongs to label 'lstm' and seed 1: rename the folder"):
            read(tmp_path)


def experiment(folder: Path, *results: Result) -> Path:
    for result in results:
        save_result(folder / f"{result.label}-seed{result.seed}", result)
    return folder


def test_rows_come_by_label_and_seed_number(tmp_path: Path):
    rows = [replace(DONE, label=label, seed=seed) for label in ("a", "b-seed7") for seed in (2, 10)]
    assert read_results(experiment(tmp_path, *reversed(rows))) == rows


def test_rows_come_as_planned_and_what_has_not_begun_is_unfinished(tmp_path: Path):
    first, second, extra = (replace(DONE, label=label) for label in ("z", "a", "m"))
    experiment(tmp_path, first, second, extra)
    plan = {"runs": ["z-seed1", "big model-seed3", "a-seed1"], "other": 1}
    (tmp_path / "experiment.json").write_text(json.dumps(plan))
    missing = Result(label="big model", preset="", seed=3, status="unfinished")
    assert read_results(tmp_path) == [first, missing, second, extra]


def test_a_run_without_a_result_is_unfinished(tmp_path: Path):
    run = tmp_path / "lstm-seed12"
    run.mkdir()
    (run / "config.toml").touch()
    (tmp_path / "notes").mkdir()
    (tmp_path / "config.toml").touch()  # the experiment's own does not make it a run
    expected = Result(label="lstm", preset="", seed=12, status="unfinished")
    assert read_results(tmp_path) == [expected]
    for folder in (tmp_path, run):
        frame = load_results(folder)
        assert frame["status"].tolist() == ["unfinished"]
        assert frame[["experiment", "label"]].values.tolist() == [[tmp_path.name, "lstm"]]


@pytest.mark.parametrize(
    ("name", "message"),
    [(".", "has no runs: expected <label>-seed<k>/"), ("nowhere", "nowhere: no such folder")],
)
def test_a_folder_that_is_no_experiment_is_refused(name: str, message: str, tmp_path: Path):
    (tmp_path / "something").mkdir()
    with pytest.raises(ValueError, match=message):
        load_results(tmp_path / name)


def test_frames_hold_experiments_and_single_runs(tmp_path: Path):
    experiment(tmp_path / "one", DONE, replace(DONE, seed=2))
    experiment(tmp_path / "two", replace(DONE, label="gru"))
    folders = tmp_path / "two", str(tmp_path / "one" / "lstm-seed2")
    frame = load_results(*folders)
    assert frame.equals(load_results(folders))
    assert frame.equals(load_results(folder for folder in folders))
    assert frame[["experiment", "label", "seed"]].values.tolist() == [["two", "gru", 1], ["one", "lstm", 2]]
    assert len(load_results(tmp_path / "one", tmp_path / "two")) == 3


def test_a_frame_keeps_integers_and_leaves_the_unknown_unknown():
    large = 2**62 + 1  # no float holds it
    frame = to_frame([replace(DONE, params=large), replace(DONE, params=None, bleu=None)])
    assert frame["params"][0] == large
    assert str(frame["params"].dtype) == "Int64"
    assert frame["params"].isna().tolist() == [False, True]
    assert frame["bleu"].dtype == "float64"
    assert frame["bleu"].isna().tolist() == [False, True]
    assert frame["valid_loss"].isna().all()


def test_one_budget_is_the_largest_with_a_finished_run_or_the_one_asked_for():
    external = replace(DONE, label="theirs", preset="external")
    small, large = (replace(DONE, budget=budget) for budget in (1_000, 4_000))
    begun = replace(DONE, budget=8_000, status="unfinished")
    results = [external, small, large, begun]
    assert of_budget(results) == [external, large]
    assert of_budget(results, 8_000) == [external, begun]
    assert of_budget([begun]) == [begun]


def test_further_test_sets_become_columns():
    frame = to_frame([DONE, replace(DONE, tests={"test_long": {"bleu": 9.5, "bleu_signature": "v:2"}})])
    assert list(frame.columns[-2:]) == ["bleu_test_long", "bleu_signature_test_long"]
    assert frame["bleu_test_long"].tolist()[1] == 9.5
    assert frame["bleu_test_long"].isna().tolist() == [True, False]
    assert "tests" not in frame.columns


def test_a_test_set_cannot_take_the_place_of_a_field():
    with pytest.raises(ValueError, match="already exists: rename the test set"):
        to_frame([replace(DONE, tests={"signature": {"bleu": 1.0}})])


def test_settings_that_only_some_models_change_are_those_of_the_presets(tmp_path: Path):
    """A model may have no such setting, and a mean has no seed."""
    models = {"a": "dropout = 0.5", "b": "dropout = 0.3\nnum_heads = 4", "c": ""}
    for label, settings in models.items():
        (tmp_path / f"{label}-seed2").mkdir()
        (tmp_path / f"{label}-seed2/config.toml").write_text(f"[[models]]\n{settings}\n", encoding="utf-8")
    rows = [{"label": "a", "model.dropout": 0.5}, {"label": "b", "model.num_heads": 4}, {"label": "c"}]
    filled = fill_model_settings((tmp_path, row) for row in rows)
    assert [row.get("model.dropout") for row in filled] == [0.5, 0.3, None]
    assert [row.get("model.num_heads") for row in filled] == [None, 4, None]
