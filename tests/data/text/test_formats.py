"""Formats of raw corpora: every format gives the same texts, and each error names file and line."""

import gzip
import json
import tracemalloc
from itertools import product
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from data.formats import PairRecord, Records, Source, Table, TwoFiles
from data.text import MAX_LINE_BYTES, iter_lines
from tests.kits.raw_data import PACK, lines, records, refused, table, two_files, write

TEXTS = [
    ("plain", "schlicht"),
    ("line\u2028separator \u2029 next\x85line", "senkrecht\x0bTab \x0c Seite \x1c\x1d\x1e"),
    ("no\u00a0break\u202fspace", "Schmal\u2009raum"),
    ("\u200fשלום עולם\u200e", "\u202bمرحبا بالعالم\u202c"),
    ("我喜欢猫。", "ねこが好きです\u3000。"),
    ("nul \x00 inside", "und\x7f \x80 Steuerzeichen"),
    ("cr \r inside", "e\u0301 zerlegt, 😀 außerhalb der BMP \U00020000"),
]
"""Texts that other readers split, strip or refuse."""


def rows(source: Source) -> list[PairRecord]:
    return list(source.rows())


def all_formats(folder: Path, pairs: list[tuple[str, str]], compression: str) -> list[Source]:
    """Write the same pairs in every format; ``compression`` is a suffix of ``PACK``."""
    src, tgt = two_files(folder, pairs, packing=compression)
    return [
        TwoFiles(src=src, tgt=tgt),
        Table(path=table(folder / f"t.tsv{compression}", pairs), columns=(2, 3)),
        Records(
            path=records(folder / f"r.jsonl{compression}", pairs), fields=("translation.en", "translation.de")
        ),
    ]


@pytest.mark.parametrize("compression", PACK)
def test_every_format_gives_the_same_texts(tmp_path: Path, compression: str):
    expected = [PairRecord(number, *pair) for number, pair in enumerate(TEXTS, start=1)]
    for source in all_formats(tmp_path, TEXTS, compression):
        assert rows(source) == expected


@given(
    st.lists(
        st.tuples(
            *[st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\t\ufeff"))] * 2
        ),
        min_size=1,
    )
)
@settings(deadline=None, max_examples=50)
def test_any_text_survives_any_format(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]):
    folder = tmp_path_factory.getbasetemp()
    for number, compression in product(range(3), PACK):
        pair_records = rows(all_formats(folder, pairs, compression)[number])
        assert [record[1:] for record in pair_records] == pairs


def test_line_ends_and_byte_order_marks_of_windows(tmp_path: Path):
    src = write(tmp_path / "a", b"\xef\xbb\xbfone\r\ntwo \xef\xbb\xbf\r\nlast")
    tgt = write(tmp_path / "b", b"eins\nzwei\nletzte\n")
    expected = [(1, "one", "eins"), (2, "two \ufeff", "zwei"), (3, "last", "letzte")]
    assert rows(TwoFiles(src=src, tgt=tgt)) == expected
    tsv = write(tmp_path / "c.tsv", b"\xef\xbb\xbfone\teins\r\n\r\n two\tzwei \r\n")
    assert rows(Table(path=tsv, columns=(1, 2))) == [(1, "one", "eins"), (2, "", ""), (3, " two", "zwei ")]
    jsonl = write(tmp_path / "d.jsonl", b'\xef\xbb\xbf{"a": "x\\r\\ny\\nz", "b": "\\u00e9"}\r\n\r\n')
    assert rows(Records(path=jsonl, fields=("a", "b"))) == [(1, "x y z", "é"), (2, "", "")]


def test_columns_and_fields_are_taken_in_the_order_asked_for(tmp_path: Path):
    path = table(tmp_path / "t.tsv", [("x", "y")])
    assert rows(Table(path=path, columns=(3, 1))) == [(1, "y", "0")]
    path = write(tmp_path / "r.jsonl", b'{"a": "x", "b": {"c": {"d": "y"}}}')
    assert rows(Records(path=path, fields=("b.c.d", "a"))) == [(1, "y", "x")]


def test_escaped_surrogates(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", b'{"a": "\\ud83d\\ude00", "b": "x"}\n{"a": "y", "b": "\\udc80 z"}\n')
    source = Records(path=path, fields=("a", "b"))
    stream = source.rows()
    assert next(stream) == (1, "😀", "x")
    refused(lambda: next(stream), "r.jsonl, line 2", "field 'b'", "unpaired surrogate", "U+DC80", "correct")
    assert list(source.rows(keep_broken=True))[1] == (2, "y", "\udc80 z")


def test_keep_broken_keeps_bytes_that_are_not_utf8(tmp_path: Path):
    src, tgt = write(tmp_path / "a", b"good\nb\xe4d\n"), write(tmp_path / "b", b"gut\nschlecht\n")
    source = TwoFiles(src=src, tgt=tgt)
    assert list(source.rows(keep_broken=True)) == [(1, "good", "gut"), (2, "b\udce4d", "schlecht")]
    refused(lambda: rows(source), "a, line 2, byte 2: 0xe4 is not UTF-8")
    write(src, "text\n".encode("utf-16"))
    refused(lambda: rows(source), "a, line 1, byte 1: 0xff", "begins like UTF-16", "save the file as UTF-8")


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (1, 2)])
def test_unequal_files_are_counted_to_their_ends(tmp_path: Path, left: int, right: int):
    src, tgt = (write(tmp_path / name, lines("x" * n)) for name, n in (("a", left), ("b", right)))
    refused(
        lambda: rows(TwoFiles(src=src, tgt=tgt)),
        f"a has {left} lines",
        f"b has {right}",
        "make the files parallel",
    )


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"\n[1, 2]\n", ("line 2: no field 'a'", "--fields")),
        (b'{"b": 1, "c": {}}', ("line 1: no field 'a'; known are 'b', 'c'",)),
        (b'{"a": null}', ("line 1: field 'a' must be a text, found NoneType",)),
        (b'{"a": {"b": "x"}}', ("found dict",)),
        (b'{"a": "x"', ("line 1: not JSON", "one object per line")),
        (b"[" * 100_000, ("line 1: not JSON",)),
        (b'{"a": ' + b"9" * 5_000 + b"}", ("line 1: not JSON",)),
        (b"", ("r.jsonl is empty",)),
    ],
)
def test_invalid_records_are_refused(tmp_path: Path, content: bytes, parts: tuple[str, ...]):
    path = write(tmp_path / "r.jsonl", content)
    refused(lambda: rows(Records(path=path, fields=("a", "a"))), "r.jsonl", *parts)


def test_a_line_with_too_few_columns_is_refused(tmp_path: Path):
    path = write(tmp_path / "t.tsv", b"a\tb\tc\na\tb\n")
    refused(
        lambda: rows(Table(path=path, columns=(1, 3))), "line 2: column 3 is asked for, found 2", "--columns"
    )


def test_columns_are_named_by_a_header_line(tmp_path: Path):
    path = write(tmp_path / "t.tsv", b"id\tde\ten\n1\teins\tone\n2\tzwei\ttwo\n")
    assert rows(Table(path=path, columns=("en", "de"))) == [(2, "one", "eins"), (3, "two", "zwei")]
    refused(lambda: rows(Table(path=path, columns=("en", "fr"))), "line 1: no column 'fr' in the header")
    refused(lambda: rows(Table(path=path)), "line 1: 3 columns, of which two are needed", "--columns 1,2")
    later = write(tmp_path / "later.tsv", b"a\tb\nyes, I\tdo\tja, das tue ich\n")
    refused(lambda: rows(Table(path=later)), "line 2: 3 columns, of which two are needed", "--columns 1,2")
    two = write(tmp_path / "two.tsv", b"one\teins\n")
    assert rows(Table(path=two)) == [(1, "one", "eins")]
    commas = write(tmp_path / "c.tsv", b"one,eins\n")
    refused(lambda: rows(Table(path=commas)), "line 1: column 2 is asked for, found 1", "no tab in it")


@pytest.mark.parametrize("damage", ["cut", "flipped", "rest", "plain"])
def test_a_damaged_zst_is_refused(tmp_path: Path, damage: str):
    whole = zstandard.ZstdCompressor(write_checksum=True).compress(b"a line of text\n" * 100)
    middle = len(whole) // 2
    content = {
        "cut": whole[:-5],
        "flipped": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
        "rest": whole + b"rest of it",
        "plain": b"plain text, however it is named\n",
    }[damage]
    (tmp_path / "x.zst").write_bytes(content)
    refused(lambda: list(iter_lines(tmp_path / "x.zst")), "x.zst: not a whole .zst file", "again")


def test_concatenated_compressed_files_are_one_file(tmp_path: Path):
    for compression in (".gz", ".zst"):
        path = tmp_path / f"x{compression}"
        path.write_bytes(PACK[compression](b"a\nb") + PACK[compression](b"c\n"))
        assert list(iter_lines(path)) == [(1, "a"), (2, "bc")]


def test_folders_and_missing_files_are_refused(tmp_path: Path):
    refused(lambda: list(iter_lines(tmp_path)), str(tmp_path), "this is a folder")
    for name in ("x", "x.gz", "x.zst"):
        refused(lambda name=name: list(iter_lines(tmp_path / name)), f"{name}: no such file")


@pytest.mark.parametrize("compression", PACK)
def test_reading_takes_little_memory_and_an_endless_line_is_refused(tmp_path: Path, compression: str):
    many = write(tmp_path / f"many{compression}", b"one more line of the text\n" * 200_000)
    content = b"x" * (MAX_LINE_BYTES - 1) + b"\nshort\n" + b"x" * (32 << 20)
    longest = write(tmp_path / f"longest{compression}", content)
    tracemalloc.start()
    try:
        assert sum(1 for _ in iter_lines(many)) == 200_000
        stream = iter_lines(longest)
        assert [len(next(stream)[1]), next(stream)[1]] == [MAX_LINE_BYTES - 1, "short"]
        refused(lambda: next(stream), "line 3: over 1,048,576 bytes", "one sentence per line")
        assert tracemalloc.get_traced_memory()[1] < 12 * MAX_LINE_BYTES
    finally:
        tracemalloc.stop()


def test_styles_of_json_give_the_same_texts(tmp_path: Path):
    """ASCII escapes and UTF-8, with and without spaces, give the same texts."""
    pair = {"a": TEXTS[3][0], "b": TEXTS[4][1]}
    content = lines([json.dumps(pair), json.dumps(pair, ensure_ascii=False, separators=(",", ":"))])
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(gzip.compress(content))
    pair_records = rows(Records(path=path, fields=("a", "b")))
    assert [record[1:] for record in pair_records] == [tuple(pair.values())] * 2


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 16])
@pytest.mark.parametrize("src_bad", [None, 3, 9])
@pytest.mark.parametrize("tgt_bad", [None, 3, 5, 12])
def test_the_first_bad_line_of_either_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, src_bad: int | None, tgt_bad: int | None
):
    """Whatever the blocks, the pairs before it come first; at the same line the source is read first."""
    monkeypatch.setattr("data.text.BLOCK_BYTES", block)
    sides = []
    for name, bad in (("src", src_bad), ("tgt", tgt_bad)):
        texts = [b"%s %d\r\n" % (name.encode(), number) for number in range(1, 13)]
        if bad is not None:
            texts[bad - 1] = b"\xe4 bad\n"
        sides.append(write(tmp_path / name, b"\xef\xbb\xbf" + b"".join(texts)))
    stream = TwoFiles(src=sides[0], tgt=sides[1]).rows()
    first = min((bad, name) for bad, name in ((src_bad or 99, "src"), (tgt_bad or 99, "tgt")))
    for number in range(1, min(first[0], 13)):
        assert next(stream) == (number, f"src {number}", f"tgt {number}")
    if first[0] == 99:
        assert list(stream) == []
    else:
        refused(lambda: next(stream), f"{tmp_path / first[1]}, line {first[0]}, byte 1: 0xe4 is not UTF-8")
