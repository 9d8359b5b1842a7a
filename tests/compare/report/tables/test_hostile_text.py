"""Labels, reasons and devices that try to be more than text, in every form of the table."""

import io
import json
import re
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given

from compare.report.table import TableForm, TextTable, latex, render_table
from compare.results.store import Result
from tests.kits.hostile import ESCAPE, HOSTILE, obeyed, texts

DONE = Result(
    label="lstm", preset="lstm", seed=1, status="done", bleu=38.1, bleu_signature="a|b", device="CPU"
)
FAILED = Result(label="gru", preset="gru", seed=1, status="failed", reason="loss became NaN")
SPECIAL = re.compile(r"\\(?:[a-z]+\{\}|[&%$#_{}]|pm(?=\$))|\$\\pm\$")
"""Forms in which LaTeX's special characters may occur in a cell."""


@pytest.mark.parametrize("form", list(TableForm))
@pytest.mark.parametrize("text", HOSTILE)
def test_no_form_holds_a_control_character(form: str, text: str):
    rows = [replace(DONE, label=text, device=text), replace(FAILED, reason=text)]
    lines = render_table(rows, form).split("\n")
    assert not any(map(obeyed, lines))


@given(texts)
def test_json_holds_the_text_itself(text: str):
    row, _ = json.loads(render_table([replace(DONE, label=text), FAILED], "json"))
    assert row["label"] == text


def test_a_reason_is_shown_and_not_obeyed():
    assert r"failed: \x1b[31mred\x1b[0m" in render_table([replace(FAILED, reason=ESCAPE)])


def test_a_note_is_one_item_of_the_list():
    text = render_table([replace(DONE, device="CPU\n\n# <script>alert(1)</script>")])
    assert r"- Hardware: CPU # \<script>alert(1)\</script>" in text.splitlines()
    assert "- BLEU: a|b" in text.splitlines()  # a signature in a list needs no escape


def test_csv_holds_no_formula():
    table = render_table([replace(FAILED, label="@SUM(1+1)", reason="=1+1"), DONE], "csv")
    frame = pd.read_csv(io.StringIO(table))
    assert (frame["label"][0], frame["reason"][0]) == ("'@SUM(1+1)", "'=1+1")
    assert frame["bleu"][1] == 38.1


@given(texts)
def test_latex_reads_text_only(text: str):
    table = latex(TextTable(["model", "reason"], [["a", text], [text, "b"]], [text]))
    body = table.split("\\midrule\n")[1].split("\\bottomrule")[0]
    assert not any(map(obeyed, table.split("\n")))
    assert len(body.strip().split("\n")) == 2
    for line in body.strip().split("\n"):
        assert line.endswith(r" \\")
        first, second = line.removesuffix(r" \\").split(" & ")
        for cell in (first, second):
            assert not re.search(r"[\\&%$#_^~|<>]", SPECIAL.sub("", cell))
            assert not cell.startswith(("[", "*"))  # else an argument of the \\ before it
