"""Tables as CSV: safe in a spreadsheet, and read back as they were."""

import io

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.results.text import FORMULA, csv_table
from data.text import visible_lines
from tests.kits.hostile import obeyed, texts


def read(text: str) -> pd.DataFrame:
    # Numbers are read by float(), as pandas rounds them otherwise by default before 3.1.
    return pd.read_csv(io.StringIO(text), keep_default_na=False, dtype={"text": str, "x": str})


def original(cell: str) -> str:
    """Undo the apostrophe as the documentation of ``csv_table`` says."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell[1:]) else cell


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(1)", " =1", "\n=1", "'=1", "＝1", "-"])
def test_formulas_become_text(text: str):
    assert read(csv_table(pd.DataFrame({"text": [text], "n": [-1]})))["text"][0] == f"'{text}"


@pytest.mark.parametrize("text", ["\t=1", "\r=1", "\x1b[31m"])
def test_control_characters_are_shown(text: str):
    assert csv_table(pd.DataFrame({"text": [text]})).splitlines()[1] == visible_lines(text).replace(
        "\t", "\\t"
    )


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
