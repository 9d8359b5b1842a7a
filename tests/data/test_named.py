"""Named corpora: from published files on a local server to a folder that ``read_corpus`` reads."""

import gzip
import hashlib
import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.corpus import read_corpus
from data.named import BY_HASH, CORPORA, EVERY_23RD, MANIFEST, _divide, _read, fetch
from tests.kits.http_server import Server
from tests.kits.named_corpora import Texts, lines, stand_in
from tests.kits.paths import SHARED

MULTI30K = SHARED / "multi30k"
LINES = 46  # "every 23rd" assigns two of them to valid


def tags(*texts: str) -> bytes:
    head = "<url>http://x</url>\n<keywords>a, b</keywords>\n<title>A title</title>\n"
    return (head + "".join(f" {text} \n" for text in texts) + "</doc>\n").encode()


def sgm(*texts: str) -> bytes:
    body = "".join(f'<seg id="{i}"> {text}  </seg>\n' for i, text in enumerate(texts, start=1))
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<srcset setid="x">\n<doc docid="1" origlang="de">\n<p>\n'
    return f"{head}{body}</p>\n</doc>\n</srcset>\n".encode()


def texts_for(name: str, pair: tuple[str, str]) -> Texts:
    """Make sentences for each side of each part; each names its language, number and file."""
    texts = {}
    for part, *both in CORPORA[name].texts(pair):
        for lang, text in zip(pair, both, strict=True):
            make = {"segments": sgm, "tagged": tags}.get(part.format, lines)
            content = make(*(f"{lang} {n} of {part.split}" for n in range(LINES)))
            compressed = text.member.endswith(".gz")
            texts[text.remote.name, text.member] = gzip.compress(content) if compressed else content
    return texts


@pytest.fixture
def serve(server: Server, monkeypatch: pytest.MonkeyPatch):
    """Return a function that replaces a corpus by one on the local server."""

    def serve_corpus(name: str, texts: Texts) -> None:
        monkeypatch.setitem(CORPORA, name, stand_in(CORPORA[name], server, texts))

    return serve_corpus


PAIRS = [(name, pair) for name in CORPORA if name != "tatoeba" for pair in CORPORA[name].languages]


@pytest.mark.parametrize(("name", "pair"), PAIRS)
def test_every_language_pair_becomes_a_corpus_folder(serve, tmp_path: Path, name: str, pair: tuple[str, str]):
    serve(name, texts_for(name, pair))
    folder = fetch(name, *pair, tmp_path)
    corpus = read_corpus(folder, *pair)
    dummies = [("a", "b")] * LINES
    parts = [part for part, *_ in CORPORA[name].texts(pair)]
    expected = Counter(split for part in parts for split, *_ in _divide(part.split, dummies))
    assert {split: len(pairs.src) for split, pairs in corpus.splits.items()} == expected
    for pairs in corpus.splits.values():
        for src, tgt in zip(pairs.src, pairs.tgt, strict=True):
            assert (src.split()[0], tgt.split()[0]) == pair
            assert src.split()[1:] == tgt.split()[1:]
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, "downloads"}


@pytest.mark.parametrize(("name", "pair"), PAIRS)
def test_every_side_is_of_its_language(name: str, pair: tuple[str, str]):
    for _, *both in CORPORA[name].texts(pair):
        for lang, text in zip(pair, both, strict=True):
            path = text.member or text.remote.name
            assert path.removesuffix(".gz").removesuffix(".xml").removesuffix(".sgm").endswith(f".{lang}")


def test_both_directions_share_a_folder_which_is_verified(serve, server: Server, tmp_path: Path):
    serve("multi30k", texts_for("multi30k", ("en", "de")))
    folder = fetch("multi30k", "en", "de", tmp_path)
    asked = len(server.asked)
    assert fetch("multi30k", "de", "en", tmp_path) == fetch("multi30k", root=tmp_path) == folder
    assert len(server.asked) == asked
    (folder / "train.de").write_text("mine\n")
    with pytest.raises(ValueError, match=r"train\.de is missing or has changed; move the folder away"):
        fetch("multi30k", root=tmp_path)
    assert (folder / "train.de").read_text() == "mine\n"
    (folder / MANIFEST).write_text("{}")
    with pytest.raises(ValueError, match=r"corpus\.json is missing or has changed"):
        fetch("multi30k", root=tmp_path)


def test_the_manifest_describes_corpus_and_downloads(serve, tmp_path: Path):
    serve("iwslt17", texts_for("iwslt17", ("de", "en")))
    folder = fetch("iwslt17", "de", "en", tmp_path)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    assert manifest["languages"] == ["de", "en"]
    assert manifest["licence"] == CORPORA["iwslt17"].licence
    assert manifest["pairs"]["test_2017"] == LINES
    files = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    for where, known in ((tmp_path / "downloads" / "iwslt17", manifest["downloads"]), (folder, files)):
        assert known
        for name, sha256 in known.items():
            assert hashlib.sha256((where / name).read_bytes()).hexdigest() == sha256


def test_pairs_with_a_blank_side_are_left_out_and_counted(serve, tmp_path: Path, caplog):
    texts = texts_for("wmt14", ("en", "de"))
    archive = "training-parallel-europarl-v7.tgz"
    texts[archive, "training/europarl-v7.de-en.en"] = lines("a", "", "c\r", "d\u2028d", " ")
    texts[archive, "training/europarl-v7.de-en.de"] = lines("A", "B", "C", "D", "E")
    serve("wmt14", texts)
    caplog.set_level("INFO")
    train = read_corpus(fetch("wmt14", "en", "de", tmp_path), "en", "de").splits["train"]
    assert train.src[:3] == ("a", "c", "d\u2028d")
    assert train.tgt[:3] == ("A", "C", "D")
    assert f"train: {2 * LINES + 3} pairs, 2 with a blank side left out" in caplog.messages


@pytest.mark.parametrize(
    ("en", "message"),
    [
        (b"a\n", r"val\.en\.gz ends after 1 .*not parallel"),
        (b"a\nb\nc\n", r"val\.de\.gz ends after 2 .*not parallel"),
        (b"a\n\xff\n", r"val\.en\.gz, line 2, byte 1: 0xff is not UTF-8"),
    ],
)
def test_a_fault_in_a_published_text_leaves_no_corpus(serve, tmp_path: Path, en: bytes, message: str):
    texts = texts_for("multi30k", ("en", "de"))
    serve("multi30k", texts | {("val.en.gz", ""): en, ("val.de.gz", ""): b"A\nB\n"})
    with pytest.raises(ValueError, match=f"/downloads/multi30k/{message}"):
        fetch("multi30k", "en", "de", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"downloads"}


def test_a_corpus_without_splits_is_divided_by_its_sources_alone(serve, tmp_path: Path):
    rows = [f"a {n % 1000}\tb {n}\tCC-BY" for n in range(3000)]
    found = []
    for run, given_rows in enumerate((rows, rows[::-1])):
        serve("tatoeba", {("deu-eng.zip", "deu.txt"): lines(*given_rows)})
        corpus = read_corpus(fetch("tatoeba", "de", "en", tmp_path / str(run)), "en", "de")
        found.append({split: sorted(zip(*pairs[:2], strict=True)) for split, pairs in corpus.splits.items()})
    assert found[0] == found[1]
    assert all(10 < len(found[0][split]) < 60 for split in ("valid", "test"))
    assert sum(map(len, found[0].values())) == 3000


@given(st.lists(st.tuples(st.text("abc", max_size=2), st.text("xyz", max_size=2)), max_size=60))
def test_held_out_sides_never_overlap(pairs: list[tuple[str, str]]):
    divided = list(_divide(BY_HASH, pairs))
    for side in (1, 2):
        of = [{row[side] for row in divided if row[0] == split} for split in ("train", "valid", "test")]
        assert sum(map(len, of)) == len(set().union(*of))
    assert {row[1:] for row in divided} <= set(pairs)
    targets = [tgt for _, tgt in pairs]
    if len(set(targets)) == len(targets):
        assert len(divided) == len(pairs)


def test_every_23rd_pair_validates():
    splits = [split for split, *_ in _divide(EVERY_23RD, [("a", "b")] * 70)]
    assert [number for number, split in enumerate(splits, start=1) if split == "valid"] == [23, 46, 69]


def test_multi30k_is_read_as_published(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Uses the real files, as far as they are available, and their published digests."""
    if not MULTI30K.is_dir():
        pytest.skip("needs ../shared/data/multi30k")
    corpus = CORPORA["multi30k"]
    there = {path.name: gzip.decompress(path.read_bytes()) for path in MULTI30K.glob("*.gz")}
    for name in there:
        assert corpus.files[name].hash.endswith(hashlib.sha256((MULTI30K / name).read_bytes()).hexdigest())
    parts = tuple(part for part in corpus.parts if part.text.format(lang="en") in there)
    monkeypatch.setitem(CORPORA, "multi30k", msgspec.structs.replace(corpus, parts=parts))
    serve("multi30k", {(name, ""): content for name, content in there.items()})
    found = read_corpus(fetch("multi30k", "en", "de", tmp_path), "en", "de")
    assert found.content_hash == read_corpus(MULTI30K, "en", "de").content_hash


@pytest.mark.parametrize(
    ("format_", "column", "content", "expected"),
    [
        ("tagged", 0, tags("Grüße &amp; mehr", "", "a < b"), ["Grüße &amp; mehr", "", "a < b"]),
        ("columns", 0, "\ufeffGo.\tGeh.\tCC\r\nHi.\n\tHallo.\n".encode(), ["Go.", "Hi.", ""]),
        ("columns", 1, "\ufeffGo.\tGeh.\tCC\r\nHi.\n\tHallo.\n".encode(), ["Geh.", "", "Hallo."]),
    ],
)
def test_formats_of_published_texts(tmp_path: Path, format_: str, column: int, content: bytes, expected):
    (tmp_path / "text").write_bytes(content)
    assert list(_read(tmp_path / "text", format_, column)) == expected


def test_official_test_sets_read_as_sacrebleu_reads_them(tmp_path: Path):
    """Entities, spaces and lines around segments are treated as in sacreBLEU's own reader."""
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    path = tmp_path / "set.sgm"
    path.write_bytes(sgm("Grüße &amp; mehr", "a  b\tc", "1 < 2 > 0", "", "a <b>c</b>"))
    twin = FakeSGMLDataset("twin", data=[], langpairs={})
    twin._convert_format(str(path), str(tmp_path / "twin.txt"))
    assert list(_read(path, "segments", 0)) == (tmp_path / "twin.txt").read_text("utf-8").split("\n")[:-1]
