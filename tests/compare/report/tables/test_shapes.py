"""Shapes and LaTeX of the table, and each figure alone."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from compare.cli import main
from compare.report.figures import ATTENTION, FIGURES, draw_figure
from compare.report.table import TextTable, latex, load_table, render_table
from compare.results.columns import COLUMNS
from compare.results.store import Result, load_results, read_result, save_result, to_frame
from compare.scoring.metrics import METRICS
from tests.kits.cli import Refusal
from tests.kits.paths import ROOT

SCORES = {("a", 1): 10.0, ("a", 2): 14.0, ("b", 1): 30.0, ("b", 2): 31.0}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Two models of two seeds, as result files alone."""
    base = Result(label="a", preset="lstm", seed=1, status="done", params=5, train_tokens_per_s=100.0)
    for (label, seed), bleu in SCORES.items():
        row = replace(base, label=label, seed=seed, bleu=bleu, budget="params", budget_off=-0.004)
        save_result(tmp_path / "runs" / f"{label}-seed{seed}", row)
    return tmp_path / "runs"


def test_a_wide_table_has_a_column_for_each_seed(rows: Path):
    frame = load_table([rows], "wide")
    assert list(frame["label"]) == ["a", "b"]
    for label, seed in SCORES:
        (value,) = frame.loc[frame["label"] == label, f"bleu seed {seed}"]
        assert value == SCORES[label, seed]


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


@pytest.mark.parametrize("shape", ["aggregated", "wide"])
def test_a_run_that_failed_is_named_below_means(copy: Path, shape: str, capsys: pytest.CaptureFixture[str]):
    result = replace(read_result(copy / "luong-seed1"), status="failed", reason="loss became NaN")
    save_result(copy / "luong-seed1", result)
    assert main(["table", str(copy), "--shape", shape]) == 0
    warning = "- Warning: runs that failed or have not ended: luong seed 1 (failed: loss became NaN)\n"
    assert warning in capsys.readouterr().out


def test_folders_of_one_name_are_told_apart(rows: Path, tmp_path: Path):
    other = tmp_path / "other" / "runs"
    shutil.copytree(rows, other)
    frame = load_table([rows, other, rows], "wide")
    parent = tmp_path.name
    assert list(frame["experiment"]) == [f"{parent}/runs"] * 2 + ["other/runs"] * 2
    assert len(load_results(rows, other, rows, rows / "a-seed1")) == 2 * len(SCORES)
    assert set(load_results(rows)["experiment"]) == {"runs"}


def test_an_aggregated_table_has_a_row_a_model(finished: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["table", str(finished), "--shape", "aggregated", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    truth = [
        json.loads((finished / name / "result.json").read_text())
        for name in ("luong-seed1", "transformer-seed1")
    ]
    assert [row["label"] for row in found] == ["luong", "transformer"]
    assert [row["bleu"] for row in found] == [row["bleu"] for row in truth]
    assert [row["seeds"] for row in found] == [1, 1]
    assert [row["bleu_seeds_low"] for row in found] == [None, None]
    assert main(["table", str(finished), "--shape", "aggregated"]) == 0
    assert "combined [95%] |" in capsys.readouterr().out


def test_several_seeds_are_aggregated_unless_a_run_has_not_ended(
    copy: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    def rows_of(*options: str) -> list[str]:
        assert main(["table", str(copy), *options]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]

    assert rows_of() == ["luong", "transformer"]
    shutil.copytree(copy / "luong-seed1", copy / "luong-seed2")
    for name, old, new in (
        ("config.toml", "seed = 1\ndevice", "seed = 2\ndevice"),
        ("result.json", '"seed": 1', '"seed": 2'),
    ):
        path = copy / "luong-seed2" / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    assert rows_of() == ["luong", "transformer"]
    assert rows_of("--shape", "rows") == ["luong", "transformer", "luong"]
    assert main(["table", str(copy), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3
    path.write_text(path.read_text().replace('"status": "done"', '"status": "failed"'))
    assert rows_of() == ["luong", "transformer", "luong"]


def test_columns_have_the_names_that_the_table_shows(rows: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["table", str(rows), "--columns", "model, Params (M),seed,bleu"]) == 0
    header, _, first, *_ = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in header.split("|")[1:-1]] == ["model", "params (M)", "seed", "bleu"]
    assert [cell.strip() for cell in first.split("|")[1:-1]] == ["a", "0.00", "1", "10"]
    assert main(["table", str(rows), "--columns", "model,BLEU,seeds", "--form", "csv"]) == 2
    assert "no column 'seeds' in these rows" in capsys.readouterr().err
    assert main(["table", str(rows), "--columns", "model,BLEU,train tokens/s", "--form", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["label,bleu,train_tokens_per_s", "a,10.0,100.0"]
    assert main(["table", str(rows), "--columns", "modle"]) == 2
    assert "no column 'modle'; did you mean 'model'?" in capsys.readouterr().err


def test_every_column_is_explained(rows: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["table", "--list-columns"]) == 0
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]
    ]
    fields = {field for line in lines for field in line[1].split(", ")}
    assert {*COLUMNS, *METRICS, "bleu_combined_low"} <= fields
    assert all(len(line) == 4 and all(line[1:]) for line in lines)
    headings = render_table(load_table([rows], "rows")).splitlines()[0].split("|")[1:-1]
    assert {heading.strip() for heading in headings} - {line[0] for line in lines} == {"BLEU [95%]"}


def test_what_was_matched_stands_in_the_table(rows: Path):
    table = render_table(load_table([rows], "rows"))
    assert "| matched " in table
    assert "| params -0.4% " in table


def test_every_sign_of_latex_is_written_as_text():
    text = latex(TextTable(["label", r"a_b & c"], [["50% #1 {x} ~ ^ \\ $", "[1, 2] ± 3 –"]], ["x|y <z>"]))
    assert r"a\_b \& c" in text
    assert r"50\% \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$" in text
    assert r"{[}1, 2] $\pm$ 3 --" in text
    assert r"\parbox{\linewidth}{x\textbar{}y \textless{}z\textgreater{}}" in text
    assert r"\begin{tabular}{lr}" in text


def test_latex_is_a_table_to_include(rows: Path, capsys: pytest.CaptureFixture[str]):
    command = ["table", str(rows), "--columns", "model,BLEU,params (M)", "--form", "latex"]
    assert main([*command, "--caption", "Of 50% & more."]) == 0
    text = capsys.readouterr().out
    assert not re.search(r"documentclass|begin\{document\}|usepackage\{(?!booktabs)", text)
    assert r"\caption{Of 50\% \& more.}" in text
    assert r"\label{tab:runs}" in text
    assert r"model & BLEU & params (M) \\" in text
    assert r"a & 10.0 & 0.00 \\" in text
    for name in ("table", "tabular"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 1
    assert main(command) == 0
    assert r"\caption{Results of runs.}" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_latex_compiles_as_it_is(rows: Path, tmp_path: Path):
    odd = Result(label="ü_50%&#", preset="lstm", seed=3, status="failed", reason="~^\\{}$ [x] <y>")
    save_result(rows / "odd-seed3", odd)
    (tmp_path / "table.tex").write_text(render_table(load_table([rows], "rows"), "latex"), encoding="utf-8")
    body = r"\begin{document}\input{table}\end{document}"
    paper = rf"\documentclass{{article}}\usepackage{{booktabs}}{body}"
    (tmp_path / "paper.tex").write_text(paper)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, errors="replace"
    )
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("kind", [kind for kind in FIGURES if kind != "quality-joules"])
def test_each_figure_is_drawn_alone(kind: str, copy: Path):
    if kind == "tuning":
        shutil.copy(ROOT / "results" / "demo" / "trials.jsonl", copy)
    png, svg, pdf = draw_figure(copy, kind, ("png", "svg", "pdf"))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()
    assert pdf.read_bytes().startswith(b"%PDF")
    before = {path: path.read_bytes() for path in (png, svg, pdf)}
    draw_figure(copy, kind, ("png", "svg", "pdf"))
    assert {path: path.read_bytes() for path in before} == before


def test_figures_that_cannot_be_drawn(finished: Path, refusal: Refusal):
    assert "joules were not recorded in training" in refusal("plot", finished, "quality-joules")
    assert "trials.jsonl: no trials of a search" in refusal("plot", finished, "tuning")
    assert refusal("plot", finished, "lenght") == "no figure 'lenght'; did you mean 'length'?"
    assert "no format 'gif': choose from png, svg, pdf" in refusal(
        "plot", finished, "length", "--format", "gif"
    )
    assert "no table shape 'tall'" in refusal("table", finished, "--shape", "tall")


def test_the_figures_are_listed(finished: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["plot", str(finished), "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*FIGURES, ATTENTION]
