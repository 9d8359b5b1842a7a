"""Markdown tables and the numbers in them."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.results.text import format_number, markdown_table
from tests.kits.hostile import obeyed, texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (-math.inf, "–"),
        (True, "yes"),
        (False, "no"),
        (1234567, "1,234,567"),
        (0.0, "0"),
        (1.23456, "1.235"),
        (-1234.56, "-1235"),
        (9999.4, "9999"),
        (9999.6, "10,000"),  # 1e+04 to four digits
        (123456.7, "123,457"),
        (1.5e15, "1.5e+15"),
        (0.000012345, "1.234e-05"),
        ("words", "words"),
    ],
)
def test_numbers_have_four_digits_or_their_whole_integer_part(value: object, text: str):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.12345, "0.123"), (99.96, "100"), (999.6, "1,000"), (8314.7, "8,315"), (2.0, "2")]
)
def test_the_number_of_digits_can_be_chosen(value: float, text: str):
    assert format_number(value, digits=3) == text


def test_a_table_has_every_heading_of_any_row():
    table = markdown_table([{"model": "a", "x": 1.5}, {"model": "b", "y": 20_000}])
    assert table.splitlines() == [
        "| model   |   x |      y |",
        "|:--------|----:|-------:|",
        "| a       | 1.5 |      – |",
        "| b       |   – | 20,000 |",
    ]


def test_left_aligned_columns_can_be_chosen():
    table = markdown_table([{"model": "a", "range": "1-2"}], left={"model"})
    assert table.splitlines()[1] == "|:--------|--------:|"


def test_text_cannot_end_a_cell_and_digits_stay():
    table = markdown_table([{"a|b": "x|y\nz", "n": "38.10"}])
    assert table.splitlines()[0].startswith(r"| a\|b ")
    assert table.splitlines()[2] == r"| x\|y z | 38.10 |"


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
    ],
)
def test_text_stays_text(text: str, cell: str):
    assert markdown_table([{"x": text}]).splitlines()[2] == f"| {cell} |".replace("  |", " |")
