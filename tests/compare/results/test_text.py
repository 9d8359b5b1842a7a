"""Tables as Markdown and CSV, and the numbers in them: safe, and read back as they were."""

import io
import math
import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.results.text import FORMULA, csv_table, format_number, markdown_table
from data.text import visible_lines
from tests.kits.hostile import obeyed, texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (-math.inf, "–"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (-1234.56, "-1235"),
        (9999.6, "10,000"),  # 1e+04 to four digits
        (123456.7, "123,457"),
        (1.5e15, "1.5e+15"),
        (0.000012345, "1.234e-05"),
        ("words", "words"),
    ],
)
def test_numbers_have_four_digits_or_their_whole_integer_part(value: object, text: str):
    assert format_number(value) == text


def test_a_table_has_every_heading_of_any_row():
    table = markdown_table([{"model": "a", "x": 1.5}, {"model": "b", "y": 20_000}])
    assert table.splitlines() == [
        "| model   |   x |      y |",
        "|:--------|----:|-------:|",
        "| a       | 1.5 |      – |",
        "| b       |   – | 20,000 |",
    ]


def cells_of(line: str) -> list[str]:
    """The cells of a row as GitHub's parser divides it: a backslash escapes one sign after it."""
    return re.findall(r"(?:\\[!-/:-@\[-`{-~]|[^|])*\|", line.removeprefix("|"))


@given(st.lists(st.dictionaries(texts, texts, min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_row_has_as_many_cells_as_its_heading(rows: list[dict[str, str]]):
    lines = markdown_table(rows).split("\n")
    assert len(lines) == 2 + len(rows)
    count = len({heading for row in rows for heading in row})
    for line in lines:
        assert len(cells_of(line)) == count
        assert "".join(cells_of(line)) == line.removeprefix("|")
        assert not obeyed(line)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("<script>", r"\<script>"),
        ("</p> <!-- p < 0.05", r"\</p> \<!-- p < 0.05"),
        (r"a\|b", r"a\\\|b"),
        (r"a\<b>", r"a\\\<b>"),
        ("a\x85b\u2028c", "a b c"),
        (r"C:\runs", r"C:\runs"),
        ("x|y\nz", r"x\|y z"),
        ("38.10", "38.10"),
    ],
)
def test_text_stays_text(text: str, cell: str):
    assert markdown_table([{"x": text}], left={"x"}).splitlines()[2] == f"| {cell} |".replace("  |", " |")


# CSV.


def read(text: str) -> pd.DataFrame:
    # Numbers are read by float(), as pandas rounds them otherwise by default before 3.1.
    return pd.read_csv(io.StringIO(text), keep_default_na=False, dtype={"text": str, "x": str})


def original(cell: str) -> str:
    """Undo the apostrophe as the documentation of ``csv_table`` says."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell[1:]) else cell


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(1)", " =1", "\n=1", "'=1", "＝1", "-"])
def test_formulas_become_text(text: str):
    assert read(csv_table(pd.DataFrame({"text": [text], "n": [-1]})))["text"][0] == f"'{text}"


def test_numbers_stay_numbers():
    frame = pd.DataFrame({"n": [-1, 2], "x": [-0.5, None], "mixed": [-3, "a"], "gap": [None, -1.5]})
    frame["big"] = pd.array([-(2**62), None], dtype="Int64")
    assert csv_table(frame) == frame.to_csv(index=False, lineterminator="\n")


def test_a_heading_is_text_too():
    assert csv_table(pd.DataFrame({"=1": [1], "a\x1b": [2]})).splitlines()[0] == r"'=1,a\x1b"


@given(st.lists(st.tuples(texts, st.integers(-(2**60), 2**60), st.floats(allow_nan=False)), min_size=1))
def test_pandas_reads_it_back(rows: list[tuple[str, int, float]]):
    frame = pd.DataFrame(rows, columns=["text", "n", "x"])
    table = csv_table(frame)
    back = read(table)
    plain = [visible_lines(text).replace("\t", r"\t") for text, _, _ in rows]
    assert list(map(original, back["text"])) == plain
    assert list(back["n"]) == list(frame["n"])
    assert list(map(float, back["x"])) == list(frame["x"])
    assert not any(map(obeyed, table.split("\n")))
    assert not any(cell.startswith(tuple("=+-@\t\r\n")) for cell in back["text"])
