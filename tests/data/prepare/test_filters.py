"""Limits of the rules that judge a single pair."""

import pytest

from data.prepare import Filters


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        ("a b c d e f", "A B", ""),
        ("A B", "a b c d e f", ""),
        ("a b c d e f g", "A B", "max_ratio"),
        ("A B", "a b c d e f g", "max_ratio"),
        ("a b c d e f g h", "a b c d e f g", ""),
        ("a b c d e f g h i", "a b c d e f g", "max_words"),
        ("a b c d e f g", "a b c d e f g h i", "max_words"),
        ("a b c d e f g h i", "A", "max_words"),
    ],
)
def test_a_pair_at_a_limit_is_kept_and_one_beyond_it_is_dropped(src: str, tgt: str, reason: str):
    assert Filters(max_words=8, max_ratio=3.0).drop_reason(src, tgt) == reason


def test_a_limit_of_0_is_none():
    assert not Filters().drop_reason("a " * 1000, "A")
