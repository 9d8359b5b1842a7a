"""Corpora: files as users have them, the error of every fault, and the built-in corpus."""

import dataclasses
import gzip
import shutil
from pathlib import Path

import pytest

from data.corpus import Corpus, Pairs, embedded_corpus, read_corpus, read_pairs
from data.grammar import embedded_splits
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


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("train.de", b"ein Hund\n\t\n", ("train.de, line 2", "empty", "remove this pair")),
        ("train.de", b"ein Hund\n\xff\n", ("train.de, line 2, byte 1: 0xff is not UTF-8",)),
        ("train.de", b"ein Hund\neine Katze\nein Fisch", ("train.en.gz has 2 lines", "train.de has 3")),
        ("train.en.gz", b"plain text\n", ("train.en.gz", "not a whole .gz file", "again")),
        ("test_a.de", b"", ("test_a.de is empty",)),
    ],
)
def test_a_bad_file_is_named(root: Path, name: str, content: bytes, parts: tuple[str, ...]) -> None:
    (root / name).write_bytes(content)
    refused(lambda: read_corpus(root, "en", "de"), *parts)


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
