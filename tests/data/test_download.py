"""Downloads from faulty servers, interrupted or not: the right file, or one line; and archives."""

import hashlib
import io
import resource
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from data.download import Remote, download, extract
from tests.kits.http_server import CONTENT, SHA256, Answer, Handler, Server, plain, status

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


def throttled(pause_s: float, chunk: int = 4096) -> Answer:
    def answer(handler: Handler, content: bytes) -> None:
        body = handler.start(content)
        for start in range(0, len(body), chunk):
            handler.wfile.write(body[start : start + chunk])
            time.sleep(pause_s)

    return answer


def first(answer: Answer, then: Answer) -> Answer:
    """One manner for the first question, another for all later ones."""
    left = [answer]
    return lambda handler, content: (left.pop() if left else then)(handler, content)


def redirect(path: str) -> Answer:
    def answer(handler: Handler, content: bytes) -> None:
        handler.send_response(302)
        handler.send_header("Location", path)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def without_length(handler: Handler, content: bytes) -> None:
    """Ends where it hangs up."""
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(content)


def wrong_part(handler: Handler, content: bytes) -> None:
    """Answers every question about a part with the file's beginning, and calls it a part."""
    handler.send_response(206 if handler.headers["Range"] else 200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def hanging_up(handler: Handler, content: bytes) -> None:
    handler.close_connection = True


def fetched(remote: Remote, folder: Path) -> bytes:
    return download(remote, folder, timeout_s=TIMEOUT_S).read_bytes()


def refused(remote: Remote, folder: Path) -> str:
    """The error of a download that leaves no file."""
    with pytest.raises(OSError, match="no mirror has the right file") as caught:
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
    assert [each.name for each in tmp_path.iterdir()] == ["file.bin"]
    counts = [done for _, done, _ in seen]
    assert counts == sorted(counts)
    assert (seen[0], seen[-1]) == tuple(("file.bin", n, len(CONTENT)) for n in (0, len(CONTENT)))
    assert fetched(remote, tmp_path) == CONTENT  # which asks nobody
    assert [asked.path for asked in server.asked] == ["/f"]
    path.write_bytes(CONTENT[:-1])
    if digest:
        with pytest.raises(ValueError, match=r"file\.bin: its \w+ is [0-9a-f]{32,}, not .*delete it"):
            fetched(remote, tmp_path)


@pytest.mark.parametrize(
    ("answer", "ranges"),
    [
        (cut_after(40_000), [None, "bytes=40000-", "bytes=80000-"]),
        (first(stalling_after(5000), then=plain), [None, "bytes=5000-"]),
        (throttled(TIMEOUT_S / 10), [None]),  # as a whole longer than the timeout
    ],
)
def test_a_slow_or_broken_transfer_is_completed(server: Server, tmp_path: Path, answer: Answer, ranges):
    assert fetched(server.remote(server.at("/f", answer), digest=SHA256), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == ranges


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (status(404), "404 Not Found"),
        (status(500), "500 Internal Server Error"),
        (redirect("/f"), "302 The HTTP server returned a redirect error"),
        (redirect("file:///etc/hostname"), "302 Found - Redirection to url"),
        (hanging_up, "Remote end closed connection"),
        (cut_after(0), f"stops after 0 of {len(CONTENT):,} bytes"),
        (stalling_after(0), f"falls silent after 0 of {len(CONTENT):,} bytes"),
        (tampering, "its sha256 is"),
    ],
)
def test_a_fault_is_reported_and_the_next_mirror_tried(server: Server, tmp_path: Path, answer, words: str):
    bad = server.at("/f", answer)
    message = refused(server.remote(bad, digest=SHA256), tmp_path)
    assert f"{bad}: {words}" in message
    assert f"put it at {tmp_path / 'file.bin'} yourself" in message
    assert (tmp_path / "file.bin.part").stat().st_size == 0
    good = server.at("/good", redirect("/there"))
    server.at("/there", plain)
    assert fetched(server.remote(bad, good, digest=SHA256), tmp_path) == CONTENT


def test_a_file_of_unknown_length_needs_a_digest(server: Server, tmp_path: Path):
    url = server.at("/f", without_length)
    assert "does not state the length" in refused(server.remote(url), tmp_path)
    assert fetched(server.remote(url, digest=SHA256), tmp_path) == CONTENT


@pytest.mark.parametrize(
    ("answer", "beginning", "digest", "ranges"),
    [
        (plain, CONTENT[:HALF], SHA256, [f"bytes={HALF}-"]),
        (plain, CONTENT[:HALF], "", [None]),  # it may belong to another version
        (plain, CONTENT[::-1][:HALF], SHA256, [f"bytes={HALF}-", None]),
        (plain, CONTENT, SHA256, [f"bytes={len(CONTENT)}-"]),
        (plain, CONTENT + b"more", SHA256, [f"bytes={len(CONTENT) + 4}-", None]),
        (ignoring_ranges, CONTENT[:HALF], SHA256, [f"bytes={HALF}-"]),
        (wrong_part, CONTENT[:HALF], SHA256, [f"bytes={HALF}-", None]),
    ],
)
def test_only_the_rest_is_downloaded(
    server: Server, tmp_path: Path, answer: Answer, beginning: bytes, digest: str, ranges: list[str | None]
):
    (tmp_path / "file.bin.part").write_bytes(beginning)
    assert fetched(server.remote(server.at("/f", answer), digest=digest), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == ranges


def test_two_processes_do_not_write_one_file(server: Server, tmp_path: Path):
    remote = server.remote(server.at("/f", plain), digest=SHA256)

    def interfere(name: str, done: int, total: int | None) -> None:
        with pytest.raises(OSError, match="another process is downloading this file"):
            fetched(remote, tmp_path)

    assert download(remote, tmp_path, progress=interfere).read_bytes() == CONTENT


def test_a_full_disk_is_reported_and_the_partial_file_kept(server: Server, tmp_path: Path):
    """A limit on the file size simulates the full disk."""
    remote = server.remote(server.at("/f", plain), digest=SHA256)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            fetched(remote, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    part = tmp_path / "file.bin.part"
    assert caught.value.filename == str(part)
    size = part.stat().st_size
    assert size > 0
    assert fetched(remote, tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == [None, f"bytes={size}-"]


TEXT = "Grüße\n".encode() * 5000
Pack = Callable[[Path, dict[str, bytes]], Path]


def pack_tar(path: Path, files: dict[str, bytes]) -> Path:
    path = path.with_suffix(".tgz")
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def pack_zip(path: Path, files: dict[str, bytes]) -> Path:
    path = path.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return path


packers = pytest.mark.parametrize("pack", [pack_tar, pack_zip])


@packers
def test_only_wanted_members_are_written_and_only_to_the_given_paths(tmp_path: Path, pack: Pack):
    escaping = ("../escaped", f"{tmp_path}/escaped", "a/../../escaped")
    archive = pack(tmp_path / "a", {"de/x.txt": TEXT, "y.txt": b"y", **dict.fromkeys(escaping, b"bad")})
    wanted = {"de/x.txt": tmp_path / "out" / "1", "y.txt": tmp_path / "out" / "deep" / "2"}
    wanted[escaping[0]] = tmp_path / "out" / "3"
    extract(archive, wanted)
    assert [path.read_bytes() for path in wanted.values()] == [TEXT, b"y", b"bad"]
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {archive, *wanted.values()}
    assert not (tmp_path.parent / "escaped").exists()


def test_a_link_in_a_tar_is_no_file(tmp_path: Path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        member = tarfile.TarInfo("text")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(member)
    with pytest.raises(ValueError, match=r"a\.tar holds no file text"):
        extract(tmp_path / "a.tar", {"text": tmp_path / "out"})
    assert not (tmp_path / "out").exists()


@packers
@pytest.mark.parametrize("damage", ["cut", "altered", "other"])
def test_a_damaged_archive_is_an_error(tmp_path: Path, pack: Pack, damage: str):
    archive = pack(tmp_path / "a", {"x": bytes(range(256)) * 400 + TEXT})
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    if damage != "other":
        archive.write_bytes(content[: len(content) // 3] if damage == "cut" else content)
    expected = r"holds no file y, z" if damage == "other" else r": damaged archive \(.*download it again"
    with pytest.raises(ValueError, match=expected):
        extract(
            archive,
            {"z": tmp_path / "z", "y": tmp_path / "y"} if damage == "other" else {"x": tmp_path / "x"},
        )
