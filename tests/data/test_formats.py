"""Formats of raw corpora: every format gives the same texts, and each error names file and line."""

import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.formats import PairRecord, Records, Source, Table, TwoFiles
from tests.kits.raw_data import PACK, lines, records, refused, table, two_files, write

TEXTS = [
    ("plain", "schlicht"),
    ("line\u2028separator \u2029 next\x85line", "senkrecht\x0bTab \x0c Seite \x1c\x1d\x1e"),
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
    fields = ("translation.en", "translation.de")
    return [
        TwoFiles(src=src, tgt=tgt),
        Table(path=table(folder / f"t.tsv{compression}", pairs), columns=(2, 3)),
        Records(path=records(folder / f"r.jsonl{compression}", pairs), fields=fields),
    ]


@pytest.mark.parametrize("compression", PACK)
def test_every_format_gives_the_same_texts(tmp_path: Path, monkeypatch, compression: str):
    monkeypatch.setattr("data.formats.BLOCK_PAIRS", 4)
    expected = [PairRecord(number, *pair) for number, pair in enumerate(TEXTS, start=1)]
    for source in all_formats(tmp_path, TEXTS, compression):
        assert rows(source) == expected
        assert [len(src) for src, _ in source.blocks()] == [4, 2]
        assert [pair for block in source.blocks() for pair in zip(*block, strict=True)] == TEXTS


ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\t\ufeff"))


@given(st.lists(st.tuples(ANY, ANY), min_size=1))
@settings(deadline=None, max_examples=30)
def test_any_text_survives_any_format(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]):
    folder = tmp_path_factory.getbasetemp()
    for number, compression in product(range(3), PACK):
        assert [record[1:] for record in rows(all_formats(folder, pairs, compression)[number])] == pairs


def test_line_ends_and_byte_order_marks_of_windows(tmp_path: Path):
    src = write(tmp_path / "a", b"\xef\xbb\xbfone\r\ntwo \xef\xbb\xbf\r\nlast")
    tgt = write(tmp_path / "b", b"eins\nzwei\nletzte\n")
    expected = [(1, "one", "eins"), (2, "two \ufeff", "zwei"), (3, "last", "letzte")]
    assert rows(TwoFiles(src=src, tgt=tgt)) == expected
    tsv = write(tmp_path / "c.tsv", b"\xef\xbb\xbfone\teins\r\n\r\n two\tzwei \r\n")
    assert rows(Table(path=tsv)) == [(1, "one", "eins"), (2, "", ""), (3, " two", "zwei ")]
    jsonl = write(tmp_path / "d.jsonl", b'\xef\xbb\xbf{"a": "x\\r\\ny\\nz", "b": "\\u00e9"}\r\n\r\n')
    assert rows(Records(path=jsonl, fields=("a", "b"))) == [(1, "x y z", "é"), (2, "", "")]


def test_columns_and_fields_are_taken_in_the_order_asked_for(tmp_path: Path):
    path = table(tmp_path / "t.tsv", [("x", "y")])
    assert rows(Table(path=path, columns=(3, 1))) == [(1, "y", "0")]
    path = write(tmp_path / "r.jsonl", b'{"a": "x", "b": {"c": {"d": "y"}}}')
    assert rows(Records(path=path, fields=("b.c.d", "a"))) == [(1, "y", "x")]
    path = write(tmp_path / "h.tsv", b"id\tde\ten\n1\teins\tone\n2\tzwei\ttwo\n")
    assert rows(Table(path=path, columns=("en", "de"))) == [(2, "one", "eins"), (3, "two", "zwei")]


def test_broken_text_is_an_error_or_kept(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", b'{"a": "\\ud83d\\ude00", "b": "x"}\n{"a": "y", "b": "\\udc80 z"}\n')
    source = Records(path=path, fields=("a", "b"))
    stream = source.rows()
    assert next(stream) == (1, "😀", "x")
    refused(lambda: next(stream), "r.jsonl, line 2", "field 'b'", "unpaired surrogate", "U+DC80", "correct")
    assert list(source.rows(keep_broken=True))[1] == (2, "y", "\udc80 z")
    src, tgt = write(tmp_path / "a", b"good\nb\xe4d\n"), write(tmp_path / "b", b"gut\nschlecht\n")
    files = TwoFiles(src=src, tgt=tgt)
    assert list(files.rows(keep_broken=True)) == [(1, "good", "gut"), (2, "b\udce4d", "schlecht")]
    refused(lambda: rows(files), "a, line 2, byte 2: 0xe4 is not UTF-8")


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (1, 2)])
def test_unequal_files_are_counted_to_their_ends(tmp_path: Path, left: int, right: int):
    src, tgt = (write(tmp_path / name, lines("x" * n)) for name, n in (("a", left), ("b", right)))
    parts = f"a has {left} lines", f"b has {right}", "make the files parallel"
    refused(lambda: rows(TwoFiles(src=src, tgt=tgt)), *parts)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"\n[1, 2]\n", ("line 2: no field 'a'", "--fields")),
        (b'{"b": 1, "c": {}}', ("line 1: no field 'a'; known are 'b', 'c'",)),
        (b'{"a": null}', ("line 1: field 'a' must be a text, found NoneType",)),
        (b'{"a": "x"', ("line 1: not JSON", "one object per line")),
        (b"", ("r.jsonl is empty",)),
    ],
)
def test_invalid_records_are_refused(tmp_path: Path, content: bytes, parts: tuple[str, ...]):
    path = write(tmp_path / "r.jsonl", content)
    refused(lambda: rows(Records(path=path, fields=("a", "a"))), "r.jsonl", *parts)


@pytest.mark.parametrize(
    ("content", "columns", "parts"),
    [
        (b"a\tb\tc\na\tb\n", (1, 3), ("line 2: column 3 is asked for, found 2", "--columns")),
        (b"id\tde\ten\n1\teins\tone\n", ("en", "fr"), ("line 1: no column 'fr' in the header",)),
        (b"id\tde\ten\n", None, ("line 1: 3 columns, of which two are needed", "--columns 1,2")),
        (b"a\tb\nyes, I\tdo\tja, das tue ich\n", None, ("line 2: 3 columns, of which two",)),
        (b"one,eins\n", (1, 2), ("line 1: column 2 is asked for, found 1", "there is no tab in it")),
    ],
)
def test_invalid_tables_are_refused(tmp_path: Path, content: bytes, columns, parts: tuple[str, ...]):
    path = write(tmp_path / "t.tsv", content)
    refused(lambda: rows(Table(path=path, columns=columns)), "t.tsv", *parts)


def test_styles_of_json_give_the_same_texts(tmp_path: Path):
    pair = {"a": TEXTS[2][0], "b": TEXTS[3][1]}
    content = lines([json.dumps(pair), json.dumps(pair, ensure_ascii=False, separators=(",", ":"))])
    found = rows(Records(path=write(tmp_path / "r.jsonl", content), fields=("a", "b")))
    assert [record[1:] for record in found] == [tuple(pair.values())] * 2
