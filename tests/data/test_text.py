"""Lines of text, plain or compressed, in memory or on disk; visible forms of control characters."""

import gzip
import hashlib
import random
import time
import tracemalloc
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.corpus import Pairs, open_pairs, read_pairs
from data.text import (
    TextFile,
    describe_start,
    hash_decompressed,
    hash_lines,
    hash_texts,
    iter_lines,
    pack_gzip,
    plain_or_gzip,
    read_decompressed,
    read_lines,
    visible,
    visible_lines,
)
from tests.kits.texts import PACK, refused, write


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\rb\nc\td", r"a\rb\nc\td"),
        ("\x00\x7f\x9b", r"\x00\u007f\u009b"),
        ("\u202eabc\u2066\u2069", r"\u202eabc\u2066\u2069"),
        ("\u2028\u2029\ud800\uffff", r"\u2028\u2029\ud800\uffff"),
        ("Über, שלום, 日本, 👍🏽, a\u200db, ±", "Über, שלום, 日本, 👍🏽, a\u200db, ±"),
    ],
)
def test_what_is_obeyed_is_shown_and_all_else_stays(text: str, shown: str):
    assert visible(text) == shown
    assert visible_lines(f"a\tb\n{text}") == "a\tb\n" + visible_lines(text)


def test_every_control_category_is_covered():
    categories = ("Cc", "Zl", "Zp", "Cs")
    controls = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in categories]
    assert all(visible(character) != character for character in controls)


CONTENT = "ein Hund\nÄpfel\n".encode()


@pytest.mark.parametrize("suffix", PACK)
def test_a_compressed_file_is_read_and_hashed_by_its_content(tmp_path: Path, suffix: str):
    path = write(tmp_path / f"x{suffix}", CONTENT)
    if suffix in ("", ".gz"):  # the files of runs
        assert hash_decompressed(path) == hashlib.sha256(CONTENT).hexdigest()
        assert read_decompressed(path) == CONTENT
    assert read_lines(path) == ("ein Hund", "Äpfel")
    if suffix:
        path.write_bytes(path.read_bytes() + PACK[suffix](b"more\n"))  # concatenated files are one
        assert read_lines(path) == ("ein Hund", "Äpfel", "more")


def test_line_ends_of_windows_change_the_hash_of_no_text(tmp_path: Path):
    windows = CONTENT.replace(b"\n", b"\r\n")
    for name, is_text in (("log.jsonl", True), ("test.hyp", True), ("final.safetensors", False)):
        hashes = {hash_decompressed(write(tmp_path / name, content)) for content in (CONTENT, windows)}
        assert (len(hashes) == 1) == is_text


@pytest.mark.parametrize("pack", PACK.values())
def test_packed_text_is_read_whatever_its_name_is(tmp_path: Path, pack: Callable[[bytes], bytes]):
    for name in ("x.de", "x.bz2"):
        (tmp_path / name).write_bytes(pack(CONTENT))
        assert read_lines(tmp_path / name) == ("ein Hund", "Äpfel")


@pytest.mark.parametrize(
    "content", [b"<unk> is a word\n", b"<s>\n", b"<3 is a heart\n", b"a <b> c\n", "Ä\n".encode()]
)
def test_plain_text_is_not_taken_for_another_format(content: bytes):
    assert describe_start(content) == ""


def test_which_file_is_read_and_reproducible_packing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plain, packed = tmp_path / "test.hyp", tmp_path / "test.hyp.gz"
    assert plain_or_gzip(plain) == plain  # for a message about what is missing
    packed.touch()
    assert plain_or_gzip(plain) == packed
    plain.touch()
    assert plain_or_gzip(plain) == plain
    content = pack_gzip(CONTENT)
    monkeypatch.setattr(time, "time", lambda: 2e9)
    assert pack_gzip(CONTENT) == content


@pytest.mark.parametrize("damage", ["cut", "flipped", "rest", "plain"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str):
    whole = gzip.compress(b"a line of text\n" * 100)
    middle = len(whole) // 2
    content = {
        "cut": whole[:-5],
        "flipped": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
        "rest": whole + b"rest of it",
        "plain": b"plain text, however it is named\n",
    }[damage]
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    refused(lambda: read_lines(path), "x.gz: damaged or incomplete .gz file", "again")


@pytest.mark.parametrize("read", [hash_decompressed, read_decompressed, read_lines])
def test_what_is_no_file(tmp_path: Path, read):
    for name in ("x", "x.gz"):
        refused(lambda name=name: read(tmp_path / name), f"{name}: no such file")
    refused(lambda: read(tmp_path), f"{tmp_path} is a folder; name a file")


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff")), min_size=1)
)
@settings(deadline=None, max_examples=50)
def test_lines_end_at_line_feeds_alone(tmp_path_factory: pytest.TempPathFactory, lines: list[str]):
    lines = [f"x{line}\u2028\x85\x0b\x1c y" for line in lines]
    path = tmp_path_factory.getbasetemp() / "lines"
    for end in ("\n", "\r\n"):
        for content in (end.join(lines), end.join(lines) + end, "\ufeff" + end.join(lines)):
            path.write_bytes(content.encode())
            assert read_lines(path) == tuple(lines)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\nbad \xff\n", ", line 2: 0xff is not UTF-8"),
        ("ä\nö".encode() + b"\xc3", ", line 2: 0xc3 is not UTF-8"),
        ("\ufeffgood\n".encode() + b"\xed\xa0\x80", ", line 2: 0xed is not UTF-8"),
        (b"\xef\xbb\xbfx\xff\n", ", line 1: 0xff is not UTF-8"),
        ("text\n".encode("utf-16"), " is text in UTF-16: save it as UTF-8"),
        ("text\n".encode("utf-16-be"), " is text in UTF-16: save it as UTF-8"),
        ("我喜欢猫。\n".encode("utf-16-le"), " is text in UTF-16: save it as UTF-8"),
        ("我喜欢猫。\n".encode("utf-32-be"), " is text in UTF-32: save it as UTF-8"),
        (b"text\0\x01\x02\xff\xfe", " is not a text file, since it has many control characters"),
        (b"SQLite format 3\0\x10" + b"\0" * 99, " is not a text file"),
        (random.Random(1).randbytes(999), " is not a text file"),
        (b"/annex/objects/SHA256E-s9--0.de\n", " is a pointer of git-annex"),
        (b"PK\x03\x04...", " is a zip or office file"),
        (b"%PDF-1.7", " is a PDF"),
        (b"version https://git-lfs.github.com/spec/v1\n", " is a pointer of Git LFS"),
        (b'<?xml version="1.0"?>\n<a/>', " is a markup file, beginning with <xml>"),
        (b"<!DOCTYPE html>\n<html>", " is a markup file, beginning with <DOCTYPE>"),
        (b'\xef\xbb\xbf<refset setid="x" srclang="any">\n', " is a markup file, beginning with <refset>"),
        (b"<doc id=1>\n<p>\n", " is a markup file, beginning with <doc>"),
        ("a\n\t\u00a0\u3000\r\nb\n".encode(), ", line 2: the line is blank; remove this pair"),
        (b"", " is empty; expected one sentence per line"),
        (b"\xef\xbb\xbf", " is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: bytes, message: str):
    for suffix in PACK:
        path = write(tmp_path / f"x.de{suffix}", content)
        refused(lambda path=path: read_lines(path), f"{path}{message}")


def test_where_blank_lines_are_allowed_the_line_after_them_is_named(tmp_path: Path):
    path = write(tmp_path / "x.de", b"\na\n\n\xff\n")
    refused(lambda: read_lines(path, allow_blank=True), f"{path}, line 4: 0xff is not UTF-8")


def test_only_one_carriage_return_and_one_byte_order_mark_are_removed(tmp_path: Path):
    (tmp_path / "text").write_bytes("\ufeff\ufeffa\r\r\nb\ufeff\rc\n".encode())
    assert read_lines(tmp_path / "text") == ("\ufeffa\r", "b\ufeff\rc")


def test_reading_takes_little_memory(tmp_path: Path):
    many = write(tmp_path / "many.gz", b"one more line of the text\n" * 500_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in iter_lines(many)) == 500_000
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()


LINES = ("one", "two words", "drei\u2028 zeilen", " vier ", "fünf")


@pytest.fixture(params=["text.a", "text.a.gz"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / request.param, "".join(f"{line}\r\n" for line in LINES).encode())


def test_text_on_disk_is_the_sequence_of_its_lines(path: Path):
    text = TextFile(path)
    assert (tuple(text), tuple(text), len(text)) == (LINES, LINES, 5)
    for index in (0, 4, -5, slice(2), slice(1, 4, 2), slice(9), slice(-2, None), slice(3, 3)):
        assert text[index] == LINES[index]
    for index in (5, -6):
        with pytest.raises(IndexError):
            text[index]
    assert "two words" in text
    assert text.sha256 == hash_lines(text) == hash_lines(LINES) == hash_texts(LINES)
    assert text.sha256 != hash_texts(("one", "two", " words", *LINES[2:]))


@pytest.mark.parametrize("content", [b"one\ntwo\n", b"", b"one\n\n", b"\xff\n" * 5])
def test_a_file_that_was_rewritten_is_refused(path: Path, content: bytes):
    """The error names the change even if the new content is itself invalid."""
    text = TextFile(path)
    write(path, content)
    with pytest.raises(
        ValueError, match=f"{path.name} changed while it was being read; run the command again"
    ):
        tuple(text)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name):
        tuple(text)


def test_pairs_on_disk_are_those_in_memory(tmp_path: Path):
    src, tgt = tmp_path / "x.en", tmp_path / "x.de"
    src.write_text("a\nb\n")
    tgt.write_text("A\nB\n")
    assert read_pairs(src, tgt) == Pairs(("a", "b"), ("A", "B"))
    assert list(map(tuple, open_pairs(src, tgt))) == [("a", "b"), ("A", "B"), ()]
    tgt.write_text("A\nB\nC\n")
    with pytest.raises(ValueError, match=r"x.en has 2 lines, but .*x.de has 3"):
        open_pairs(src, tgt)
