"""Text that stays on disk: lines, sizes and hashes as in memory; a changed file is refused."""

import gzip
from pathlib import Path

import pytest

from data.corpus import Pairs, open_pairs, read_pairs
from data.text import TextFile, hash_lines, hash_texts

LINES = ("one", "two words", "drei\u2028 zeilen", " vier ", "fünf")


@pytest.fixture(params=["text.a", "text.a.gz"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    content = "".join(f"{line}\r\n" for line in LINES).encode()
    path = tmp_path / request.param
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_it_is_the_sequence_of_its_lines(path: Path):
    text = TextFile(path)
    assert (tuple(text), tuple(text), len(text)) == (LINES, LINES, 5)
    assert text == LINES
    assert text == TextFile(path)
    assert text != LINES[:-1]
    assert text != (*LINES[:-1], "six")
    for index in (0, 4, -1, -5, slice(2), slice(1, 4, 2), slice(9), slice(-2, None)):
        assert text[index] == LINES[index]
    for index in (slice(None, None, -1), slice(4, 0, -2), slice(0, 4, -1), slice(3, 3)):
        assert text[index] == LINES[index]
    for index in (5, -6):
        with pytest.raises(IndexError):
            text[index]
    assert "two words" in text
    assert "zwei" not in text


def test_its_hash_is_that_of_the_same_lines_in_memory(path: Path):
    text = TextFile(path)
    assert text.sha256 == hash_lines(text) == hash_lines(LINES) == hash_texts(LINES)
    assert text.sha256 != hash_texts(("one", "two", " words", *LINES[2:]))


@pytest.mark.parametrize("content", [b"one\ntwo\n", b"", b"one\n\n", b"\xff\n" * 5])
def test_a_file_that_was_rewritten_is_refused(path: Path, content: bytes):
    """The error names the change even if the new content is itself invalid."""
    text = TextFile(path)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    with pytest.raises(ValueError, match=f"{path.name} was changed while it was read; run this again"):
        tuple(text)


def test_a_deleted_file_is_an_error(path: Path):
    text = TextFile(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name):
        tuple(text)


def test_pairs_on_disk_are_those_in_memory(tmp_path: Path):
    src, tgt = tmp_path / "x.en", tmp_path / "x.de"
    src.write_text("a\nb\n")
    tgt.write_text("A\nB\n")
    assert read_pairs(src, tgt) == open_pairs(src, tgt) == Pairs(("a", "b"), ("A", "B"))
    tgt.write_text("A\nB\nC\n")
    with pytest.raises(ValueError, match=r"x.en has 2 lines but .*x.de has 3"):
        open_pairs(src, tgt)
