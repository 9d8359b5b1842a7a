"""Tables in every form and shape: what they show, refuse and warn of."""

import csv
import io
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare.analysis.seeds import mean_over_seeds
from compare.cli import main
from compare.report.conditions import (
    describe_ends,
    describe_models,
    find_warnings,
)
from compare.report.result_table import FORMS, find_summary, load_table, render_table
from compare.report.screen import screen_table
from compare.report.table_formats import latex
from compare.results.columns import COLUMNS
from compare.results.formatting import Column, Table
from compare.results.store import (
    NO_INTERVALS,
    SUMMARY,
    Result,
    read_result,
    read_results,
    save_result,
    stored_summary,
    to_frame,
    write_record,
)
from compare.scoring import METRICS

SIGNATURE = "nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
SCORES = {"bleu": 38.125, "bleu_ci_low": 36.5625, "bleu_ci_high": 39.6875, "bleu_signature": SIGNATURE}
SPEEDS = {
    "train_tokens_per_s": 3_500.4,
    "timed_tokens_per_s": 4_012.3,
    "timed_tokens_per_s_low": 3_900.0,
    "timed_tokens_per_s_high": 4_100.0,
}
SPEEDS |= {"beam_sentences_per_s": 61.04, "latency_ms_p50": 14.25, "train_s": 810.0, "cpu_share": 0.97}
MACHINE = {"device": "Some CPU", "torch": "2.13.0", "threads": 2, "cores": 4, "clock_mhz": 2599.9}
FIGURES = {"params": 7_126_000, "updates": 6_000, "chrf": 60.25, "length_ratio": 0.985}
SETTINGS = {"train.precision": "bf16", "decode.beam_size": 4}
HASHES = {"data_hash": "data0123456789abcdef", "batch_hash": "batch0123456789abcdef", "timed_together": "a1"}
DONE = Result(
    **{"label": "lstm", "preset": "lstm", "seed": 1, "status": "done", "settings": SETTINGS},
    **(SCORES | SPEEDS | MACHINE | FIGURES | HASHES),
)
FAILED = Result(label="gru", preset="gru", seed=1, status="failed", reason="loss became NaN at update 37")
UNFINISHED = Result(label="big", preset="big", seed=1, status="unfinished")


def changed(**changes: Any) -> Result:
    return replace(DONE, **changes)


def parts(text: str) -> tuple[list[dict[str, str]], list[str]]:
    """The rows of a Markdown table by heading, and the notes below it."""
    lines = text.splitlines()
    table = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines if line.startswith("|")]
    rows = [dict(zip(table[0], row, strict=True)) for row in table[2:]]
    return rows, [line.removeprefix("- ") for line in lines if line.startswith("- ")]


def rows_of(*results: Result, **options: Any) -> list[dict[str, str]]:
    return parts(render_table(results, **options))[0]


def test_markdown_shows_what_people_compare():
    (row,), notes = parts(render_table([DONE]))
    assert row == {
        "model": "lstm",
        "params (M)": "7.13",
        "BLEU [95%]": "38.1 [36.6, 39.7]",
        "chrF": "60.2",
        "length ratio": "0.985",
        "brevity penalty": "–",
        "train tokens/s": "3,500",
        "timed tokens/s": "4,012 (3,900–4,100)",
        "greedy sent/s": "–",
        "beam sent/s": "61.0",
        "latency p50 (ms)": "14.2",
        "train (min)": "13.5",
        "updates": "6,000",
    }
    assert notes == [
        f"BLEU: {SIGNATURE}",
        "Hardware: Some CPU, torch 2.13.0, 2 threads, 4 cores, 2,600 MHz",
        "Precision: training bf16, decoding fp32",
        "Speeds: median of repeats (lowest–highest), with one seed of each model, in turn, "
        "CPU share at least 97%",
        "Settings: train.batch_tokens 4096, train.label_smoothing 0.1, train.clip_norm 1.0, "
        "decode.beam_size 4, decode.max_ratio 2.0",
        "Data: data01234567, batches batch0123456",
    ]


def test_columns_stand_where_a_row_knows_them_or_rows_differ():
    wu = {"length_normalization": "wu"}
    rows = rows_of(changed(ter=41.26, length_penalty=0.6, **wu), changed(length_penalty=0.0, **wu))
    assert [row["TER"] for row in rows] == ["41.3", "–"]
    assert [row["length penalty"] for row in rows] == ["0.60", "0.00"]
    assert "form of length penalty" not in rows[0]
    other = changed(length_penalty=1.0, length_normalization="length")
    assert rows_of(changed(length_penalty=0.6, **wu), other)[1]["form of length penalty"] == "length"
    rows = rows_of(DONE, changed(seed=2, tests={"test_long": SCORES | {"bleu": 9.5, "length_ratio": 0.99}}))
    assert [row["BLEU test_long [95%]"] for row in rows] == ["–", "9.5 [36.6, 39.7]"]
    assert [row["seed"] for row in rows] == ["1", "2"]
    assert rows[1]["length ratio test_long"] == "0.990"


def test_failed_and_unfinished_rows_are_shown_as_such():
    rows, notes = parts(render_table([FAILED, DONE, UNFINISHED]))
    assert [row["status"] for row in rows] == ["failed: loss became NaN at update 37", "done", "unfinished"]
    filled = {name for row in (rows[0], rows[2]) for name, value in row.items() if value != "–"}
    assert filled == {"model", "status"}
    assert not any("Warning" in note for note in notes)  # unknown values do not count as different


def test_columns_are_chosen_by_heading_or_field_in_every_form():
    chosen = rows_of(changed(perplexity=4.89548), columns=["perplexity", "train_s", "params", "BLEU", "ter"])
    assert list(chosen[0].values()) == ["4.90", "810", "7126000", "38.1", "–"]
    assert render_table([DONE], "csv", ["bleu", "label"]) == "bleu,label\n38.125,lstm\n"
    assert json.loads(render_table([DONE], "json", ["bleu"])) == [{"bleu": 38.125}]
    for form, columns, message in (
        ("markdown", ["blue"], "no column 'blue'; did you mean 'bleu'"),
        ("csv", ["BLEU", "seeds"], "these rows have no value for the column 'seeds'"),
        ("html", None, "no table form 'html': choose markdown, csv, json"),
    ):
        with pytest.raises(ValueError, match=message):
            render_table([DONE], form, columns)
    with pytest.raises(ValueError, match="no results"):
        render_table([])


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_different_signatures_or_tasks_are_refused(form: str):
    other = "nrefs:1|case:lc|tok:none"
    tests = [{"test_long": SCORES | {"bleu_signature": name}} for name in (SIGNATURE, other)]
    for rows in ([DONE, UNFINISHED, changed(bleu_signature=other)], [changed(tests=test) for test in tests]):
        with pytest.raises(ValueError, match="one signature only") as caught:
            render_table(rows, form)
        assert {SIGNATURE, other} <= set(re.split(r" and |found |;", str(caught.value)))
    model = Result(label="lm", preset="lstm-lm", seed=1, status="done", perplexity=9.0)
    with pytest.raises(ValueError, match="lm is a language model"):
        render_table([DONE, model], form)


LONG = [changed(length_ratio=1.25), changed(seed=2, tests={"long": SCORES | {"length_ratio": 0.5}})]
DISTURBED = [changed(cpu_share=0.5), changed(cpu_share=0.99), changed(label="gru", cpu_share=0.899)]
ALONE = "these rows were not timed together, so their speeds do not compare"
WARNINGS = [
    ([changed(length_ratio=0.97), changed(length_ratio=1.03)], ""),
    (LONG, "1 of 2 length ratios are outside 0.97 to 1.03, which lowers BLEU; worst: lstm seed 1, 1.250"),
    (
        [
            changed(
                settings=SETTINGS | {"scoring.outcome": "long"},
                tests={"long": SCORES | {"length_ratio": 0.5}},
            )
        ],
        "1 of 1 length ratios are outside 0.97 to 1.03, which lowers BLEU; worst: lstm long, 0.500",
    ),
    (
        [DONE, changed(data_hash="other")],
        "these rows were trained or tested on different data (data01234567, other)",
    ),
    (
        [DONE, changed(batch_hash="other"), changed(seed=2, batch_hash="2")],
        "rows of seed 1 saw different batches (batch0123456, other)",
    ),
    (
        [DONE, changed(device="GPU", threads=1)],
        "device, threads differ between rows, so their speeds do not compare",
    ),
    (
        [DONE, changed(seed=2, trained_on="GPU")],
        "these rows were trained on different machines, so their minutes do not compare",
    ),
    ([DONE, changed(label="gru", timed_together="b2")], ALONE),
    ([changed(timed_together=None), changed(label="gru", timed_together=None)], ALONE),
    ([changed(timed_together=None), UNFINISHED], ""),  # nothing to compare with
    (DISTURBED, "timings disturbed by other programs; shares of the processor: lstm 50%, gru 89%"),
    ([changed(reference_share=0.8)], "timings while the machine was slower than at its best: lstm 80%"),
    (
        [changed(width_multiple=16), changed(label="narrow", width_multiple=4)],
        "widths are not multiples of 8, which can cost speed: narrow",
    ),
    ([changed(warnings="de: cut")] * 2, "de: cut"),
    ([DONE, changed(seed=2, warnings="a\nb")], "a (lstm seed 2)Warning: b (lstm seed 2)"),
]


@pytest.mark.parametrize(("rows", "expected"), WARNINGS)
def test_what_does_not_compare_is_warned_of(rows: list[Result], expected: str):
    notes = parts(render_table(rows))[1]
    kind = "Note" if expected.startswith("timings") else "Warning"
    assert "".join(note for note in notes if note.startswith(("Warning", "Note"))) == (
        expected and f"{kind}: {expected}"
    )


def test_the_preset_of_another_label_and_the_outcome_are_shown():
    text = render_table([DONE, changed(label="small")], outcome=["lstm beats small."])
    assert text.startswith("- lstm beats small.\n\n| model")
    assert "\n- Presets: small: lstm\n" in text
    assert "Presets" not in render_table([DONE])
    latex = render_table([DONE], "latex", outcome=["lstm beats\nsmall."])
    assert "\n% lstm beats small.\n\\begin{table}" in latex


def test_settings_that_differ_are_named():
    other = changed(label="b", settings_hash="2", settings=SETTINGS | {"train.ema": 0.5})
    mixed = [changed(settings_hash="1"), other]  # a method that only some rows use
    assert find_warnings([result.flat() for result in mixed])[0].endswith("(1, 2: train.ema)")
    assert [row["train.ema"] for row in rows_of(*mixed)] == ["0", "0.5"]
    assert to_frame(mixed)["train.ema"].tolist() == [0.0, 0.5]
    assert json.loads(render_table(mixed, "json", ["train.decay"])) == [{"train.decay": 0.2}] * 2


def test_settings_of_models_are_columns_where_rows_of_a_preset_differ():
    plain, wide = SETTINGS, SETTINGS | {"model.d_model": 512, "model.tie": "all"}
    rows = rows_of(
        changed(settings=wide, preset="transformer"),
        changed(settings=plain),
        changed(label="b", settings=plain),
    )
    assert not [name for name in rows[0] if name.startswith("model.")]
    rows = rows_of(changed(settings=wide), changed(label="b", settings=plain | {"model.tie": "all"}))
    assert [row["model.d_model"] for row in rows] == ["512", "–"]
    assert "model.tie" not in rows[0]
    latex = render_table([changed(settings=wide), changed(label="b", settings=plain)], "latex")
    assert r"model & model.d\_model & model.tie & BLEU {[}95\%]" in latex


def test_models_of_one_label_in_two_experiments_are_told_apart():
    rows = [
        {"label": "a", "experiment": "short", "stopped_by": "updates", "preset": "lstm", "width_multiple": 4},
        {"label": "a", "experiment": "long", "stopped_by": "patience", "preset": "gru"},
    ]
    assert find_warnings(rows) == [
        "Warning: widths are not multiples of 8, which can cost speed: a short",
    ]
    assert describe_ends(rows) == [
        "all updates used (a short)",
        "stopped by patience, as validation no longer improved (a long)",
    ]
    assert describe_models(rows)["Presets"] == ["a short: lstm", "a long: gru"]
    frame = to_frame([DONE, changed(seed=2)])
    assert "model & seed & BLEU" in render_table(frame, "latex")
    frame.insert(0, "experiment", ["short", "long"])
    assert "model & experiment & seed & BLEU" in render_table(frame, "latex")


def test_only_rows_that_ended_and_were_trained_here_have_conditions():
    threads = "threads differ between rows"
    assert threads not in render_table([DONE, changed(seed=2), replace(FAILED, threads=1)])
    rows = [changed(settings_hash="1").flat(), changed(settings_hash="2").flat() | {"train.decay": 0.5}]
    outside = {"label": "theirs", "preset": "external", "settings_hash": "3"}
    assert find_warnings([*rows, outside])[0].endswith(": train.decay)")


def test_notes_of_means_are_those_of_the_runs():
    """Means have no value where the seeds differ, and no row for a run that failed."""
    ends = [("updates", "1", 0.9, 0.5), ("patience", "2", 1.1, 0.49)]
    runs = [
        changed(label="a", seed=seed, stopped_by=end, batch_hash=batches, length_ratio=ratio, late_gain=gain)
        for seed, (end, batches, ratio, gain) in enumerate(ends, start=1)
    ]
    means = to_frame([replace(runs[0], stopped_by=None, batch_hash=None, length_ratio=1.0)])
    _, notes = render_table(means, runs=[*runs, replace(FAILED, label="a", seed=3)]).split("\n\n")
    for text in (
        "batches 1, batches 2",
        "- Warning: runs that failed or have not ended: a seed 3 (failed: loss became NaN at update 37)\n",
        "2 of 2 length ratios are outside 0.97 to 1.03, which lowers BLEU; worst: a seed 1, 0.900",
        "- Training: all updates used (a (1 of 2 seeds)), "
        "stopped by patience, as validation no longer improved (a (1 of 2 seeds))\n",
        "quarter gained 0.5 validation BLEU or more): a (1 of 2 seeds)",
    ):
        assert text in notes


def test_csv_and_json_hold_every_column_in_full():
    awkward = changed(
        label='a "quoted", label\nof two lines',
        bleu=0.1 + 0.2,
        params=2**62 + 1,
        tests={"long": {"bleu": 1 / 3, "bleu_signature": SIGNATURE}},
    )
    frame, results = to_frame([awkward, FAILED]), (awkward, FAILED)
    expected = [{name: result.flat().get(name) for name in frame.columns} for result in results]
    assert json.loads(render_table(frame, "json")) == expected
    cells = next(csv.DictReader(io.StringIO(render_table(frame, "csv"), newline="")))
    assert list(cells) == list(frame.columns)
    assert (cells["label"], float(cells["bleu"])) == ('a "quoted", label; of two lines', awkward.bleu)
    assert (int(cells["params"]), float(cells["bleu_long"])) == (awkward.params, 1 / 3)
    (row,) = json.loads(render_table([changed(valid_loss=math.nan, ter=math.inf)], "json"))
    assert (row["valid_loss"], row["ter"]) == (None, None)  # JSON has no word for them


@pytest.mark.parametrize(
    "text", ["=1+1", "+A1", "-2+3", "@SUM(A1)", " =A1", "＝A1", "-2", "+1.5", "a=b", "1\n=2"]
)
def test_a_spreadsheet_shows_the_texts_of_csv_and_computes_none(text: str):
    (cell,) = csv.reader(
        io.StringIO(render_table([changed(reason=text)], "csv", ["reason"]).partition("\n")[2])
    )
    line = text.replace("\n", "; ")
    assert cell == [line if text in ("-2", "+1.5", "a=b", "1\n=2") else f"'{line}"]


# Tables of analyses.


def test_a_table_of_an_analysis_leaves_out_what_nobody_knows():
    rows = [{"label": "a", "joules": None}, {"label": "b", "joules": None, "f1": 0.5, "bleu_percent": 2}]
    table = Table("why", [*rows, {"label": "c", "f1": float("nan")}])
    assert table.headings == ["model", "F1", "BLEU (%)"]
    assert table.numeric == [False, True, True]
    assert table.cells == [["a", "–", "–"], ["b", "0.500", "2"], ["c", "–", "–"]]
    assert [table.columns[1].order(row) for row in table.rows] == [None, 0.5, None]


def test_figures_of_an_analysis_are_rounded_to_what_they_mean():
    values = {"bleu": 47.2812, "empty_percent": 0.0333, "length_ratio": 1.00612, "hyp_words": 3544.3}
    values |= {"seconds": 2915.4, "learning_rate": 0.00795, "rep_score": 0.9854, "p_holm": 0.0024, "runs": 3}
    (cells,) = Table("", [values]).cells
    assert cells == ["47.3", "0.0", "1.006", "3,544", "2,915", "0.00795", "1.0", "0.0024", "3"]


def test_means_over_seeds_by_hand():
    """A figure that one seed lacks is missing in the mean; a count stays a whole number."""
    names = ("label", "seed", "words", "sentences", "bleu", "joules")
    rows = [("a", 1, "1–5", 7, 10.0, 1.0), ("b", 1, "1–5", 7, 50.0, 1.0), ("a", 2, "1–5", 7, 13.0, None)]
    means = mean_over_seeds(
        [dict(zip(names, row, strict=True)) for row in (*rows, ("a", 1, "6", 2, 4.0, 1.0))]
    )
    expected = [("a", "1–5", 7, 11.5, None, 2), ("b", "1–5", 7, 50.0, 1.0, 1), ("a", "6", 2, 4.0, 1.0, 1)]
    assert [tuple(row.values()) for row in means] == expected
    assert list(means[0])[-1] == "seeds"
    assert isinstance(means[0]["sentences"], int)


# Labels, reasons and devices that try to be more than text.


def test_markdown_shows_what_it_must_not_obey():
    text = render_table([changed(label="a|b\n| c", device="CPU\n\n# <script>alert(1)</script>")])
    assert text.splitlines()[2].startswith(r"| a\|b \| c |")
    assert r"- Hardware: CPU # \<script>alert(1)\</script>," in text


def test_every_sign_of_latex_is_written_as_text():
    columns = [Column(name, name, "identity", left=name == "model") for name in ("model", "a_b & c")]
    row = {"model": "50% #1 {x} ~ ^ \\ $", "a_b & c": "[1, 2] ± 3 –"}
    text = latex(Table("", [row], layout=columns, conditions=["x|y <z>"]))
    assert r"a\_b \& c" in text
    assert r"50\% \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$" in text
    assert r"{[}1, 2] $\pm$ 3 --" in text
    assert r"\parbox{\linewidth}{x\textbar{}y \textless{}z\textgreater{}}" in text
    assert r"\begin{tabular}{lr}" in text


# Shapes, by the command.

BLEU = {("a", 1): 10.0, ("a", 2): 14.0, ("b", 1): 30.0, ("b", 2): 31.0}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Two models of two seeds, as result files alone."""
    base = Result(label="a", preset="lstm", seed=1, status="done", params=5, train_tokens_per_s=100.0)
    for (label, seed), bleu in BLEU.items():
        row = replace(base, label=label, seed=seed, bleu=bleu)
        save_result(tmp_path / "runs" / f"{label}-seed{seed}", row)
    return tmp_path / "runs"


def test_folders_of_one_name_are_told_apart(rows: Path, tmp_path: Path):
    other = Path(shutil.copytree(rows, tmp_path / "other" / "runs"))
    frame = load_table([rows, other, rows])
    assert list(frame["experiment"]) == [f"{tmp_path.name}/runs"] * 4 + ["other/runs"] * 4
    assert parts(render_table(frame))[0][4]["experiment"] == "other/runs"
    with pytest.raises(ValueError, match="no table shape 'tall'"):
        load_table([rows], "tall")


def test_several_seeds_are_aggregated_unless_a_run_has_not_ended(
    copied: Path, capsys: pytest.CaptureFixture[str]
):
    def shown(*options: str) -> tuple[list[str | None], str]:
        assert main(["table", str(copied), "--format", "markdown", *options]) == 0
        text = capsys.readouterr().out
        return [row.get("model") for row in parts(text)[0]], text

    models = ["lstm", "rnn", "transformer"]
    means, text = shown()
    assert means == models
    assert "combined [95%] |" in text
    failed = replace(read_result(copied / "rnn-seed2"), status="failed", reason="loss became NaN")
    save_result(copied / "rnn-seed2", failed)
    assert shown()[0] == [label for label in models for _ in (1, 2)]
    warning = "- Warning: runs that failed or have not ended: rnn seed 2 (failed: loss became NaN)\n"
    assert warning in shown("--shape", "aggregated")[1]


def test_a_summary_made_without_texts_is_made_again(copied: Path):
    """Else what the table said while the corpus was away would stand there for ever."""
    results = read_results(copied)
    whole = find_summary(copied, results)
    without = replace(whole, means=[], outcome=[f"{NO_INTERVALS}: no such folder"])
    write_record(copied / SUMMARY, without)
    assert find_summary(copied, results) == whole
    assert stored_summary(copied, results) == whole


def test_columns_and_latex_of_the_command(rows: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["table", str(rows), "--columns", "model,BLEU,train tokens/s", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["label,bleu,train_tokens_per_s", "a,10.0,100.0"]
    assert main(["table", "--list"]) == 0
    words = set(capsys.readouterr().out.replace(",", " ").split())
    assert {*COLUMNS, *METRICS, "bleu_combined_low"} <= words
    command = ["table", str(rows), "--columns", "model, BLEU,Params (M)", "--format", "latex"]
    assert main([*command, "--caption", "Of 50% & more."]) == 0
    text = capsys.readouterr().out
    for line in (r"\caption{Of 50\% \& more.}", r"\label{tab:runs}", r"model & BLEU & params (M) \\"):
        assert line in text
    assert r"a & 10.0 & 0.00 \\" in text


def test_models_of_one_label_are_told_apart_by_their_settings():
    """On a screen the few settings in which models of a preset differ stand before other columns."""
    gru = SETTINGS | {"model.cell": "gru", "train.ema": 0.9}
    rows = [
        {"experiment": name} | changed(label=label, settings=settings).flat()
        for name, label, settings in (("a", "x", SETTINGS), ("b", "x", gru), ("b", "y", gru))
    ]
    headings = screen_table(rows, rows).headings
    assert headings.index("cell") < headings.index("chrF") < headings.index("train.ema")
    assert "model.cell" in render_table([changed(settings=gru), DONE], columns=["model", "cell"])
    assert "fine-tuned from weights abc" in render_table([changed(init_hash="abc")])
