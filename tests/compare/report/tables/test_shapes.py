"""Shapes and LaTeX of the table, and each figure alone."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from compare.cli import main
from compare.report.plots.registry import FIGURES, draw_figure
from compare.report.tables.latex import latex
from compare.report.tables.layout import TextTable
from compare.report.tables.shapes import load_table
from compare.report.tables.table import render_table
from compare.results.store import Result, save_result
from tests.kits.cli import Refusal

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


def test_what_was_matched_stands_in_the_table(rows: Path):
    table = render_table(load_table([rows], "rows"))
    assert "| matched " in table
    assert "| params -0.4% " in table


def test_every_sign_of_latex_is_written_as_text():
    text = latex(TextTable(["label", r"a_b & c"], [["50% #1 {x} ~ ^ \\ $", "[1, 2] ± 3 –"]], ["x|y <z>"]))
    assert r"a\_b \& c" in text
    assert r"50\% \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$" in text
    assert r"{[}1, 2] $\pm$ 3 --" in text
    assert r"\caption{x\textbar{}y \textless{}z\textgreater{}}" in text
    assert r"\begin{tabular}{lr}" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_latex_compiles_as_it_is(rows: Path, tmp_path: Path):
    odd = Result(label="ü_50%&#", preset="lstm", seed=3, status="failed", reason="~^\\{}$ [x] <y>")
    save_result(rows / "odd-seed3", odd)
    (tmp_path / "table.tex").write_text(render_table(load_table([rows], "rows"), "latex"), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, errors="replace"
    )
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("kind", [kind for kind in FIGURES if kind != "quality-joules"])
def test_each_figure_is_drawn_alone(kind: str, copy: Path):
    png, svg, pdf = draw_figure(copy, kind, ("png", "svg", "pdf"))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()
    assert pdf.read_bytes().startswith(b"%PDF")
    before = {path: path.read_bytes() for path in (png, svg, pdf)}
    draw_figure(copy, kind, ("png", "svg", "pdf"))
    assert {path: path.read_bytes() for path in before} == before


def test_figures_that_cannot_be_drawn(finished: Path, refusal: Refusal):
    assert "joules were not recorded in training" in refusal("plot", finished, "quality-joules")
    assert refusal("plot", finished, "lenght") == "no figure 'lenght'; did you mean 'length'?"
    assert "no format 'gif': choose from png, svg, pdf" in refusal(
        "plot", finished, "length", "--format", "gif"
    )
    assert "no table shape 'tall'" in refusal("table", finished, "--shape", "tall")


def test_the_figures_are_listed(finished: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["plot", str(finished), "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(FIGURES)
