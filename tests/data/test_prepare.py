"""``data prepare``: reproducible output, no text in two splits, every dropped pair counted, clear errors."""

import hashlib
import io
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.cli import main
from data.corpus import read_corpus
from data.formats import TwoFiles
from data.forms import UNSPACED
from data.prepare import (
    Filters,
    PreparationPlan,
    is_repeat,
    is_unique,
    prepare_corpus,
    run_first_pass,
)
from data.text import letters_of
from tests.kits.common import Refusal
from tests.kits.texts import Pair, lines, made_up, records, refused, table, two_files, write


def plan_of(src: Path, tgt: Path, **settings: Any) -> PreparationPlan:
    rules = {key: settings.pop(key) for key in list(settings) if key in Filters.__dataclass_fields__}
    sources = [TwoFiles(src=src, tgt=tgt)]
    return PreparationPlan(sources=sources, langs=("en", "de"), filters=Filters(**rules), **settings)


@pytest.mark.parametrize(
    "settings",
    [{"langs": ("en", "en")}, {"langs": ("gz", "de")}, {"valid": 0}, {"test": -1}],
)
def test_a_plan_names_two_languages_and_sets_with_sentences(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be at least 1|expected two different names"):
        PreparationPlan(**{"sources": [], "langs": ("en", "lc.de"), **settings})


def prepare(
    folder: Path, pairs: list[Pair], name: str = "out", **settings: Any
) -> tuple[dict[str, Any], Path]:
    """Prepare ``pairs`` and return the manifest and the folder."""
    return prepare_corpus(plan_of(*two_files(folder, pairs), **settings), folder / name), folder / name


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def split_pairs(folder: Path) -> dict[str, list[Pair]]:
    """Read the pairs of each split."""
    corpus = read_corpus(folder, "en", "de")
    return {name: list(zip(pairs.src, pairs.tgt, strict=True)) for name, pairs in corpus.splits.items()}


HASHES = st.lists(st.integers(0, 9), max_size=30).map(lambda values: np.array(values, dtype=np.uint64))


@given(hashes=HASHES)
def test_repeated_and_unique_hashes(hashes: "np.ndarray"):
    values = hashes.tolist()
    assert is_repeat(hashes).tolist() == [value in values[:index] for index, value in enumerate(values)]
    assert is_unique(hashes).tolist() == [values.count(value) == 1 for value in values]


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        ("a b c d e f", "A B", ""),
        ("a b c d e f g", "A B", "max_ratio"),
        ("A B", "a b c d e f g", "max_ratio"),
        ("a b c d e f g h", "a b c d e f g", ""),
        ("a b c d e f g h i", "a b c d e f g", "max_words"),
        ("a b c d e f g", "a b c d e f g h i", "max_words"),
    ],
)
def test_a_pair_at_a_limit_is_kept_and_one_beyond_it_is_dropped(src: str, tgt: str, reason: str):
    assert Filters(max_words=8, max_ratio=3.0).drop_reason(src, tgt) == reason
    assert not Filters().drop_reason("a " * 1000, "A")


def test_the_number_of_processes_and_the_size_of_blocks_change_nothing(tmp_path: Path, monkeypatch):
    odd = [
        ("a\ufeffb", "ß"),
        ("\u2028x  y\t", "ﬁ"),
        ("", "x"),
        ("Ａ b", "a\x85c"),
        ("e\u0301", "\u0301e"),
        ("語", "x"),
    ]
    pairs = [*odd, *made_up(60), *made_up(30), *odd, *((" ".join("abcdefg"), "x") for _ in range(3))]
    rules = {"drop_duplicates": True, "max_words": 6, "max_ratio": 5.0, "drop_copies": True}
    plan = plan_of(*two_files(tmp_path, pairs), **rules)
    expected = prepare_corpus(plan, tmp_path / "expected", workers=1), contents(tmp_path / "expected")
    for block, workers in ((1, 1), (7, 2)):
        monkeypatch.setattr("data.formats.BLOCK_PAIRS", block)
        out = tmp_path / str(workers)
        assert (prepare_corpus(plan, out, workers=workers), contents(out)) == expected
    assert expected[0]["dropped"]["duplicate"] > 10
    assert expected[0]["dropped"]["max_words"] >= 3


TEXT = st.text(st.sampled_from("abAB \u00a0\u2028\x85é"), min_size=1).filter(str.strip)


@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=60), seed=st.integers(0, 5))
@settings(deadline=None, max_examples=40)
def test_no_text_occurs_in_two_splits(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair], seed: int):
    pairs += made_up(6)
    manifest, out = prepare(tmp_path_factory.mktemp("any"), pairs, seed=seed, valid=3, test=2)
    divided = split_pairs(out)
    assert {name: len(split) for name, split in divided.items()} == manifest["splits"]
    assert (len(divided["valid"]), len(divided["test"])) == (3, 2)
    cleaned = Counter((src.strip(), tgt.strip()) for src, tgt in pairs)
    assert Counter(pair for split in divided.values() for pair in split) == cleaned
    for side in (0, 1):
        texts = {name: {letters_of(pair[side]) for pair in split} for name, split in divided.items()}
        assert sum(map(len, texts.values())) == len(set().union(*texts.values()))


def test_the_division_depends_on_texts_and_seed_alone(tmp_path: Path):
    pairs = made_up(300)
    first, one = prepare(tmp_path, pairs, "one")
    second, two = prepare(tmp_path, pairs, "two")
    other, _ = prepare(tmp_path, pairs, "three", seed=2)
    _, reverse = prepare(tmp_path, pairs[::-1], "four")
    assert (first, contents(one)) == (second, contents(two))
    assert first["outputs"] != other["outputs"]
    assert first["splits"] == other["splits"] == {"train": 240, "valid": 30, "test": 30}
    divided, backwards = split_pairs(one), split_pairs(reverse)
    assert {name: sorted(split) for name, split in divided.items()} == {
        name: sorted(split) for name, split in backwards.items()
    }
    valid = [pairs.index(pair) for pair in divided["valid"]]
    assert valid == sorted(valid)  # the lines of a split stay in order
    assert max(valid) - min(valid) > 150  # and are drawn from all over the corpus


def test_filters_count_what_they_drop_and_nothing_else_is_dropped(tmp_path: Path):
    pairs = made_up(40)
    odd = {
        "empty": [("", "leer"), ("\u00a0\ufeff", "leer")],
        "broken": [("con\x00trol", "Steuer"), ("lost \ufffd", "verloren")],
        "copy": [("copy of it", "copy of it")],
        "max_words": [("w " * 31, "W " * 31), ("我" * 31, "ich " * 30)],
        "max_ratio": [("one two three four", "eins")],
        "duplicate": [(pairs[3][0].upper(), pairs[3][1])],
        "overlap": [],
    }
    given_pairs = [*pairs, *(pair for dropped in odd.values() for pair in dropped)]
    rules = {
        "max_words": 30,
        "max_ratio": 3.0,
        "drop_copies": True,
        "drop_broken": True,
        "drop_duplicates": True,
    }
    manifest, out = prepare(tmp_path, given_pairs, **rules)
    assert manifest["dropped"] == {rule: len(dropped) for rule, dropped in odd.items()}
    assert manifest["read"] == len(given_pairs) == 9 + sum(manifest["splits"].values())
    assert sorted(pair for split in split_pairs(out).values() for pair in split) == sorted(pairs)
    manifest, _ = prepare(tmp_path, given_pairs, "all")
    assert {rule for rule, dropped in manifest["dropped"].items() if dropped} == {"empty"}


def test_bytes_that_are_not_utf8_are_an_error_or_dropped_by_name(tmp_path: Path):
    src, tgt = two_files(tmp_path, made_up(20))
    src.write_bytes(b"good\nb\xe4d\n" + src.read_bytes())
    tgt.write_bytes(b"gut\nschlecht\n" + tgt.read_bytes())
    refused(lambda: prepare_corpus(plan_of(src, tgt), tmp_path / "out"), "line 2: 0xe4 is not UTF-8")
    assert prepare_corpus(plan_of(src, tgt, drop_broken=True), tmp_path / "out")["dropped"]["broken"] == 1


@pytest.mark.parametrize(("chinese", "unspaced"), [(0, False), (9, False), (30, True)])
def test_what_the_first_pass_tells_of_the_words(tmp_path: Path, chinese: int, unspaced: bool):
    pairs = [*made_up(20), *((f"我{n}", "ich Ich") for n in range(chinese))]
    first_pass = run_first_pass(plan_of(*two_files(tmp_path, pairs)))
    assert (UNSPACED in {finding.form for finding in first_pass.forms}) == unspaced
    texts = " ".join(text.lower() for pair in pairs for text in pair)
    assert first_pass.distinct_words == len(set(texts.split()))


def test_the_manifest_matches_settings_and_files(tmp_path: Path):
    manifest, out = prepare(tmp_path, made_up(60), seed=7, max_words=8)
    assert json.loads((out / "manifest.json").read_text()) == manifest
    assert (manifest["settings"]["seed"], manifest["settings"]["max_words"]) == (7, 8)
    files = {entry["path"]: entry for entry in manifest["inputs"]}
    files |= {str(out / name): entry for name, entry in manifest["outputs"].items()}
    assert len(files) == 8
    for path, entry in files.items():
        content = Path(path).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())


def test_every_format_gives_the_same_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pairs = made_up(90)
    (a, b), (c, d) = (
        two_files(tmp_path, half, stem) for half, stem in ((pairs[:50], "one"), (pairs[50:], "two"))
    )
    forms = {
        "files": two_files(tmp_path, pairs, packing=".gz"),
        "table": [table(tmp_path / "t.tsv.gz", pairs), "--columns", "2,3", "--langs", "en,de"],
        "records": [records(tmp_path / "r.jsonl", pairs), "--fields", "translation.en,translation.de"],
        "several": [a, b, c, d],
        "sides": ["--src", a, "--src", c, "--tgt", b, "--tgt", d],
    }
    for name, arguments in forms.items():
        assert main(["data", "prepare", *map(str, arguments), "--out", str(tmp_path / name), "-q"]) == 0
    by_form = [split_pairs(tmp_path / name) for name in forms]
    assert all(splits == by_form[0] for splits in by_form)
    assert "train 72, valid 9, test 9" in capsys.readouterr().out


def test_a_divided_folder_keeps_its_test_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pairs, folder = made_up(60), tmp_path / "given"
    folder.mkdir()
    shared = [*pairs[55:], (pairs[52][0], "only the source"), ("nur das Ziel", pairs[57][1])]
    splits = {"train": pairs[:50] + shared, "valid": pairs[50:55], "test_a": pairs[55:]}
    for name, split in splits.items():
        two_files(folder, split, name)
    for more, train in (([], splits["train"]), (["--drop-overlap"], pairs[:50])):
        out = tmp_path / f"out{len(more)}"
        command = ["data", "prepare", str(folder), "--langs", "en,de", "--out", str(out), "-q", "--json"]
        assert main([*command, *more, "--dry-run"]) == 0
        preview = json.loads(capsys.readouterr().out)
        assert not out.exists()
        assert main([*command, *more]) == 0
        manifest = json.loads(capsys.readouterr().out)
        assert preview.items() <= manifest.items()
        assert split_pairs(out) == {**splits, "train": train}
        assert manifest["splits"] == {"train": len(train), "valid": 5, "test_a": 5}
        assert manifest["dropped"]["overlap"] == 57 - len(train)
        assert len(manifest["inputs"]) == 6
    shown = [*command[:-3], str(tmp_path / "shown"), "-q"]
    assert main(shown) == 0
    text = capsys.readouterr().out
    assert "src also in train" in text
    assert "--drop-overlap drops the training pairs" in text


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
    refused(
        lambda: prepare(tmp_path, made_up(4), max_words=1), "all 4 pairs were dropped (max_words 4", "relax"
    )
    blank = write(tmp_path / "blank", lines([" ", ""]))
    refused(lambda: prepare_corpus(plan_of(blank, blank), tmp_path / "out"), "empty 2")
    assert not list(tmp_path.glob("*out*"))


def test_standard_input_is_read_once_for_both_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    text = "".join(json.dumps({"s": src, "t": tgt}) + "\n" for src, tgt in made_up(60))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode()))))
    assert main(["data", "prepare", "-", "--fields", "s,t", "--out", str(tmp_path / "x")]) == 0
    printed = capsys.readouterr()
    assert "written  train 48, valid 6, test 6" in printed.out
    assert f"next: attnbench run {tmp_path / 'x'}/experiment.toml --out runs/x" in printed.err
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    inputs = [(entry["path"], entry["bytes"]) for entry in manifest["inputs"]]
    assert inputs == [("standard input", len(text.encode()))]
    assert {path.name for path in (tmp_path / "x").iterdir()} == {
        *manifest["outputs"],
        "experiment.toml",
        "manifest.json",
    }
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"a\tb\n\t\nc d\te\n"))))
    assert main(["data", "check", "-", "--columns", "2,1", "-q"]) == 1
    assert "a blank side                     1  line 2\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["0 files: expected source and target in turn", "--columns", "--fields"]),
        (["--columns", "1,2"], ["0 files: expected source and target in turn"]),
        (["a.en", "a.en"], ["a.en is both source and target"]),
        (["a.en", "a.de", "b.de", "b.en"], ["b.de and a.en are both sources", "put b.en first"]),
        (["a.en", "--src", "b"], ["--src names 1 files, --tgt 0, and 1 have no option"]),
        (["-", "-"], ["standard input is both source and target"]),
        (["a.jsonl"], ["--fields (none)", "translation.en"]),
        (["a.jsonl", "--fields", "en"], ["--fields en:"]),
        (["a.tsv", "--columns", "0,1"], ["--columns 0,1:", "from 1 on"]),
        (["a.tsv", "--columns", "1,2", "--fields", "a,b"], ["use one of them"]),
        (["a.en", "a.de", "--langs", "en,../de"], ["--langs en,../de:"]),
        (["a.en", "a.de", "--langs", "de,en"], ["contradicts the names of the files", "en and de"]),
        (["a.en", "a.de", "--drop-overlap"], ["--drop-overlap needs a folder"]),
        (["a.en", "gone.de"], ["gone.de: no such file"]),
        (["."], ["expected train files in two languages, found none", "--langs"]),
        ([".", "--columns", "1,2"], ["is a folder", "are for files"]),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
):
    monkeypatch.chdir(tmp_path)
    for stem in ("a", "b"):
        two_files(tmp_path, made_up(20), stem)
    before = sorted(tmp_path.iterdir())
    message = refusal("data", "prepare", *arguments, "--out", "new", "-q")
    assert all(part in message for part in parts), message
    assert sorted(tmp_path.iterdir()) == before
    assert "--out is missing" in refusal("data", "prepare", "a.en", "a.de")
    assert "already exists" in refusal("data", "prepare", "a.en", "a.de", "--out", "a.en")


@pytest.mark.parametrize("change", ["grown", "touched", "gone"])
def test_a_file_that_changes_between_the_passes_is_an_error(tmp_path: Path, change: str):
    src, tgt = two_files(tmp_path, made_up(50))

    def meddle(name: str, done: int, _total: int | None) -> None:
        """Change the source before the second pass."""
        if (name, done) == ("writing", 0):
            content = src.read_bytes()
            {
                "grown": lambda: src.write_bytes(content + b"one more\n"),
                "touched": lambda: os.utime(src, ns=(1, 1)),
                "gone": src.unlink,
            }[change]()

    message = f"{src}: no such file" if change == "gone" else f"{src} changed while it was being read"
    refused(lambda: prepare_corpus(plan_of(src, tgt), tmp_path / "out", progress=meddle), message)
    assert not list(tmp_path.glob("*out*"))
