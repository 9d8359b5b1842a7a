"""Tables in every form, that refuse or warn of what cannot be compared."""

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from compare.report.conditions import find_warnings
from compare.report.table import TableForm, render_table
from compare.results.store import Result, to_frame

SIGNATURE = "nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
SCORES = {"bleu": 38.125, "bleu_ci_low": 36.5625, "bleu_ci_high": 39.6875, "bleu_signature": SIGNATURE}
DONE = Result(
    label="lstm",
    preset="lstm",
    seed=1,
    status="done",
    params=7_126_000,
    updates=6_000,
    **SCORES,
    chrf=60.25,
    length_ratio=0.985,
    brevity_penalty=0.98489,
    train_tokens_per_s=4_012.3,
    train_tokens_per_s_low=3_900.0,
    train_tokens_per_s_high=4_100.0,
    greedy_sentences_per_s=1_210.4,
    beam_sentences_per_s=61.04,
    latency_ms_p50=14.25,
    train_s=810.0,
    beam=5,
    precision="bf16",
    decode_precision="fp32",
    device="Some CPU",
    torch="2.13.0",
    threads=2,
    cores=4,
    clock_mhz=2599.9,
    cpu_share=0.97,
    timed_together="a1",
    data_hash="data0123456789abcdef",
    batch_hash="batch0123456789abcdef",
    code_version="0.1.0",
)
UNUSUAL = (
    "Warning: translations shorter or longer than the references (length ratio outside 0.97 to 1.03), which "
    "changes BLEU: "
)
FAILED = Result(label="gru", preset="gru", seed=1, status="failed", reason="loss became NaN at update 37")
UNFINISHED = Result(label="big", preset="big", seed=1, status="unfinished")


def parts(text: str) -> tuple[list[dict[str, str]], list[str]]:
    """The rows of a Markdown table by heading, and the notes below it."""
    lines = text.splitlines()
    table = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines if line.startswith("|")]
    rows = [dict(zip(table[0], row, strict=True)) for row in table[2:]]
    return rows, [line.removeprefix("- ") for line in lines if line.startswith("- ")]


def test_markdown_shows_what_people_compare():
    (row,), notes = parts(render_table([DONE]))
    assert row == {
        "model": "lstm",
        "params (M)": "7.13",
        "BLEU [95%]": "38.1 [36.6, 39.7]",
        "chrF": "60.2",
        "length ratio": "0.985",
        "brevity penalty": "0.985",
        "train tokens/s": "4,012 (3,900–4,100)",
        "greedy sent/s": "1,210.4",
        "beam sent/s": "61.0",
        "latency p50 (ms)": "14.2",
        "train (min)": "13.5",
        "updates": "6,000",
    }
    assert notes == [
        f"BLEU: {SIGNATURE}",
        "Hardware: Some CPU, torch 2.13.0, 2 threads, 4 cores, 2,600 MHz",
        "Precision: training bf16, decoding fp32",
        "Speeds: median of repeats (lowest–highest), the models in turn, one seed per model, "
        "CPU share at least 97%",
        "Search: beam 5",
        "Data: data01234567, batches batch0123456, code 0.1.0",
    ]


def test_widths_that_are_no_multiples_of_8_are_named():
    narrow = replace(DONE, label="narrow", width_multiple=4)
    _, notes = parts(render_table([replace(DONE, width_multiple=16), narrow]))
    assert "Warning: widths that are not multiples of 8, which can cost speed: narrow" in notes
    _, notes = parts(render_table([DONE, replace(DONE, seed=2, width_multiple=8)]))
    assert not [note for note in notes if "widths" in note]


def test_the_length_penalty_is_shown_where_a_row_knows_it():
    chosen = [
        replace(DONE, length_penalty=0.6, length_normalization="wu"),
        replace(DONE, length_penalty=0.0, length_normalization="wu"),
    ]
    rows, notes = parts(render_table(chosen))
    assert [row["length penalty"] for row in rows] == ["0.60", "0.00"]
    assert "Search: beam 5, length penalty wu" in notes
    assert "form of length penalty" not in rows[0]
    other = replace(DONE, length_penalty=1.0, length_normalization="length")
    rows, _ = parts(render_table([*chosen, other]))
    assert [row["form of length penalty"] for row in rows] == ["wu", "wu", "length"]


def test_ter_is_shown_where_a_row_knows_it():
    rows, _ = parts(render_table([replace(DONE, ter=41.26), DONE]))
    assert [row["TER"] for row in rows] == ["41.3", "–"]
    assert list(rows[0])[3:5] == ["chrF", "TER"]


def test_further_test_sets_and_seeds_get_columns_where_there_are_any():
    longer = replace(DONE, seed=2, tests={"test_long": SCORES | {"bleu": 9.5}})
    rows, _ = parts(render_table([DONE, longer]))
    assert [row["BLEU test_long [95%]"] for row in rows] == ["–", "9.5 [36.6, 39.7]"]
    assert [row["seed"] for row in rows] == ["1", "2"]
    lengths = {"length_ratio": 0.99, "brevity_penalty": 0.98995}
    (row,), _ = parts(render_table([replace(DONE, tests={"test_long": SCORES | lengths})]))
    assert [row[f"{title} test_long"] for title in ("length ratio", "brevity penalty")] == ["0.990", "0.990"]
    names = list(row)
    assert names.index("length ratio test_long") == names.index("length ratio") + 2


def test_rows_of_several_experiments_say_which():
    frame = to_frame([DONE, DONE])
    frame.insert(0, "experiment", ["one", "two"])
    rows, _ = parts(render_table(frame))
    assert [row["experiment"] for row in rows] == ["one", "two"]
    assert "experiment" not in parts(render_table(frame[:1]))[0][0]


def test_failed_and_unfinished_rows_are_shown_as_such():
    rows, notes = parts(render_table([FAILED, DONE, UNFINISHED]))
    assert [row["model"] for row in rows] == ["gru", "lstm", "big"]
    assert [row["status"] for row in rows] == ["failed: loss became NaN at update 37", "done", "unfinished"]
    figures = [
        value for row in (rows[0], rows[2]) for name, value in row.items() if name not in ("model", "status")
    ]
    assert set(figures) == {"–"}
    assert not any("Warning" in note for note in notes)  # what is not known differs from nothing
    assert parts(render_table([UNFINISHED]))[1] == []


def test_what_a_failed_run_does_know_is_shown():
    rows, _ = parts(render_table([replace(FAILED, params=1_000_000, updates=0)]))
    assert (rows[0]["params (M)"], rows[0]["updates"]) == ("1.00", "0")


def test_the_status_is_shown_beside_chosen_columns_too():
    rows, _ = parts(render_table([DONE, FAILED], columns=["label", "train_s", "seed", "params", "ter"]))
    done = {"label": "lstm", "train_s": "810", "seed": "1", "params": "7126000", "ter": "–", "status": "done"}
    assert rows[0] == done
    assert rows[1]["status"].startswith("failed: ")


def test_a_heading_that_is_a_field_too_is_the_heading():
    rows, _ = parts(render_table([replace(DONE, perplexity=4.89548)], columns=["perplexity", "train_s"]))
    assert rows == [{"perplexity": "4.90", "train_s": "810"}]


def test_a_label_cannot_break_the_table():
    text = render_table([replace(DONE, label="a|b\n| c")])
    assert text.splitlines()[2].startswith(r"| a\|b \| c |")


@pytest.mark.parametrize("form", list(TableForm))
@pytest.mark.parametrize("where", ["test", "test_long"])
def test_rows_of_different_signatures_are_refused(form: str, where: str):
    other = "nrefs:1|case:lc|tok:none"
    if where == "test":
        rows = [DONE, UNFINISHED, replace(DONE, bleu_signature=other)]
    else:
        tests = [{"test_long": SCORES | {"bleu_signature": name}} for name in (SIGNATURE, other)]
        rows = [replace(DONE, tests=test) for test in tests]
    with pytest.raises(ValueError, match="one signature only") as caught:
        render_table(rows, form)
    assert SIGNATURE in str(caught.value)
    assert other in str(caught.value)


def warnings_of(*rows: Result) -> list[str]:
    return [note for note in parts(render_table(rows))[1] if note.startswith("Warning")]


@pytest.mark.parametrize(("ratio", "warned"), [(0.969, True), (0.97, False), (1.03, False), (1.031, True)])
def test_unusual_lengths_are_warned_of(ratio: float, warned: bool):
    found = warnings_of(replace(DONE, length_ratio=ratio), replace(DONE, label="gru", length_ratio=None))
    assert found == [UNUSUAL + f"lstm {ratio:.3f}"] * warned


def test_an_unusual_length_names_its_row_and_test_set():
    longer = {"test_long": SCORES | {"length_ratio": 0.5}}
    rows = [replace(DONE, length_ratio=1.25), replace(DONE, seed=2, tests=longer)]
    assert warnings_of(*rows) == [UNUSUAL + "lstm seed 1 1.250, lstm seed 2 test_long 0.500"]
    frame = to_frame([DONE, replace(DONE, length_ratio=0.75)])
    frame.insert(0, "experiment", ["one", "two"])
    notes = parts(render_table(frame))[1]
    assert [note for note in notes if note.startswith("Warning")] == [UNUSUAL + "lstm two 0.750"]


def test_rows_that_saw_other_data_or_batches_are_warned_of():
    assert warnings_of(DONE, replace(DONE, label="gru")) == []
    (data,) = warnings_of(DONE, replace(DONE, data_hash="other"))
    assert "different data (data01234567, other)" in data
    (batches,) = warnings_of(DONE, replace(DONE, batch_hash="other"))
    assert "seed 1 saw different batches (batch0123456, other)" in batches
    assert warnings_of(DONE, replace(DONE, seed=2, batch_hash="other")) == []


@pytest.mark.parametrize(
    ("name", "value"), [("device", "GPU"), ("torch", "2.11"), ("threads", 1), ("precision", "fp32")]
)
def test_speeds_of_different_settings_are_warned_of(name: str, value: str | int):
    (warning,) = warnings_of(DONE, replace(DONE, **{name: value}))
    assert warning == f"Warning: {name} differ between rows, so their speeds do not compare"


@pytest.mark.parametrize("other", ["b2", None])
def test_speeds_that_were_not_timed_together_are_warned_of(other: str | None):
    warning = "Warning: these rows were not timed together, so their speeds do not compare"
    assert warnings_of(DONE, replace(DONE, label="gru", timed_together=other)) == [warning]
    alone = replace(DONE, timed_together=None)
    assert warnings_of(alone, replace(alone, label="gru")) == [warning]  # earlier versions
    assert warnings_of(alone) == warnings_of(DONE, UNFINISHED) == []  # nothing to compare with


def test_disturbed_timings_are_named():
    some = replace(DONE, label="gru", cpu_share=0.899)
    (warning,) = warnings_of(DONE, some, replace(some, seed=2), replace(DONE, label="big", cpu_share=0.9))
    assert warning == "Warning: disturbed timings, with too little of the processor: gru 89%"
    (warning,) = warnings_of(replace(DONE, cpu_share=0.0))
    assert warning.endswith(": lstm 0%")


def test_a_disturbed_timing_is_named_beside_an_undisturbed_one_of_the_same_label():
    """As in a table that joins two experiments."""
    undisturbed = replace(DONE, cpu_share=0.99)
    (warning,) = warnings_of(replace(DONE, cpu_share=0.5), undisturbed)
    assert warning.endswith(": lstm 50%")


AWKWARD = replace(
    DONE,
    label='a "quoted", label\nof two lines',
    bleu=0.1 + 0.2,
    train_s=1e-300,
    params=2**62 + 1,
    tests={"long": {"bleu": 1 / 3, "bleu_signature": SIGNATURE}},
)


def test_csv_holds_every_column_in_full():
    frame = to_frame([AWKWARD, FAILED])
    table = list(csv.reader(io.StringIO(render_table(frame, "csv"), newline="")))
    assert table[0] == list(frame.columns)
    for cells, result in zip(table[1:], (AWKWARD, FAILED), strict=True):
        flat = result.flat()
        for name, cell in zip(table[0], cells, strict=True):
            expected = flat.get(name)
            assert ("" if expected is None else expected) == (type(expected)(cell) if cell else "")


def test_json_holds_every_column_in_full():
    frame = to_frame([AWKWARD, FAILED])
    rows = json.loads(render_table(frame, "json"))
    assert rows == [{name: result.flat().get(name) for name in frame.columns} for result in (AWKWARD, FAILED)]


def test_json_has_no_word_for_nan():
    (row,) = json.loads(render_table([replace(DONE, valid_loss=math.nan, ter=math.inf)], "json"))
    assert (row["valid_loss"], row["ter"]) == (None, None)


def test_columns_can_be_chosen_in_every_form():
    columns = ["bleu", "label"]
    assert render_table([DONE], "csv", columns) == "bleu,label\n38.125,lstm\n"
    assert json.loads(render_table([DONE], "json", columns)) == [{"bleu": 38.125, "label": "lstm"}]
    assert list(parts(render_table([DONE], columns=columns))[0][0]) == columns


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="no column 'blue'; did you mean 'bleu'"):
        render_table([DONE], columns=["blue"])
    with pytest.raises(ValueError, match="no table form 'html': choose markdown, csv, json"):
        render_table([DONE], "html")
    with pytest.raises(ValueError, match="no results"):
        render_table([])


@pytest.mark.parametrize("name", ["average_every", "ema", "consistency", "subword_sampling"])
def test_a_method_that_only_some_rows_use_is_named(name: str):
    rows = [{"label": "a", "settings_hash": "1"}, {"label": "b", "settings_hash": "2", name: 0.5}]
    (warning,) = [line for line in find_warnings(rows) if "share their settings" in line]
    assert warning.endswith(f"(1, 2: {name})")
