"""Tables as Markdown and for a terminal, and the numbers in them."""

import math

import pytest

from compare.analysis.seeds import describe_seeds
from compare.report.table_formats import table_text
from compare.results.formatting import format_number


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


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([], ""),
        ([("a", 1), ("b", 7)], "1 seed"),
        ([("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 2)], "2 seeds"),
        ([("a", 1), ("a", 2), ("b", 1)], "1 to 2 seeds"),
    ],
)
def test_models_may_have_different_numbers_of_seeds(runs: list[tuple[str, int]], text: str):
    assert describe_seeds(runs) == text


def test_a_table_has_every_heading_of_any_row():
    table = table_text([{"model": "a", "x": 1.5}, {"model": "b", "y": 20_000}])
    assert table.splitlines() == [
        "| model   |   x |      y |",
        "|:--------|----:|-------:|",
        "| a       | 1.5 |      – |",
        "| b       |   – | 20,000 |",
    ]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (3, ["model", "a"]),  # the first column stays
        (8, ["model  n", "a      1"]),
        (34, ["model  n  why", "a      1  xxx xxx xxx xxx xxx xxx", "          xxx xxx xxx"]),
        (
            80,
            [
                "model  n  why                                  end",
                "a      1  xxx xxx xxx xxx xxx xxx xxx xxx xxx    2",
            ],
        ),
    ],
)
def test_a_terminal_has_the_columns_that_fit_and_wraps_text(width: int, lines: list[str]):
    table = table_text([{"model": "a", "n": 1, "why": " ".join(["xxx"] * 9), "end": 2}], width=width)
    assert table.splitlines() == lines


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
    assert table_text([{"x": text}], left={"x"}).splitlines()[2] == f"| {cell} |".replace("  |", " |")
