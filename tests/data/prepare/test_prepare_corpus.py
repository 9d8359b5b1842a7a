"""``data prepare``: reproducible output, no text in two splits, every dropped pair counted."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.cli import main
from data.corpus import read_corpus
from data.formats import TwoFiles
from data.prepare import Filters, PreparationPlan, prepare_corpus
from data.split import normalise
from tests.kits.raw_data import Pair, lines, made_up, records, refused, table, two_files, write


def prepare(
    folder: Path, pairs: list[Pair], name: str = "out", **settings: Any
) -> tuple[dict[str, Any], Path]:
    """Prepare ``pairs`` and return the manifest and the folder."""
    src, tgt = two_files(folder, pairs)
    rules = {key: settings.pop(key) for key in list(settings) if key in Filters.__dataclass_fields__}
    plan = PreparationPlan(
        sources=[TwoFiles(src=src, tgt=tgt)],
        langs=("en", "de"),
        filters=Filters(**rules),
        fixed_splits={},
        **settings,
    )
    return prepare_corpus(plan, folder / name, lambda _found, _sizes: ""), folder / name


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("block", [16, 1 << 16])
def test_the_number_of_processes_and_the_size_of_blocks_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
):
    odd = [
        ("a\ufeffb", "ß"),
        ("\u2028x  y\t", "ﬁ"),
        ("", "x"),
        ("Ａ b", "a\x85c"),
        ("e\u0301", "\u0301e"),
        ("語", "x"),
    ]
    pairs = [*odd, *made_up(60), *made_up(30), *odd, *((" ".join("abcdefg"), "x") for _ in range(3))]
    src, tgt = two_files(tmp_path, pairs)
    rules = Filters(drop_duplicates=True, max_words=6, max_ratio=5.0, drop_copies=True)
    plan = PreparationPlan(sources=[TwoFiles(src=src, tgt=tgt)], langs=("en", "de"), filters=rules)
    expected = prepare_corpus(plan, tmp_path / "expected", workers=1), contents(tmp_path / "expected")
    monkeypatch.setattr("data.text.BLOCK_BYTES", block)
    for workers in (1, 2, 3):
        out = tmp_path / str(workers)
        assert (prepare_corpus(plan, out, workers=workers), contents(out)) == expected
    assert expected[0]["dropped"]["duplicate"] > 10
    assert expected[0]["dropped"]["max_words"] >= 3


def split_pairs(folder: Path) -> dict[str, list[Pair]]:
    """Read the pairs of each split."""
    corpus = read_corpus(folder, "en", "de")
    return {name: list(zip(pairs.src, pairs.tgt, strict=True)) for name, pairs in corpus.splits.items()}


TEXT = st.text(st.sampled_from("abAB \u00a0\u2028\x85é"), min_size=1).filter(str.strip)


@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=60), seed=st.integers(0, 5))
@settings(deadline=None, max_examples=60)
def test_no_text_occurs_in_two_splits(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair], seed: int):
    folder = tmp_path_factory.mktemp("any")
    pairs += made_up(6)
    manifest, out = prepare(folder, pairs, seed=seed, valid=3, test=2)
    found = split_pairs(out)
    assert {name: len(each) for name, each in found.items()} == manifest["splits"]
    assert (len(found["valid"]), len(found["test"])) == (3, 2)
    cleaned = Counter((src.strip(), tgt.strip()) for src, tgt in pairs)
    assert Counter(pair for each in found.values() for pair in each) == cleaned
    for side in (0, 1):
        texts = {name: {normalise(pair[side]) for pair in each} for name, each in found.items()}
        assert sum(map(len, texts.values())) == len(set().union(*texts.values()))


def test_the_same_call_gives_the_same_bytes_and_another_seed_other_ones(tmp_path: Path):
    pairs = made_up(300)
    first, one = prepare(tmp_path, pairs, "one")
    second, two = prepare(tmp_path, pairs, "two")
    other, _ = prepare(tmp_path, pairs, "three", seed=2)
    assert first == second
    assert [path.read_bytes() for path in sorted(one.iterdir())] == [
        path.read_bytes() for path in sorted(two.iterdir())
    ]
    assert first["outputs"] != other["outputs"]
    assert first["splits"] == other["splits"] == {"train": 240, "valid": 30, "test": 30}


def test_the_order_of_the_lines_does_not_matter(tmp_path: Path):
    pairs = made_up(300)
    _, one = prepare(tmp_path, pairs, "one")
    _, two = prepare(tmp_path, pairs[::-1], "two")
    assert {name: sorted(each) for name, each in split_pairs(one).items()} == {
        name: sorted(each) for name, each in split_pairs(two).items()
    }
    valid = [pairs.index(pair) for pair in split_pairs(one)["valid"]]
    assert valid == sorted(valid)  # the lines of a split stay in order
    assert max(valid) - min(valid) > 150  # and are drawn from all over the corpus


def test_filters_count_what_they_drop(tmp_path: Path):
    pairs = made_up(40)
    odd = [
        ("", "leer"),
        ("\u00a0\ufeff", "leer"),
        ("con\x00trol", "Steuer"),
        ("lost \ufffd", "verloren"),
        ("copy of it", "copy of it"),
        ("w " * 31, "W " * 31),
        ("我" * 31, "ich " * 30),
        ("one two three four", "eins"),
        (pairs[3][0].upper(), pairs[3][1]),
    ]
    manifest, out = prepare(
        tmp_path,
        pairs + odd,
        max_words=30,
        max_ratio=3.0,
        drop_copies=True,
        drop_broken=True,
        drop_duplicates=True,
    )
    counts = {
        "empty": 2,
        "broken": 2,
        "copy": 1,
        "max_words": 2,
        "max_ratio": 1,
        "duplicate": 1,
        "overlap": 0,
    }
    assert manifest["dropped"] == counts
    assert (
        manifest["read"] == len(pairs) + len(odd) == sum(counts.values()) + sum(manifest["splits"].values())
    )
    assert sorted(pair for each in split_pairs(out).values() for pair in each) == sorted(pairs)


def test_bytes_that_are_not_utf8_are_an_error_or_dropped_by_name(tmp_path: Path):
    src, tgt = two_files(tmp_path, made_up(20))
    src.write_bytes(b"good\nb\xe4d\n" + src.read_bytes())
    tgt.write_bytes(b"gut\nschlecht\n" + tgt.read_bytes())
    strict, lenient = (
        PreparationPlan(
            sources=[TwoFiles(src=src, tgt=tgt)],
            langs=("en", "de"),
            filters=Filters(drop_broken=drop),
            fixed_splits={},
        )
        for drop in (False, True)
    )
    refused(
        lambda: prepare_corpus(strict, tmp_path / "out", lambda *_: ""), "line 2, byte 2: 0xe4 is not UTF-8"
    )
    assert prepare_corpus(lenient, tmp_path / "out", lambda *_: "")["dropped"]["broken"] == 1


def test_nothing_is_dropped_by_default(tmp_path: Path):
    odd = [("same", "same"), ("a\x00", "b\ufffd"), ("w " * 500 + "w", "v"), ("dup", "dup2"), ("dup", "dup2")]
    manifest, out = prepare(tmp_path, made_up(20) + odd)
    assert set(manifest["dropped"].values()) == {0}
    assert set(odd) <= set(pair for each in split_pairs(out).values() for pair in each)


def test_the_manifest_matches_settings_and_files(tmp_path: Path):
    manifest, out = prepare(tmp_path, made_up(60), seed=7, max_words=8)
    assert json.loads((out / "manifest.json").read_text()) == manifest
    assert manifest["settings"]["seed"] == 7
    assert manifest["settings"]["max_words"] == 8
    files = {entry["path"]: entry for entry in manifest["inputs"]}
    files |= {str(out / name): entry for name, entry in manifest["outputs"].items()}
    assert len(files) == 8
    for path, entry in files.items():
        content = Path(path).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())


def test_every_format_gives_the_same_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pairs, out = made_up(90), str(tmp_path / "files")
    src, tgt = two_files(tmp_path, pairs, packing=".gz")
    halves = [two_files(tmp_path, half, stem) for half, stem in ((pairs[:50], "one"), (pairs[50:], "two"))]
    (a, b), (c, d) = halves
    forms = {
        "files": [src, tgt],
        "table": [table(tmp_path / "t.tsv.zst", pairs), "--columns", "2,3", "--langs", "en,de"],
        "records": [records(tmp_path / "r.jsonl", pairs), "--fields", "translation.en,translation.de"],
        "several": [a, b, c, d],
        "sides": ["--src", a, "--src", c, "--tgt", b, "--tgt", d],
    }
    for name, arguments in forms.items():
        out = str(tmp_path / name)
        assert main(["data", "prepare", *map(str, arguments), "--out", out, "-q"]) == 0
    found = [split_pairs(tmp_path / name) for name in forms]
    assert all(each == found[0] for each in found)
    assert "train 72, valid 9, test 9" in capsys.readouterr().out


def test_a_divided_folder_keeps_its_test_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pairs, folder = made_up(60), tmp_path / "given"
    folder.mkdir()
    shared = [*pairs[55:], (pairs[52][0], "only the source"), ("nur das Ziel", pairs[57][1])]
    splits = {"train": pairs[:50] + shared, "valid": pairs[50:55], "test_a": pairs[55:]}
    for name, each in splits.items():
        two_files(folder, each, name)
    for more, train in (([], splits["train"]), (["--drop-overlap"], pairs[:50])):
        out = tmp_path / f"out{len(more)}"
        arguments = [
            "data",
            "prepare",
            str(folder),
            "--langs",
            "en,de",
            "--out",
            str(out),
            "-q",
            "--json",
            *more,
        ]
        assert main(arguments) == 0
        manifest = json.loads(capsys.readouterr().out)
        assert split_pairs(out) == {**splits, "train": train}
        assert manifest["splits"] == {"train": len(train), "valid": 5, "test_a": 5}
        assert manifest["dropped"]["overlap"] == 57 - len(train)
        assert len(manifest["inputs"]) == 6


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    src, tgt = two_files(tmp_path, made_up(30))
    before = sorted(tmp_path.iterdir())
    arguments = ["data", "prepare", str(src), str(tgt), "--dry-run", "--json", "-q"]
    assert main([*arguments, "--test", "5"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"] == {"train": 22, "valid": 3, "test": 5}
    assert main([*arguments, "--out", str(tmp_path / "x")]) == 0
    assert sorted(tmp_path.iterdir()) == before


def test_too_little_to_divide(tmp_path: Path):
    repeated = [("same", f"anders {n}") for n in range(30)]
    parts = ("2 pairs, but only 0 of 30", "--valid and --test")
    refused(lambda: prepare(tmp_path, repeated, valid=1, test=1), *parts)
    refused(lambda: prepare(tmp_path, made_up(4), valid=2, test=2), "4 pairs, but the corpus has 4")
    refused(lambda: prepare(tmp_path, made_up(4), max_words=1), "no pair is left of 4: max_words 4", "loosen")
    blank = write(tmp_path / "blank", lines([" ", ""]))
    plan = PreparationPlan(
        sources=[TwoFiles(src=blank, tgt=blank)], langs=("a", "b"), filters=Filters(), fixed_splits={}
    )
    refused(lambda: prepare_corpus(plan, tmp_path / "out", lambda *_: ""), "empty 2")
    assert not list(tmp_path.glob("*out*"))
