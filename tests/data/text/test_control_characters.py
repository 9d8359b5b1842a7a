"""Visible forms of control characters."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.text import visible, visible_lines
from tests.kits.hostile import obeyed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\rb\nc\td", r"a\rb\nc\td"),
        ("\x00\x7f\x9b", r"\x00\u007f\u009b"),
        ("\u202eabc\u2066\u2069", r"\u202eabc\u2066\u2069"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\ud800\uffff", r"\ud800\uffff"),
        ("Über, שלום, 日本, 👍🏽, a\u200db, ±", "Über, שלום, 日本, 👍🏽, a\u200db, ±"),
    ],
)
def test_what_is_obeyed_is_shown_and_all_else_stays(text: str, shown: str):
    assert visible(text) == shown


def test_lines_and_tabs_stay_where_they_are_meant():
    assert visible_lines("a\tb\nc\rd\x1b") == "a\tb\nc\\rd\\x1b"


@given(st.text(st.characters(exclude_categories=[])))
def test_no_control_character_is_left(text: str):
    shown = visible(text)
    assert not obeyed(shown)
    assert len(shown.splitlines()) <= 1
    assert visible(shown) == shown
    shown.encode()


@given(st.text())
def test_json_keeps_its_content(text: str):
    assert json.loads(visible_lines(json.dumps({"label": text}, ensure_ascii=False, indent=2))) == {
        "label": text
    }


def test_every_control_category_is_covered():
    controls = [
        chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Zl", "Zp", "Cs")
    ]
    assert all(visible(character) != character for character in controls)
