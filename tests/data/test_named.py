"""Named corpora and downloads: from published files on a local server to a folder, whatever servers do."""

import gzip
import hashlib
import json
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import named
from data.corpus import read_corpus
from data.download import Remote, download, extract
from data.locks import LOCK
from data.named import BY_HASH, CORPORA, EVERY_23RD, MANIFEST, _divide, _read, fetch, read_catalogue
from tests.kits.web import (
    CONTENT,
    SHA256,
    Answer,
    Handler,
    Server,
    Texts,
    lines,
    plain,
    published,
    stand_in,
    status,
)

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


def test_two_corpora_of_one_name_are_refused():
    text = Path(named.__file__).with_name("corpora.toml").read_text("utf-8")
    assert read_catalogue(text) == CORPORA
    with pytest.raises(ValueError, match=r"^corpora.toml: several corpora are named 'multi30k': rename all"):
        read_catalogue(text.replace('name = "tatoeba"', 'name = "multi30k"'))


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


def test_both_directions_share_a_folder(serve, server: Server, tmp_path: Path):
    serve("multi30k", texts_for("multi30k", ("en", "de")))
    folder = fetch("multi30k", "en", "de", tmp_path)
    asked = len(server.asked)
    assert fetch("multi30k", "de", "en", tmp_path) == fetch("multi30k", root=tmp_path) == folder
    assert len(server.asked) == asked


def test_one_process_at_a_time_downloads(serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    serve("multi30k", texts_for("multi30k", ("en", "de")))
    lock, locked = tmp_path / "downloads" / "multi30k" / LOCK, set[bool]()
    monkeypatch.setattr(
        named, "download", lambda *args, **options: locked.add(lock.is_file()) or download(*args, **options)
    )
    fetch("multi30k", root=tmp_path)
    assert locked == {True}
    assert not lock.exists()


def test_the_manifest_describes_corpus_and_downloads(serve, tmp_path: Path):
    serve("iwslt17", texts_for("iwslt17", ("de", "en")))
    folder = fetch("iwslt17", "de", "en", tmp_path)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    assert manifest["languages"] == ["de", "en"]
    assert manifest["licence"] == CORPORA["iwslt17"].licence
    assert manifest["pairs"]["test_2017"] == LINES
    files = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    for where, digests in ((tmp_path / "downloads" / "iwslt17", manifest["downloads"]), (folder, files)):
        assert digests
        for name, sha256 in digests.items():
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
    assert f"train: {2 * LINES + 3} pairs (2 with a blank side were left out)" in caplog.messages


@pytest.mark.parametrize(
    ("en", "message"),
    [
        (b"a\n", r"val\.en\.gz has 1 lines, but "),
        (b"a\n\xff\n", r"val\.en\.gz, line 2: 0xff is not UTF-8"),
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
    divisions = []
    for run, given_rows in enumerate((rows, rows[::-1])):
        serve("tatoeba", {("deu-eng.zip", "deu.txt"): lines(*given_rows)})
        corpus = read_corpus(fetch("tatoeba", "de", "en", tmp_path / str(run)), "en", "de")
        divisions.append(
            {split: sorted(zip(*pairs[:2], strict=True)) for split, pairs in corpus.splits.items()}
        )
    assert divisions[0] == divisions[1]
    assert all(10 < len(divisions[0][split]) < 60 for split in ("valid", "test"))
    assert sum(map(len, divisions[0].values())) == 3000


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


MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
TIMEOUT_S = 0.5
HALF = len(CONTENT) // 2


def ignoring_ranges(handler: Handler, content: bytes) -> None:
    handler.wfile.write(handler.start(content, ranges=False))


def tampering(handler: Handler, content: bytes) -> None:
    body = bytearray(handler.start(content))
    body[len(body) // 2] ^= 1
    handler.wfile.write(body)


def cut_after(size: int, then: Callable[[Handler], object] = lambda handler: None) -> Answer:
    """Promises everything, sends ``size`` bytes of what was asked for, and hangs up."""

    def answer(handler: Handler, content: bytes) -> None:
        handler.wfile.write(handler.start(content)[:size])
        then(handler)

    return answer


def stalling_after(size: int) -> Answer:
    """Sends ``size`` bytes and then nothing, without hanging up."""
    return cut_after(size, lambda handler: handler.server.released.wait(20))


def first(answer: Answer, then: Answer) -> Answer:
    """One manner for the first question, another for all later ones."""
    left = [answer]
    return lambda handler, content: (left.pop() if left else then)(handler, content)


def hanging_up(handler: Handler, content: bytes) -> None:
    handler.close_connection = True


def fetched(remote: Remote, folder: Path) -> bytes:
    return download(remote, folder, timeout_s=TIMEOUT_S).read_bytes()


def refused(remote: Remote, folder: Path) -> str:
    """The error of a download that leaves no file."""
    with pytest.raises(OSError, match="download failed") as caught:
        fetched(remote, folder)
    assert not (folder / remote.name).exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("digest", [SHA256, MD5, ""])
def test_a_download_is_complete_and_leaves_no_other_file(server: Server, tmp_path: Path, digest: str):
    seen: list[tuple[str, int, int | None]] = []
    remote = server.remote(server.at("/f", plain), server.at("/2", plain), digest=digest)
    path = download(remote, tmp_path, progress=lambda *call: seen.append(call))
    assert path.read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]
    counts = [done for _, done, _ in seen]
    assert counts == sorted(counts)
    assert (seen[0], seen[-1]) == tuple(("file.bin", n, len(CONTENT)) for n in (0, len(CONTENT)))
    assert fetched(remote, tmp_path) == CONTENT  # without asking a server
    assert [asked.path for asked in server.asked] == ["/f"]
    path.write_bytes(CONTENT[:-1])
    if digest:
        with pytest.raises(ValueError, match=r"file\.bin: \w+ is [0-9a-f]{32,}, expected .*delete it"):
            fetched(remote, tmp_path)


@pytest.mark.parametrize(
    ("answer", "ranges"),
    [
        (cut_after(60_000), [None, "bytes=60000-"]),
        (first(stalling_after(5000), then=plain), [None, "bytes=5000-"]),
    ],
)
def test_a_slow_or_broken_transfer_is_completed(server: Server, tmp_path: Path, answer: Answer, ranges):
    assert fetched(server.remote(server.at("/f", answer), digest=SHA256), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == ranges


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (status(404), "HTTP Error 404: Not Found"),
        (hanging_up, "Remote end closed connection"),
        (cut_after(0), f"transfer ended after 0 of {len(CONTENT):,} bytes"),
        (stalling_after(0), "timed out"),
        (tampering, "sha256 is"),
    ],
)
def test_a_fault_is_reported_and_the_next_mirror_tried(server: Server, tmp_path: Path, answer, words: str):
    bad = server.at("/f", answer)
    message = refused(server.remote(bad, digest=SHA256), tmp_path)
    assert f"{bad}: {words}" in message
    assert f"save the file as {tmp_path / 'file.bin'} yourself" in message
    assert (tmp_path / "file.bin.part").stat().st_size == 0
    good = server.at("/good", plain)
    assert fetched(server.remote(bad, good, digest=SHA256), tmp_path) == CONTENT


@pytest.mark.parametrize(
    ("answer", "beginning", "digest", "ranges"),
    [
        (plain, CONTENT[:HALF], SHA256, [f"bytes={HALF}-"]),
        (plain, CONTENT[:HALF], "", [None]),  # it may belong to another version
        (plain, CONTENT[::-1][:HALF], SHA256, [f"bytes={HALF}-", None]),
        (plain, CONTENT + b"more", SHA256, [f"bytes={len(CONTENT) + 4}-", None]),
        (ignoring_ranges, CONTENT[:HALF], SHA256, [f"bytes={HALF}-"]),
    ],
)
def test_only_the_rest_is_downloaded(
    server: Server, tmp_path: Path, answer: Answer, beginning: bytes, digest: str, ranges: list[str | None]
):
    (tmp_path / "file.bin.part").write_bytes(beginning)
    assert fetched(server.remote(server.at("/f", answer), digest=digest), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == ranges


def test_plain_http_needs_a_digest(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("data.download.THIS_MACHINE", ())
    url = server.at("/f", plain)
    assert "plain http" in refused(server.remote(url), tmp_path)
    assert fetched(server.remote(url, digest=SHA256), tmp_path) == CONTENT


def test_a_full_disk_is_reported_and_the_partial_file_kept(server: Server, tmp_path: Path):
    """A limit on the file size simulates the full disk."""
    remote = server.remote(server.at("/f", plain), digest=SHA256)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, hard))
    try:
        with pytest.raises(OSError, match=r"download failed .*File too large"):
            fetched(remote, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    size = (tmp_path / "file.bin.part").stat().st_size
    assert size > 0
    assert fetched(remote, tmp_path) == CONTENT
    assert server.asked[-1].range == f"bytes={size}-"


TEXT = "Grüße\n".encode() * 5000
NAMES = pytest.mark.parametrize("name", ["a.tgz", "a.zip"])


def pack(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    (folder / name).write_bytes(published(files, name))
    return folder / name


@NAMES
def test_only_wanted_members_are_written(tmp_path: Path, name: str):
    archive = pack(tmp_path, name, {"de/x.txt": TEXT, "y.txt": b"y", "../escaped": b"bad", "other": b"bad"})
    extract(archive, ["de/x.txt", "y.txt"], tmp_path / "out")
    files_there = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert files_there == {Path(archive.name), Path("out/de/x.txt"), Path("out/y.txt")}
    assert (tmp_path / "out" / "de" / "x.txt").read_bytes() == TEXT


@NAMES
@pytest.mark.parametrize("damage", ["cut", "altered", "other"])
def test_a_damaged_archive_is_an_error(tmp_path: Path, name: str, damage: str):
    archive = pack(tmp_path, name, {"x": bytes(range(256)) * 400 + TEXT})
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    if damage != "other":
        archive.write_bytes(content[: len(content) // 3] if damage == "cut" else content)
    expected = r"does not contain y, z" if damage == "other" else r": damaged archive \(.*download it again"
    with pytest.raises(ValueError, match=expected):
        extract(archive, ["z", "y"] if damage == "other" else ["x"], tmp_path)
