"""Texts and hashes of many lines together are those of each line alone."""

import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.split import hash_all, hash_text, is_repeat, is_unique, normalise, normalise_all, smallest

TEXT = st.one_of(st.text("aß \u00a0\u0301\x85\t", max_size=6), st.text(max_size=6)).map(
    lambda text: text.replace("\n", "")
)
HASHES = st.lists(st.integers(0, 9), max_size=30).map(lambda values: np.array(values, dtype=np.uint64))


@given(lines=st.lists(TEXT, max_size=8))
@settings(deadline=None)
def test_all_lines_together(lines: list[str]) -> None:
    assert normalise_all(lines) == [normalise(line) for line in lines]
    assert hash_all(lines) == [hash_text(line) for line in lines]


def test_every_character() -> None:
    """Also beside others, at both ends and repeated; a line feed cannot be in a line."""
    characters = [chr(code) for code in range(sys.maxunicode + 1) if code != 0x0A]
    for begin in range(0, len(characters), 997):  # small blocks, so that few have unusual white space
        lines = [f"{c}a{c}{c}b{c}" for c in characters[begin : begin + 997]]
        assert normalise_all(lines) == [normalise(line) for line in lines]


@given(hashes=HASHES)
def test_repeats_and_unique_hashes(hashes: "np.ndarray") -> None:
    values = hashes.tolist()
    assert is_repeat(hashes).tolist() == [value in values[:index] for index, value in enumerate(values)]
    assert is_unique(hashes).tolist() == [values.count(value) == 1 for value in values]


@given(hashes=HASHES, count=st.integers(0, 30))
def test_the_smallest_hashes_equal_ones_in_order(hashes: "np.ndarray", count: int) -> None:
    count = min(count, len(hashes))
    assert smallest(hashes, count).tolist() == np.argsort(hashes, kind="stable")[:count].tolist()
