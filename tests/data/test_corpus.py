"""Corpora: files as users have them, the error of every fault, and the built-in corpus."""

import dataclasses
import gzip
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.corpus import Corpus, Pairs, embedded_corpus, read_corpus, read_pairs
from data.grammar import embedded_splits
from data.text import read_lines
from tests.kits.paths import SHARED
from tests.kits.raw_data import refused

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


def embedded_train(seed: int) -> Pairs:
    """Generate a train split of 200 pairs by the grammar itself."""
    pairs = embedded_splits(seed=seed, train=200, valid=500, test=1_000, test_long=500)["train"]
    return Pairs(*zip(*pairs, strict=True))


@pytest.mark.parametrize(("src", "tgt"), [("en", "de"), ("de", "en")])
def test_a_folder_is_read_in_either_direction(root: Path, src: str, tgt: str) -> None:
    corpus = read_corpus(root, src, tgt)
    assert (corpus.name, corpus.src_lang, corpus.tgt_lang) == ("tiny", src, tgt)
    assert list(corpus.splits) == ["train", "valid", "test_a", "test_b"]
    assert corpus.tests == ("test_a", "test_b")
    expected = {lang: tuple(FILES[f"test_b.{lang}"].splitlines()) for lang in ("en", "de")}
    assert corpus.splits["test_b"] == Pairs(expected[src], expected[tgt], ())


@pytest.mark.parametrize("stem", ["valid", "validation", "valid.tok", "dev", "dev2013"])
def test_other_names_of_the_validation_set(root: Path, stem: str) -> None:
    (root / "val.en.gz").rename(root / f"{stem}.en.gz")
    (root / "val.de").rename(root / f"{stem}.de")
    assert read_corpus(root, "en", "de").splits["valid"].tgt == ("eine Katze",)


def test_overlap_counts_the_sources_that_occur_in_train(root: Path) -> None:
    corpus = read_corpus(root, "en", "de")
    assert [corpus.overlap(split) for split in corpus.splits] == [2, 1, 0, 2]


def test_the_hash_covers_all_text_and_nothing_else(root: Path) -> None:
    corpus = read_corpus(root, "en", "de")
    renamed = Path(shutil.copytree(root, root.parent / "other"))
    (renamed / "train.de.gz").write_bytes(gzip.compress((renamed / "train.de").read_bytes()))
    (renamed / "train.de").unlink()
    same = read_corpus(renamed, "en", "de")
    assert same.name == "other"
    assert same.content_hash == corpus.content_hash
    variants = [
        dataclasses.replace(corpus, src_lang="nl"),
        dataclasses.replace(corpus, splits=dict(reversed(corpus.splits.items()))),
        dataclasses.replace(corpus, splits={**corpus.splits, "valid": Pairs(("a cat",), ("eine Katz",))}),
        dataclasses.replace(
            corpus, splits={**corpus.splits, "valid": Pairs(("a cat",), ("eine Katze",), ("0-0",))}
        ),
        read_corpus(renamed, "de", "en"),
    ]
    assert len({corpus.content_hash, *(variant.content_hash for variant in variants)}) == 6


def test_the_hash_keeps_lines_and_columns_apart() -> None:
    def content_hash(pairs: Pairs) -> str:
        return Corpus(name="x", src_lang="a", tgt_lang="b", splits={"train": pairs}).content_hash

    corpora = [
        (("ab", "c"), ("d", "e")),
        (("a", "bc"), ("d", "e")),
        (("ab", "c", "d"), ("e",)),
        (("ab",), ("c", "d", "e")),
    ]
    assert len({content_hash(Pairs(*columns)) for columns in corpora}) == len(corpora)


@given(
    lines=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff")), min_size=1
    )
)
@settings(deadline=None, max_examples=50)
def test_lines_end_at_line_feeds_alone(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = [f"x{line}\u2028\x85\x0b\x1c y" for line in lines]
    path = tmp_path_factory.getbasetemp() / "lines"
    for end in ("\n", "\r\n"):
        for content in (end.join(lines), end.join(lines) + end, "\ufeff" + end.join(lines)):
            path.write_bytes(content.encode())
            assert read_lines(path) == tuple(lines)


def test_only_one_carriage_return_and_one_byte_order_mark_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeff\ufeffa\r\r\nb\ufeff\rc\n".encode())
    assert read_lines(path) == ("\ufeffa\r", "b\ufeff\rc")


@pytest.mark.parametrize("name", ["train.de", "train.en.gz", "val.en.gz", "test_b.de"])
def test_a_missing_file_is_named(root: Path, name: str) -> None:
    (root / name).unlink()
    refused(lambda: read_corpus(root, "en", "de"), name.removesuffix(".gz"), "counterpart", "[.gz]")


@pytest.mark.parametrize("split", ["train", "val", "test_"])
def test_the_error_for_a_missing_split_names_the_expected_files(root: Path, split: str) -> None:
    for path in root.glob(f"{split}*"):
        path.unlink()
    kind = {"val": "valid", "test_": "test"}.get(split, split)
    refused(lambda: read_corpus(root, "en", "de"), str(root), f"no {kind} files", ".en[.gz] and .de[.gz]")


def test_a_missing_folder_or_language_is_named(root: Path) -> None:
    refused(lambda: read_corpus(root / "gone", "en", "de"), str(root / "gone"), "no such folder")
    refused(lambda: read_corpus(root, "en", "en"), "both 'en'")
    refused(lambda: read_corpus(root, "en", "cs"), "train.en.gz", "no counterpart train.cs")
    refused(lambda: read_pairs(root / "x.en", root / "train.de"), "x.en: no such file")
    refused(lambda: read_pairs(root, root / "train.de"), f"{root}: this is a folder; give a file")


def test_two_versions_of_one_split_are_refused(root: Path) -> None:
    (root / "train.en").write_text(FILES["train.en"])
    refused(lambda: read_corpus(root, "en", "de"), "train.en", "train.en.gz", "two versions", "remove one")
    (root / "train.en").unlink()
    for lang in ("en", "de"):
        (root / f"valid.{lang}").write_text("x\n")
    refused(lambda: read_corpus(root, "en", "de"), "2 valid sets (val, valid)", "keep one")


def test_unequal_line_counts(root: Path) -> None:
    (root / "train.de").write_text("ein Hund\neine Katze\nein Fisch")
    refused(lambda: read_corpus(root, "en", "de"), "train.en.gz has 2 lines", "train.de has 3", "parallel")


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (b"good\nbad \xff\n", "line 2, byte 5: 0xff"),
        (b"\xe4rger\n", "line 1, byte 1: 0xe4"),
        ("ä\nö".encode() + b"\xc3", "line 2, byte 3: 0xc3"),
        ("\ufeffgood\n".encode() + b"\xed\xa0\x80", "line 2, byte 1: 0xed"),
    ],
)
def test_the_error_for_bad_utf8_names_line_and_byte(tmp_path: Path, content: bytes, position: str) -> None:
    for path, stored in ((tmp_path / "x.de", content), (tmp_path / "x.de.gz", gzip.compress(content))):
        path.write_bytes(stored)
        refused(
            lambda path=path: read_lines(path), f"{path}, {position} is not UTF-8", "save the file as UTF-8"
        )


@pytest.mark.parametrize("blank", ["", " ", "\t\u00a0\u3000", "\r"])
def test_the_error_for_a_blank_line_names_it(root: Path, blank: str) -> None:
    (root / "train.de").write_bytes(f"ein Hund\n{blank}\n".encode())
    refused(lambda: read_corpus(root, "en", "de"), "train.de, line 2", "empty", "remove this pair")


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_test_set_is_refused(root: Path, content: bytes) -> None:
    (root / "test_a.de").write_bytes(content)
    refused(lambda: read_corpus(root, "en", "de"), "test_a.de is empty")


def test_a_damaged_gz_is_refused(root: Path) -> None:
    path = root / "train.en.gz"
    whole = path.read_bytes()
    flipped = whole[:12] + bytes([whole[12] ^ 255]) + whole[13:]
    for content in (b"plain text\n", whole[:-9], whole[: len(whole) // 2], flipped, whole + b"rest"):
        path.write_bytes(content)
        refused(lambda: read_corpus(root, "en", "de"), "train.en.gz", "not a whole .gz file", "again")


def test_the_embedded_corpus_has_links() -> None:
    corpus = embedded_corpus(seed=3, train=200)
    assert (corpus.name, corpus.src_lang, corpus.tgt_lang) == ("embedded", "en", "de")
    assert list(corpus.splits) == ["train", "valid", "test", "test_long"]
    assert [len(pairs.src) for pairs in corpus.splits.values()] == [200, 500, 1000, 500]
    for pairs in corpus.splits.values():
        assert len(pairs.src) == len(pairs.tgt) == len(pairs.links)
        assert all(isinstance(line, str) and line for column in pairs for line in column)
    assert corpus.splits["train"] == embedded_train(seed=3)
    assert corpus.splits["train"] != embedded_train(seed=4)


@pytest.mark.parametrize(
    ("folder", "sizes"),
    [
        ("multi30k", {"train": 29_000, "valid": 1_014, "test_2016_flickr": 1_000}),
        ("wmt-news-en-de", {"train": 21_240, "valid": 3_000, "test": 3_003}),
    ],
)
def test_real_corpora(folder: str, sizes: dict[str, int]) -> None:
    if not (SHARED / folder).is_dir():
        pytest.skip(f"needs {folder} beside the checkout")
    corpus = read_corpus(SHARED / folder, "de", "en")
    assert {name: len(pairs.src) for name, pairs in corpus.splits.items()} == sizes


def test_importing_corpus_and_vocabulary_imports_no_heavy_package() -> None:
    heavy = "{'torch', 'torchtext', 'sentencepiece'}"
    code = f"import sys, data.corpus, data.vocabulary; print({heavy} & {{*sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "set()\n"
