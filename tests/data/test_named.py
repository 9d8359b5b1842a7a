"""Named corpora: from published files on a local server to a folder that ``read_corpus`` reads."""

import gzip
import hashlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpus import read_corpus
from data.named import CORPORA, MANIFEST, fetch
from data.named_corpora import Side, column, every_23rd, held_out, segments, tagged_lines, whole_lines
from tests.kits.http_server import Server, plain
from tests.kits.named_corpora import lines, sgm, stand_in, tags
from tests.kits.paths import SHARED

MULTI30K = SHARED / "multi30k"


LINES = 46  # every_23rd assigns two of them to valid


def texts_for(name: str, src: str, tgt: str) -> dict[tuple[str, str], bytes]:
    """Make sentences for each side of each part; each names its language, number and file."""
    texts = {}
    for part in CORPORA[name].parts(src, tgt):
        origin = part.src.member or part.src.remote.name
        for lang, side in ((src, part.src), (tgt, part.tgt)):
            make = {segments: sgm, tagged_lines: tags}.get(side.form, lines)
            text = make(*(f"{lang} {n} of {origin}" for n in range(LINES)))
            compressed = side.member.endswith(".gz")
            texts[side.remote.name, side.member] = gzip.compress(text) if compressed else text
    return texts


@pytest.fixture
def serve(server: Server, monkeypatch: pytest.MonkeyPatch):
    """Return a function that replaces a corpus by one on the local server."""

    def serve_corpus(name: str, texts: dict[tuple[str, str], bytes]) -> None:
        monkeypatch.setitem(CORPORA, name, stand_in(CORPORA[name], server, texts))

    return serve_corpus


PAIRS = [
    (corpus.name, pair)
    for corpus in CORPORA.values()
    for pair in corpus.languages
    if all(part.divide is not held_out for part in corpus.parts(*pair))  # these have tests of their own
]


@pytest.mark.parametrize(("name", "pair"), PAIRS)
def test_every_language_pair_becomes_a_corpus_folder(serve, tmp_path: Path, name: str, pair: tuple[str, str]):
    serve(name, texts_for(name, *pair))
    folder = fetch(name, *pair, tmp_path)
    corpus = read_corpus(folder, *pair)
    dummies = [("a", "b")] * LINES
    expected = Counter(split for part in CORPORA[name].parts(*pair) for split, *_ in part.divide(dummies))
    assert {split: len(pairs.src) for split, pairs in corpus.splits.items()} == expected
    for pairs in corpus.splits.values():
        for src, tgt in zip(pairs.src, pairs.tgt, strict=True):
            assert (src.split()[0], tgt.split()[0]) == pair
            assert src.split()[1:] == tgt.split()[1:]
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, "downloads"}
    assert set(expected) <= {"train", "valid"} | set(corpus.tests)


@pytest.mark.parametrize(("name", "pair"), PAIRS)
def test_every_side_is_of_its_language(name: str, pair: tuple[str, str]):
    for part in CORPORA[name].parts(*pair):
        for lang, side in zip(pair, (part.src, part.tgt), strict=True):
            text = side.member or side.remote.name
            assert text.removesuffix(".gz").removesuffix(".xml").removesuffix(".sgm").endswith(f".{lang}")


def test_both_directions_share_a_folder_and_nothing_is_fetched_twice(serve, server: Server, tmp_path: Path):
    serve("multi30k", texts_for("multi30k", "en", "de"))
    folder = fetch("multi30k", "", "", tmp_path)
    asked = len(server.asked)
    assert fetch("multi30k", "de", "en", tmp_path) == folder
    assert len(server.asked) == asked == 12


@pytest.mark.parametrize("name", ["train.en", MANIFEST])
@pytest.mark.parametrize("content", [b"cut\n", None])
def test_a_folder_that_was_changed_is_refused_and_not_touched(serve, tmp_path: Path, name: str, content):
    serve("multi30k", texts_for("multi30k", "en", "de"))
    folder = fetch("multi30k", "en", "de", tmp_path)
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    left = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    with pytest.raises(
        ValueError, match=rf"multi30k\.en-de: {name} is missing or has changed; move the folder"
    ):
        fetch("multi30k", "en", "de", tmp_path)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == left


def test_the_manifest_describes_corpus_and_downloads(serve, tmp_path: Path):
    serve("iwslt17", texts_for("iwslt17", "de", "en"))
    folder = fetch("iwslt17", "de", "en", tmp_path)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    assert manifest["languages"] == ["de", "en"]
    assert manifest["licence"] == CORPORA["iwslt17"].licence
    assert manifest["pairs"]["test_2017"] == LINES
    for where, hashes in ((tmp_path / "downloads" / "iwslt17", manifest["downloads"]), (folder, None)):
        known = hashes or {name: entry["sha256"] for name, entry in manifest["files"].items()}
        assert known
        for name, sha256 in known.items():
            assert hashlib.sha256((where / name).read_bytes()).hexdigest() == sha256


def test_pairs_with_a_blank_side_are_left_out_and_counted(
    serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    texts = texts_for("wmt14", "en", "de")
    archive = "training-parallel-europarl-v7.tgz"
    texts[archive, "training/europarl-v7.de-en.en"] = lines("a", "", "c\r", "d\u2028d", " ")
    texts[archive, "training/europarl-v7.de-en.de"] = lines("A", "B", "C", "D", "E")
    serve("wmt14", texts)
    caplog.set_level("INFO")
    folder = fetch("wmt14", "en", "de", tmp_path)
    train = read_corpus(folder, "en", "de").splits["train"]
    assert train.src[:3] == ("a", "c", "d\u2028d")
    assert train.tgt[:3] == ("A", "C", "D")
    assert f"train: {2 * LINES + 3} pairs, 2 with a blank side left out" in caplog.messages


@pytest.mark.parametrize(("en", "de"), [(("a",), ("A", "B")), (("a", "b"), ("A",))])
def test_sides_that_are_not_parallel_leave_no_corpus(serve, tmp_path: Path, en, de):
    texts = texts_for("multi30k", "en", "de") | {("val.en.gz", ""): lines(*en), ("val.de.gz", ""): lines(*de)}
    serve("multi30k", texts)
    with pytest.raises(ValueError, match=r"/downloads/multi30k/val\.(en|de)\.gz ends after 1 .*not parallel"):
        fetch("multi30k", "en", "de", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"downloads"}


def test_tatoeba_is_split_without_overlap_in_any_order(serve, tmp_path: Path):
    rows = [f"sentence {n // 2}\tSatz {n // 3}\tCC-BY 2.0 (France) #{n}" for n in range(3000)]
    found = []
    for run, given_rows in enumerate((rows, rows[::-1])):
        serve("tatoeba", {("deu-eng.zip", "deu.txt"): lines(*given_rows)})
        corpus = read_corpus(fetch("tatoeba", "de", "en", tmp_path / str(run)), "en", "de")
        found.append({split: sorted(zip(*pairs[:2], strict=True)) for split, pairs in corpus.splits.items()})
    assert found[0] == found[1]
    for side in (0, 1):
        texts = [{pair[side] for pair in pairs} for pairs in found[0].values()]
        assert sum(map(len, texts)) == len(set().union(*texts))
    assert 2900 < sum(map(len, found[0].values())) <= 3000
    assert all(10 < len(found[0][split]) < 60 for split in ("valid", "test"))


@given(st.lists(st.tuples(st.text("abc", max_size=2), st.text("xyz", max_size=2)), max_size=60))
def test_held_out_sides_never_overlap(pairs: list[tuple[str, str]]):
    divided = list(held_out(pairs))
    for side in (1, 2):
        of = [{row[side] for row in divided if row[0] == split} for split in ("train", "valid", "test")]
        assert sum(map(len, of)) == len(set().union(*of))
    assert {row[1:] for row in divided} <= set(pairs)
    targets = [tgt for _, tgt in pairs]
    if len(set(targets)) == len(targets):
        assert len(divided) == len(pairs)


def test_every_23rd_pair_validates():
    splits = [split for split, *_ in every_23rd([("a", "b")] * 70)]
    assert [number for number, split in enumerate(splits, start=1) if split == "valid"] == [23, 46, 69]


def test_multi30k_is_read_as_published(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch):
    """Uses the real files, as far as they are available, and their published digests."""
    if not MULTI30K.is_dir():
        pytest.skip("needs ../shared/data/multi30k")

    def served_locally(side: Side) -> Side:
        content = (MULTI30K / side.remote.name).read_bytes()
        url = server.at(f"/{side.remote.name}", plain, content)
        return replace(side, remote=replace(side.remote, mirrors=(url,)))

    multi30k = CORPORA["multi30k"]
    parts = [
        replace(part, src=served_locally(part.src), tgt=served_locally(part.tgt))
        for part in multi30k.parts("en", "de")
        if (MULTI30K / part.src.remote.name).exists()
    ]
    monkeypatch.setitem(CORPORA, "multi30k", replace(multi30k, parts=lambda src, tgt: tuple(parts)))
    found = read_corpus(fetch("multi30k", "en", "de", tmp_path), "en", "de")
    assert found.content_hash == read_corpus(MULTI30K, "en", "de").content_hash
    assert [len(pairs.src) for pairs in found.splits.values()] == [29_000, 1_014, 1_000]


def test_lines_of_tags_are_dropped(tmp_path: Path):
    path = tmp_path / "train.tags.de-en.de"
    path.write_bytes(tags("Grüße &amp; mehr", "", "a < b", "zwei\u2028Zeilen"))
    assert list(tagged_lines(path)) == ["Grüße &amp; mehr", "", "a < b", "zwei\u2028Zeilen"]


def test_columns_of_lines_with_tabs(tmp_path: Path):
    path = tmp_path / "deu.txt"
    path.write_bytes("\ufeffGo.\tGeh.\tCC-BY\r\nHi.\n\tHallo.\n".encode())
    assert list(whole_lines(path)) == ["Go.\tGeh.\tCC-BY", "Hi.", "\tHallo."]
    assert list(column(0)(path)) == ["Go.", "Hi.", ""]
    assert list(column(1)(path)) == ["Geh.", "", "Hallo."]


def test_official_test_sets_read_as_sacrebleu_reads_them(tmp_path: Path):
    """Entities, spaces and lines around segments are treated as in sacreBLEU's own reader."""
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    path = tmp_path / "set.sgm"
    path.write_bytes(sgm("Grüße &amp; mehr", "a  b\tc", "1 < 2 > 0", "", "a <b>c</b>"))
    twin = FakeSGMLDataset("twin", data=[], langpairs={})
    twin._convert_format(str(path), str(tmp_path / "twin.txt"))
    assert list(segments(path)) == (tmp_path / "twin.txt").read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize(
    ("form", "content", "words"),
    [
        (segments, b'<seg id="1">no end\n', "line 1: <seg> without </seg>"),
        (whole_lines, b"a\n\xff\n", "line 2: not UTF-8"),
    ],
)
def test_a_fault_in_a_published_text_names_its_line(tmp_path: Path, form, content: bytes, words: str):
    path = tmp_path / "text"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        list(form(path))


def test_a_truncated_gz_is_an_error(tmp_path: Path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000)[:-9])
    with pytest.raises(ValueError, match=r"not a whole \.gz file"):
        list(whole_lines(path))
