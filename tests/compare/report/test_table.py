"""The result table in every form and shape: what it shows, refuses and warns of."""

import csv
import io
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings

from compare.analysis.tables import Table, mean_over_seeds
from compare.cli import main
from compare.report.conditions import find_warnings
from compare.report.table import TableForm, latex, load_table, render_table
from compare.results.column import Column, Group
from compare.results.columns import COLUMNS
from compare.results.store import Result, load_results, read_result, save_result, to_frame
from compare.scoring.metrics import METRICS
from tests.kits.hostile import ESCAPE, HOSTILE, obeyed, texts

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
FAILED = Result(label="gru", preset="gru", seed=1, status="failed", reason="loss became NaN at update 37")
UNFINISHED = Result(label="big", preset="big", seed=1, status="unfinished")
UNUSUAL = (
    "Warning: translations shorter or longer than the references (length ratio outside 0.97 to 1.03), which "
    "changes BLEU: "
)


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


def warnings_of(*results: Result) -> list[str]:
    return [note for note in parts(render_table(results))[1] if note.startswith("Warning")]


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


def test_columns_stand_where_a_row_knows_them_or_rows_differ():
    wu = {"length_normalization": "wu"}
    rows = rows_of(changed(ter=41.26, length_penalty=0.6, **wu), changed(length_penalty=0.0, **wu))
    assert [row["TER"] for row in rows] == ["41.3", "–"]
    assert list(rows[0])[3:5] == ["chrF", "TER"]
    assert [row["length penalty"] for row in rows] == ["0.60", "0.00"]
    assert "form of length penalty" not in rows[0]
    other = changed(length_penalty=1.0, length_normalization="length")
    assert rows_of(changed(length_penalty=0.6, **wu), other)[1]["form of length penalty"] == "length"
    longer = {"bleu": 9.5, "length_ratio": 0.99, "brevity_penalty": 0.98995}
    rows = rows_of(DONE, changed(seed=2, tests={"test_long": SCORES | longer}))
    assert [row["BLEU test_long [95%]"] for row in rows] == ["–", "9.5 [36.6, 39.7]"]
    assert [row["seed"] for row in rows] == ["1", "2"]
    assert [rows[1][f"{title} test_long"] for title in ("length ratio", "brevity penalty")] == ["0.990"] * 2
    names = list(rows[0])
    assert names.index("length ratio test_long") == names.index("length ratio") + 2
    (row,) = rows_of(changed(budget="params", budget_off=-0.004))
    assert row["matched"] == "params -0.4%"


def test_failed_and_unfinished_rows_are_shown_as_such():
    rows, notes = parts(render_table([FAILED, DONE, UNFINISHED]))
    assert [row["model"] for row in rows] == ["gru", "lstm", "big"]
    assert [row["status"] for row in rows] == ["failed: loss became NaN at update 37", "done", "unfinished"]
    unknown = [
        value for row in (rows[0], rows[2]) for name, value in row.items() if name not in ("model", "status")
    ]
    assert set(unknown) == {"–"}
    assert not any("Warning" in note for note in notes)  # what is not known differs from nothing
    assert rows_of(replace(FAILED, params=1_000_000))[0]["params (M)"] == "1.00"
    beside = rows_of(DONE, FAILED, columns=["label"])[1]
    assert beside == {"label": "gru", "status": "failed: loss became NaN at update 37"}


def test_columns_are_chosen_by_heading_or_field_in_every_form():
    chosen = rows_of(changed(perplexity=4.89548), columns=["perplexity", "train_s", "params", "BLEU", "ter"])
    assert chosen == [
        {"perplexity": "4.90", "train_s": "810", "params": "7126000", "BLEU": "38.1", "ter": "–"}
    ]
    assert render_table([DONE], "csv", ["bleu", "label"]) == "bleu,label\n38.125,lstm\n"
    assert json.loads(render_table([DONE], "json", ["bleu"])) == [{"bleu": 38.125}]
    for form, columns, message in (
        ("markdown", ["blue"], "no column 'blue'; did you mean 'bleu'"),
        ("csv", ["BLEU", "seeds"], "no column 'seeds' in these rows"),
        ("html", None, "no table form 'html': choose markdown, csv, json"),
    ):
        with pytest.raises(ValueError, match=message):
            render_table([DONE], form, columns)
    with pytest.raises(ValueError, match="no results"):
        render_table([])


@pytest.mark.parametrize("form", list(TableForm))
def test_rows_of_different_signatures_or_tasks_are_refused(form: str):
    other = "nrefs:1|case:lc|tok:none"
    tests = [{"test_long": SCORES | {"bleu_signature": name}} for name in (SIGNATURE, other)]
    for rows in ([DONE, UNFINISHED, changed(bleu_signature=other)], [changed(tests=test) for test in tests]):
        with pytest.raises(ValueError, match="one signature only") as caught:
            render_table(rows, form)
        assert SIGNATURE in str(caught.value)
        assert other in str(caught.value)
    model = Result(label="lm", preset="lstm-lm", seed=1, status="done", perplexity=9.0)
    with pytest.raises(ValueError, match="lm is a language model"):
        render_table([DONE, model], form)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([changed(length_ratio=0.969), changed(length_ratio=None)], [UNUSUAL + "lstm 0.969"]),
        ([changed(length_ratio=0.97), changed(length_ratio=1.03)], []),
        (
            [changed(length_ratio=1.25), changed(seed=2, tests={"long": SCORES | {"length_ratio": 0.5}})],
            [UNUSUAL + "lstm seed 1 1.250, lstm seed 2 long 0.500"],
        ),
        (
            [DONE, changed(data_hash="other")],
            ["Warning: these rows were trained or tested on different data (data01234567, other)"],
        ),
        (
            [DONE, changed(batch_hash="other")],
            ["Warning: rows of seed 1 saw different batches (batch0123456, other)"],
        ),
        ([DONE, changed(seed=2, batch_hash="other")], []),
        (
            [DONE, changed(device="GPU", threads=1)],
            ["Warning: device, threads differ between rows, so their speeds do not compare"],
        ),
        *(
            (rows, ["Warning: these rows were not timed together, so their speeds do not compare"])
            for rows in (
                [DONE, changed(label="gru", timed_together="b2")],
                [changed(timed_together=None), changed(label="gru", timed_together=None)],
            )
        ),
        ([changed(timed_together=None), UNFINISHED], []),  # nothing to compare with
        (
            [changed(cpu_share=0.5), changed(cpu_share=0.99), changed(label="gru", cpu_share=0.899)],
            ["Warning: disturbed timings, with too little of the processor: lstm 50%, gru 89%"],
        ),
        (
            [changed(width_multiple=16), changed(label="narrow", width_multiple=4)],
            ["Warning: widths that are not multiples of 8, which can cost speed: narrow"],
        ),
    ],
)
def test_what_does_not_compare_is_warned_of(rows: list[Result], expected: list[str]):
    assert warnings_of(*rows) == expected


def test_a_method_that_only_some_rows_use_is_named():
    rows = [{"label": "a", "settings_hash": "1"}, {"label": "b", "settings_hash": "2", "ema": 0.5}]
    (warning,) = [line for line in find_warnings(rows) if "share their settings" in line]
    assert warning.endswith("(1, 2: ema)")


@pytest.mark.parametrize(
    ("changes", "training"),
    [
        ({"average": 1, "clip_norm": 0.0}, "gradients not clipped"),
        ({"average": 3, "clip_norm": 1.0}, "up to 3 validations averaged, gradient norm at most 1.0"),
        ({"average": 10, "average_every": 246}, "up to 10 weights 246 updates apart averaged"),
        ({"ema": 0.99, "label_smoothing": 0.1}, "moving average of decay 0.99, label smoothing 0.1"),
    ],
)
def test_conditions_of_training_stand_below(changes: dict[str, Any], training: str):
    _, notes = parts(render_table([changed(**changes)]))
    assert f"Training: {training}" in notes


def test_notes_of_means_are_those_of_the_runs():
    """Means have no value where the seeds differ, and no row for a run that failed."""
    ends = [
        ("updates", "done", "1" * 64, 0.9),
        ("patience", "done", "2" * 64, 1.1),
        (None, "failed", None, None),
    ]
    runs = [
        Result(
            **{"label": "a", "preset": "lstm", "seed": seed, "status": status, "stopped_by": end, "beam": 5},
            **{"batch_hash": batches, "length_ratio": ratio, "reason": None if end else "loss became NaN"},
            late_gain={"updates": 0.5, "patience": 0.49}.get(end or ""),
        )
        for seed, (end, status, batches, ratio) in enumerate(ends, start=1)
    ]
    means = to_frame([replace(runs[0], stopped_by=None, batch_hash=None, length_ratio=1.0)])
    _, notes = render_table(means, runs=runs).split("\n\n")
    assert f"batches {'1' * 12}, batches {'2' * 12}" in notes
    assert "- Warning: runs that failed or have not ended: a seed 3 (failed: loss became NaN)\n" in notes
    assert "a seed 1 0.900, a seed 2 1.100" in notes
    assert "- Stopped by the budget, with all updates used: a (1 of 2 seeds)\n" in notes
    assert "- Stopped by patience, as validation no longer improved: a (1 of 2 seeds)\n" in notes
    assert "quarter gained 0.5 validation BLEU): a (1 of 2 seeds)" in notes


def test_csv_and_json_hold_every_column_in_full():
    awkward = changed(
        label='a "quoted", label\nof two lines',
        bleu=0.1 + 0.2,
        train_s=1e-300,
        params=2**62 + 1,
        tests={"long": {"bleu": 1 / 3, "bleu_signature": SIGNATURE}},
    )
    frame, results = to_frame([awkward, FAILED]), (awkward, FAILED)
    expected = [{name: result.flat().get(name) for name in frame.columns} for result in results]
    assert json.loads(render_table(frame, "json")) == expected
    header, *lines = csv.reader(io.StringIO(render_table(frame, "csv"), newline=""))
    assert header == list(frame.columns)
    for cells, row in zip(lines, expected, strict=True):
        for value, cell in zip(row.values(), cells, strict=True):
            assert ("" if value is None else value) == (type(value)(cell) if cell else "")
    (row,) = json.loads(render_table([changed(valid_loss=math.nan, ter=math.inf)], "json"))
    assert (row["valid_loss"], row["ter"]) == (None, None)  # JSON has no word for them


# Tables of analyses.


def test_a_table_of_an_analysis_leaves_out_what_nobody_knows():
    rows = [{"label": "a", "joules": None}, {"label": "b", "joules": None, "f1": 0.5, "bleu_percent": 2}]
    found = Table("why", [*rows, {"label": "c", "f1": float("nan")}])
    assert found.headings == ["label", "F1", "BLEU (%)"]
    assert found.numeric == [False, True, True]
    assert found.cells == [["a", "–", "–"], ["b", "0.5", "2"], ["c", "–", "–"]]
    assert [found.columns[1].order(row) for row in found.rows] == [None, 0.5, None]


def test_means_over_seeds_by_hand():
    """A figure that one seed lacks is missing in the mean; a count stays a whole number."""
    rows = [
        {"label": label, "seed": seed, "words": words, "sentences": size, "bleu": bleu, "joules": joules}
        for label, seed, words, size, bleu, joules in (
            ("a", 1, "1–5", 7, 10.0, 1.0),
            ("b", 1, "1–5", 7, 50.0, 1.0),
            ("a", 2, "1–5", 7, 13.0, None),
            ("a", 1, "6–9", 2, 4.0, 1.0),
        )
    ]
    found = mean_over_seeds(rows)
    assert [tuple(row.values()) for row in found] == [
        ("a", "1–5", 7, 11.5, None, 2),
        ("b", "1–5", 7, 50.0, 1.0, 1),
        ("a", "6–9", 2, 4.0, 1.0, 1),
    ]
    assert list(found[0])[-1] == "seeds"
    assert isinstance(found[0]["sentences"], int)


# Labels, reasons and devices that try to be more than text.


@pytest.mark.parametrize("form", list(TableForm))
@pytest.mark.parametrize("text", HOSTILE)
def test_no_form_holds_a_control_character(form: str, text: str):
    rows = [changed(label=text, device=text), replace(FAILED, reason=text)]
    assert not any(map(obeyed, render_table(rows, form).split("\n")))


@settings(deadline=None)
@given(texts)
def test_json_holds_the_text_itself(text: str):
    row, _ = json.loads(render_table([changed(label=text), FAILED], "json"))
    assert row["label"] == text


def test_markdown_and_csv_show_what_they_must_not_obey():
    assert r"failed: \x1b[31mred\x1b[0m" in render_table([replace(FAILED, reason=ESCAPE)])
    text = render_table([changed(label="a|b\n| c", device="CPU\n\n# <script>alert(1)</script>")])
    assert text.splitlines()[2].startswith(r"| a\|b \| c |")
    assert r"- Hardware: CPU # \<script>alert(1)\</script>," in text
    table = render_table([replace(FAILED, label="@SUM(1+1)", reason="=1+1"), DONE], "csv")
    frame = pd.read_csv(io.StringIO(table))
    assert (frame["label"][0], frame["reason"][0]) == ("'@SUM(1+1)", "'=1+1")
    assert frame["bleu"][1] == 38.1 + 0.025


SPECIAL = re.compile(r"\\(?:[a-z]+\{\}|[&%$#_{}]|pm(?=\$))|\$\\pm\$")
"""Forms in which LaTeX's special characters may occur in a cell."""


def latex_of(lines: list[list[str]], notes: list[str]) -> str:
    columns = [Column(name, name, Group.IDENTITY, left=name == "model") for name in ("model", "a_b & c")]
    rows = [dict(zip(("model", "a_b & c"), line, strict=True)) for line in lines]
    return latex(Table("", rows, layout=columns, notes=notes))


@settings(deadline=None)
@given(texts)
def test_latex_reads_text_only(text: str):
    table = latex_of([["a", text], [text, "b"]], [text])
    lines = table.split("\\midrule\n")[1].split("\\bottomrule")[0].strip().split("\n")
    assert not any(map(obeyed, table.split("\n")))
    assert len(lines) == 2
    for line in lines:
        assert line.endswith(r" \\")
        first, second = line.removesuffix(r" \\").split(" & ")
        for cell in (first, second):
            assert not re.search(r"[\\&%$#_^~|<>]", SPECIAL.sub("", cell))
            assert not cell.startswith(("[", "*"))  # else an argument of the \\ before it


def test_every_sign_of_latex_is_written_as_text():
    text = latex_of([["50% #1 {x} ~ ^ \\ $", "[1, 2] ± 3 –"]], ["x|y <z>"])
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


def test_a_wide_table_has_a_column_for_each_seed_and_tells_folders_apart(rows: Path, tmp_path: Path):
    other = tmp_path / "other" / "runs"
    shutil.copytree(rows, other)
    frame = load_table([rows], "wide")
    assert [frame.loc[frame["label"] == label, f"bleu seed {seed}"].item() for label, seed in BLEU] == list(
        BLEU.values()
    )
    frame = load_table([rows, other, rows], "wide")
    assert list(frame["experiment"]) == [f"{tmp_path.name}/runs"] * 2 + ["other/runs"] * 2
    assert parts(render_table(frame))[0][2]["experiment"] == "other/runs"
    assert len(load_results(rows, other, rows, rows / "a-seed1")) == 2 * len(BLEU)
    with pytest.raises(ValueError, match="no table shape 'tall'"):
        load_table([rows], "tall")


def test_several_seeds_are_aggregated_unless_a_run_has_not_ended(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = Path(shutil.copytree(made, tmp_path / "copy"))

    def shown(*options: str) -> tuple[list[str | None], str]:
        assert main(["table", str(folder), *options]) == 0
        text = capsys.readouterr().out
        return [row.get("model") for row in parts(text)[0]], text

    models = ["lstm", "rnn", "transformer"]
    runs = [label for label in models for _ in (1, 2)]
    means, text = shown()
    assert means == models
    assert "combined [95%] |" in text
    assert shown("--shape", "rows")[0] == runs
    failed = replace(read_result(folder / "rnn-seed2"), status="failed", reason="loss became NaN")
    save_result(folder / "rnn-seed2", failed)
    assert shown()[0] == runs
    warning = "- Warning: runs that failed or have not ended: rnn seed 2 (failed: loss became NaN)\n"
    for shape in ("aggregated", "wide"):
        assert warning in shown("--shape", shape)[1]


def test_columns_of_the_command_have_the_names_that_the_table_shows(
    rows: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["table", str(rows), "--columns", "model, Params (M),seed,bleu"]) == 0
    assert parts(capsys.readouterr().out)[0][0] == {
        "model": "a",
        "params (M)": "0.00",
        "seed": "1",
        "bleu": "10",
    }
    assert main(["table", str(rows), "--columns", "model,BLEU,train tokens/s", "--form", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["label,bleu,train_tokens_per_s", "a,10.0,100.0"]
    assert main(["table", "--list-columns"]) == 0
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]
    ]
    fields = {field for line in lines for field in line[1].split(", ")}
    assert {*COLUMNS, *METRICS, "bleu_combined_low"} <= fields
    assert all(len(line) == 4 and all(line[1:]) for line in lines)
    headings = set(parts(render_table(load_table([rows])))[0][0])
    assert headings - {line[0] for line in lines} == {"BLEU [95%]"}


def test_latex_is_a_table_to_include(rows: Path, capsys: pytest.CaptureFixture[str]):
    command = ["table", str(rows), "--columns", "model,BLEU,params (M)", "--form", "latex"]
    assert main([*command, "--caption", "Of 50% & more."]) == 0
    text = capsys.readouterr().out
    assert not re.search(r"documentclass|begin\{document\}|usepackage\{(?!booktabs)", text)
    assert r"\caption{Of 50\% \& more.}" in text
    assert r"\label{tab:runs}" in text
    assert r"model & BLEU & params (M) \\" in text
    assert r"a & 10.0 & 0.00 \\" in text
    assert main(command) == 0
    assert r"\caption{Results of runs.}" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_latex_compiles_as_it_is(rows: Path, tmp_path: Path):
    odd = Result(label="ü_50%&#", preset="lstm", seed=3, status="failed", reason="~^\\{}$ [x] <y>")
    save_result(rows / "odd-seed3", odd)
    (tmp_path / "table.tex").write_text(render_table(load_table([rows]), "latex"), encoding="utf-8")
    body = r"\begin{document}\input{table}\end{document}"
    (tmp_path / "paper.tex").write_text(rf"\documentclass{{article}}\usepackage{{booktabs}}{body}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, errors="replace"
    )
    assert done.returncode == 0, done.stdout[-2000:]
