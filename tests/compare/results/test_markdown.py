"""Markdown tables and the numbers in them."""

import math

import pytest

from compare.results.markdown import markdown_table
from compare.results.numbers import format_number


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
