"""Corpora: files as users have them, formats of raw text, the error of every fault, the built-in corpus."""

import dataclasses
import gzip
import shutil
from pathlib import Path

import pytest

from data.corpus import Corpus, Pairs, embedded_corpus, read_corpus
from data.formats import Records, Source, Table, TwoFiles
from data.grammar import embedded_splits
from tests.kits.texts import PACK, lines, records, refused, table, two_files, write

FILES = {
    "train.en": "a dog\na cat\n",
    "train.de": "ein Hund\neine Katze\n",
    "val.en": "a cat\n",
    "val.de": "eine Katze\n",
    "test_b.en": "a bird\na dog\na dog\n",
    "test_b.de": "ein Vogel\nein Hund\nder Hund\n",
    "test_a.en": "a fish\n",
    "test_a.de": "ein Fisch\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a complete corpus; half of its files are compressed."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    for name, text in FILES.items():
        if name.endswith("en"):
            (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / name).write_text(text)
    (folder / "SOURCE.md").write_text("unrelated\n")
    (folder / "train.fr").write_text("un chien\n")
    return folder


@pytest.mark.parametrize(("src", "tgt"), [("en", "de"), ("de", "en")])
def test_a_folder_is_read_in_either_direction(root: Path, src: str, tgt: str) -> None:
    corpus = read_corpus(root, src, tgt)
    assert (corpus.name, corpus.src_lang, corpus.tgt_lang) == ("tiny", src, tgt)
    assert list(corpus.splits) == ["train", "valid", "test_a", "test_b"]
    assert corpus.tests == ("test_a", "test_b")
    expected = {lang: tuple(FILES[f"test_b.{lang}"].splitlines()) for lang in ("en", "de")}
    assert corpus.splits["test_b"] == Pairs(expected[src], expected[tgt], ())


@pytest.mark.parametrize("ending", ["docs", "docs.gz"])
def test_documents_of_a_test_set_lie_beside_it(root: Path, ending: str) -> None:
    plain = read_corpus(root, "en", "de")
    lines = [f"document {line}\n" for line in range(len(plain.splits["test_b"].src))]
    path, text = root / f"test_b.{ending}", "".join(lines).encode()
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    corpus = read_corpus(root, "en", "de")
    assert corpus.docs == {"test_b": tuple(line.strip() for line in lines)}
    assert corpus.content_hash == plain.content_hash
    assert corpus.with_tests_cut(1).docs == {"test_b": ("document 0",)}
    assert read_corpus(root, "en", "de", tests=False).docs == {}
    path.write_bytes(gzip.compress(b"a\n" * 9) if ending.endswith("gz") else b"a\n" * 9)
    with pytest.raises(
        ValueError, match=r"test_b\.docs\S* has 9 lines, but its test set \d: write a document name"
    ):
        read_corpus(root, "en", "de")


@pytest.mark.parametrize("stem", ["valid", "validation", "valid.tok", "dev", "dev2013"])
def test_other_names_of_the_validation_set(root: Path, stem: str) -> None:
    (root / "val.en.gz").rename(root / f"{stem}.en.gz")
    (root / "val.de").rename(root / f"{stem}.de")
    assert read_corpus(root, "en", "de").splits["valid"].tgt == ("eine Katze",)


def test_the_name_of_a_language_may_have_dots(root: Path) -> None:
    for path in [*root.glob("*.de"), *root.glob("*.en.gz")]:
        name, _, lang = path.name.partition(".")
        path.rename(root / f"{name}.lc.tok.{lang}")
    corpus = read_corpus(root, "lc.tok.en", "lc.tok.de")
    assert list(corpus.splits) == ["train", "valid", "test_a", "test_b"]


def test_overlap_counts_the_sources_that_occur_in_train(root: Path) -> None:
    assert read_corpus(root, "en", "de").overlaps() == {"valid": 1, "test_b": 2}


def test_overlap_is_of_letters_and_digits_alone() -> None:
    train = Pairs(("Der Hund, 2 Katzen.", "की"), ("x",) * 2)
    test = Pairs(("der Hund 2 Katzen", "DER „Hund“, ２ Katzen!", "der Hund 3 Katzen", "का", "?!"), ("y",) * 5)
    splits = {"train": train, "valid": train, "test": test}
    corpus = Corpus(name="x", src_lang="a", tgt_lang="b", splits=splits)
    assert corpus.overlaps() == {"valid": 2, "test": 2}


def test_the_hash_covers_all_text_and_nothing_else(root: Path) -> None:
    corpus = read_corpus(root, "en", "de")
    other = Path(shutil.copytree(root, root.parent / "other"))
    (other / "train.de.gz").write_bytes(gzip.compress((other / "train.de").read_bytes()))
    (other / "train.de").unlink()
    assert read_corpus(other, "en", "de").content_hash == corpus.content_hash
    train = [
        (("ab", "c"), ("d", "e")),
        (("a", "bc"), ("d", "e")),
        (("ab", "c", "d"), ("e",)),
        (("ab", "c"), ("d", "e"), ("0-0", "")),
    ]
    variants = [
        dataclasses.replace(corpus, src_lang="nl"),
        dataclasses.replace(corpus, splits=dict(reversed(corpus.splits.items()))),
        read_corpus(other, "de", "en"),
        *(dataclasses.replace(corpus, splits={"train": Pairs(*columns)}) for columns in train),
    ]
    assert len({variant.content_hash for variant in (corpus, *variants)}) == 1 + len(variants)


@pytest.mark.parametrize("name", ["train.de", "train.en.gz", "val.en.gz", "test_b.de"])
def test_a_missing_file_is_named(root: Path, name: str) -> None:
    (root / name).unlink()
    refused(lambda: read_corpus(root, "en", "de"), name.removesuffix(".gz"), "counterpart")


@pytest.mark.parametrize("split", ["train", "val", "test_"])
def test_the_error_for_a_missing_split_names_the_expected_files(root: Path, split: str) -> None:
    for path in root.glob(f"{split}*"):
        path.unlink()
    kind = {"val": "valid", "test_": "test"}.get(split, split)
    refused(lambda: read_corpus(root, "en", "de"), str(root), f"no {kind} files", ".en and .de")


def test_a_missing_folder_or_language_is_named(root: Path) -> None:
    refused(lambda: read_corpus(root / "gone", "en", "de"), str(root / "gone"), "no such folder")
    refused(lambda: read_corpus(root, "en", "en"), "both 'en'")
    refused(lambda: read_corpus(root, "en", "cs"), "train.en.gz", "no counterpart train.cs")


def test_two_versions_of_one_split_are_refused(root: Path) -> None:
    (root / "train.en").write_text(FILES["train.en"])
    refused(lambda: read_corpus(root, "en", "de"), "train.en", "train.en.gz", "two versions", "remove one")
    (root / "train.en").unlink()
    for lang in ("en", "de"):
        (root / f"valid.{lang}").write_text("x\n")
    refused(lambda: read_corpus(root, "en", "de"), "2 valid sets (val, valid)", "remove all but one")


def test_the_embedded_corpus_has_links() -> None:
    corpus = embedded_corpus(seed=3, train=200)
    assert (corpus.name, corpus.src_lang, corpus.tgt_lang) == ("embedded", "en", "de")
    sizes = {"train": 200, "valid": 500, "test": 1000, "test_long": 500}
    assert {name: tuple(map(len, pairs)) for name, pairs in corpus.splits.items()} == {
        name: (size,) * 3 for name, size in sizes.items()
    }
    generated = embedded_splits(seed=3, **sizes)["train"]
    assert corpus.splits["train"] == Pairs(*zip(*generated, strict=True))


TEXTS = [
    ("plain", "schlicht"),
    ("line\u2028separator \u2029 next\x85line", "senkrecht\x0bTab \x0c Seite \x1c\x1d\x1e"),
    ("\u200fשלום עולם\u200e", "\u202bمرحبا بالعالم\u202c"),
    ("我喜欢猫。", "ねこが好きです\u3000。"),
    ("nul \x00 inside", "und\x7f \x80 Steuerzeichen"),
    ("cr \r inside", "e\u0301 zerlegt, 😀 außerhalb der BMP \U00020000"),
]
"""Texts that other readers split, strip or refuse."""


def rows(source: Source) -> list[tuple[str, str]]:
    return list(source.pairs())


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
    for source in all_formats(tmp_path, TEXTS, compression):
        assert rows(source) == TEXTS
        assert [len(src) for src, _ in source.blocks()] == [4, 2]
        assert [pair for block in source.blocks() for pair in zip(*block, strict=True)] == TEXTS


def test_line_ends_and_byte_order_marks_of_windows(tmp_path: Path):
    src = write(tmp_path / "a", b"\xef\xbb\xbfone\r\ntwo \xef\xbb\xbf\r\nlast")
    tgt = write(tmp_path / "b", b"eins\nzwei\nletzte\n")
    expected = [("one", "eins"), ("two \ufeff", "zwei"), ("last", "letzte")]
    assert rows(TwoFiles(src=src, tgt=tgt)) == expected
    tsv = write(tmp_path / "c.tsv", b"\xef\xbb\xbfone\teins\r\n\r\n two\tzwei \r\n")
    assert rows(Table(path=tsv)) == [("one", "eins"), ("", ""), (" two", "zwei ")]
    jsonl = write(tmp_path / "d.jsonl", b'\xef\xbb\xbf{"a": "x\\r\\ny\\nz", "b": "\\u00e9"}\r\n\r\n')
    assert rows(Records(path=jsonl, fields=("a", "b"))) == [("x y z", "é"), ("", "")]


def test_columns_and_fields_are_taken_in_the_order_asked_for(tmp_path: Path):
    path = table(tmp_path / "t.tsv", [("x", "y")])
    assert rows(Table(path=path, columns=(3, 1))) == [("y", "0")]
    path = write(tmp_path / "r.jsonl", b'{"a": "x", "b": {"c": {"d": "y"}}}')
    assert rows(Records(path=path, fields=("b.c.d", "a"))) == [("y", "x")]
    path = write(tmp_path / "h.tsv", b"id\tde\ten\n1\teins\tone\n2\tzwei\ttwo\n")
    assert rows(Table(path=path, columns=("en", "de"))) == [("one", "eins"), ("two", "zwei")]


def test_broken_text_is_an_error_or_kept(tmp_path: Path):
    src, tgt = write(tmp_path / "a", b"good\nb\xe4d\n"), write(tmp_path / "b", b"gut\nschlecht\n")
    files = TwoFiles(src=src, tgt=tgt)
    assert list(files.pairs(keep_broken=True)) == [("good", "gut"), ("b\udce4d", "schlecht")]
    refused(lambda: rows(files), "a, line 2: 0xe4 is not UTF-8")


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (1, 2)])
def test_unequal_files_are_counted_to_their_ends(tmp_path: Path, left: int, right: int):
    src, tgt = (write(tmp_path / name, lines("x" * n)) for name, n in (("a", left), ("b", right)))
    parts = f"a has {left} lines", f"b has {right}", "line i of one"
    refused(lambda: rows(TwoFiles(src=src, tgt=tgt)), *parts)


def test_the_quotes_of_spreadsheets_are_read_and_others_stay(tmp_path: Path):
    cells = ['"A ""big"" dog."', '"quoted"', 'a "b" c', '""', '"" x ""', '"a"" b']
    path = write(tmp_path / "t.tsv", "".join(f"{cell}\tx\n" for cell in cells).encode())
    assert [src for src, _ in rows(Table(path=path))] == ['A "big" dog.', *cells[1:]]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b'[\n{"a": "x"}\n]', ("line 1: not a JSON object", "jq -c '.[]'")),
        (b"\n[1, 2]\n", ("line 2: no field 'a'", "--fields")),
        (b'{"b": 1, "c": {}}', ("line 1: no field 'a' (it has 'b', 'c')",)),
        (b'{"a": null}', ("line 1: field 'a' must be a text, found NoneType",)),
        (b'{"a": "x"', ("line 1: not a JSON object", "one object per line")),
        (b'{"a": "\\ud800"}', ("line 1: field 'a' has a lone surrogate",)),
        (b"", ("r.jsonl is empty",)),
    ],
)
def test_invalid_records_are_refused(tmp_path: Path, content: bytes, parts: tuple[str, ...]):
    path = write(tmp_path / "r.jsonl", content)
    refused(lambda: rows(Records(path=path, fields=("a", "a"))), "r.jsonl", *parts)


@pytest.mark.parametrize(
    ("content", "columns", "parts"),
    [
        (b"a\tb\tc\na\tb\n", (1, 3), ("line 2: no column 3: the line has 2", "--columns")),
        (b"id\tde\ten\n1\teins\tone\n", ("en", "fr"), ("line 1: no column 'fr' in the header",)),
        (b"id\tde\ten\n", None, ("line 1: 3 columns, but two are needed", "--columns 1,2")),
        (b"a\tb\nyes, I\tdo\tja, das tue ich\n", None, ("line 2: 3 columns, but two",)),
        (b"one,eins\n", (1, 2), ("line 1: no column 2: the line has 1", "separated by tabs")),
    ],
)
def test_invalid_tables_are_refused(tmp_path: Path, content: bytes, columns, parts: tuple[str, ...]):
    path = write(tmp_path / "t.tsv", content)
    refused(lambda: rows(Table(path=path, columns=columns)), "t.tsv", *parts)
