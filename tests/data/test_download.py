"""Downloads from faulty servers, interrupted or not: the right file, or an error of one line."""

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data.download import RECORD, Remote, download
from tests.kits.http_server import (
    CONTENT,
    SHA256,
    TIMEOUT_S,
    Server,
    cut_after,
    fetched,
    first,
    hanging_up,
    ignoring_ranges,
    plain,
    redirect,
    refused,
    serving,
    stalling_after,
    status,
    tampering,
    throttled,
    without_length,
    wrong_part,
)

MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


@pytest.mark.parametrize("digest", [SHA256, MD5, ""])
def test_a_download_is_complete_and_leaves_no_other_file(server: Server, tmp_path: Path, digest: str):
    assert fetched(server.remote(server.at("/f", plain), digest=digest), tmp_path) == CONTENT
    assert {path.name for path in tmp_path.iterdir()} == {"file.bin"} | (set() if digest else {RECORD})


def test_an_existing_file_is_verified_and_not_downloaded_again(server: Server, tmp_path: Path):
    remote = server.remote(server.at("/f", plain), digest=SHA256)
    fetched(remote, tmp_path)
    fetched(remote, tmp_path)
    assert len(server.asked) == 1
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match=r"file\.bin: its sha256 is [0-9a-f]{64}, not .*delete it"):
        fetched(remote, tmp_path)


def test_progress_ends_with_the_whole(server: Server, tmp_path: Path):
    seen: list[tuple[str, int, int | None]] = []
    remote = server.remote(server.at("/f", plain), digest=SHA256)
    download(remote, tmp_path, progress=lambda *call: seen.append(call))
    counts = [done for _, done, _ in seen]
    assert counts == sorted(counts)
    assert seen[0] == ("file.bin", 0, len(CONTENT))
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))


def test_a_truncated_response_is_resumed(server: Server, tmp_path: Path):
    size = len(CONTENT) // 3 + 1
    assert fetched(server.remote(server.at("/f", cut_after(size)), digest=SHA256), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == [None, f"bytes={size}-", f"bytes={2 * size}-"]


def test_a_mirror_without_progress_is_given_up(server: Server, tmp_path: Path):
    message = refused(server.remote(server.at("/f", cut_after(0)), digest=SHA256), tmp_path)
    assert f"/f: stops after 0 of {len(CONTENT):,} bytes" in message
    assert len(server.asked) == 1
    assert f"put it at {tmp_path / 'file.bin'} yourself" in message


def test_a_file_with_another_digest_is_rejected_and_deleted(server: Server, tmp_path: Path):
    message = refused(server.remote(server.at("/f", tampering), digest=SHA256), tmp_path)
    assert "its sha256 is" in message
    assert SHA256.removeprefix("sha256:") in message
    assert (tmp_path / "file.bin.part").stat().st_size == 0


def test_a_server_that_times_out_is_given_up(server: Server, tmp_path: Path):
    message = refused(server.remote(server.at("/f", stalling_after(0)), digest=SHA256), tmp_path)
    assert f"falls silent after 0 of {len(CONTENT):,} bytes" in message


def test_a_timeout_in_the_middle_is_resumed(server: Server, tmp_path: Path):
    url = server.at("/f", first(stalling_after(5000), then=plain))
    assert fetched(server.remote(url, digest=SHA256), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == [None, "bytes=5000-"]


def test_a_slow_server_is_no_timeout(server: Server, tmp_path: Path):
    """The download as a whole takes longer than the timeout."""
    answer = throttled(TIMEOUT_S / 10)
    assert fetched(server.remote(server.at("/f", answer), digest=SHA256), tmp_path) == CONTENT
    assert len(server.asked) == 1


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirection_is_followed(server: Server, tmp_path: Path, code: int):
    server.at("/there", plain)
    url = server.at("/here", redirect("/there", code))
    assert fetched(server.remote(url, digest=SHA256), tmp_path) == CONTENT


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (status(404), "404 Not Found"),
        (status(500), "500 Internal Server Error"),
        (redirect("/f"), "302 The HTTP server returned a redirect error"),
        (redirect("file:///etc/hostname"), "302 Found - Redirection to url"),
        (hanging_up, "Remote end closed connection"),
    ],
)
def test_an_error_is_reported_and_the_next_mirror_tried(server: Server, tmp_path: Path, answer, words: str):
    bad = server.at("/f", answer)
    assert f"{bad}: {words}" in refused(server.remote(bad, digest=SHA256), tmp_path)
    good = server.at("/good", plain)
    assert fetched(server.remote(bad, good, digest=SHA256), tmp_path) == CONTENT


def test_mirrors_are_tried_in_order(server: Server, tmp_path: Path):
    first, second = server.at("/1", plain), server.at("/2", plain)
    fetched(server.remote(first, second, digest=SHA256), tmp_path)
    assert [asked.path for asked in server.asked] == ["/1"]


def test_no_server_at_all(server: Server, tmp_path: Path):
    nobody = f"http://127.0.0.1:{free_port()}/f"
    assert "Connection refused" in refused(server.remote(nobody, digest=SHA256), tmp_path)


def free_port() -> int:
    """Return a port that no server listens on."""
    with serving() as gone:
        return gone.server_port


def test_a_wrong_length_is_rejected_before_the_download(server: Server, tmp_path: Path):
    url = server.at("/f", plain)
    remote = Remote(name="file.bin", mirrors=(url,), digest=SHA256, size_bytes=7)
    assert f"its file has {len(CONTENT):,} bytes, the right one 7" in refused(remote, tmp_path)
    assert (tmp_path / "file.bin.part").stat().st_size == 0


def test_a_file_of_unknown_length_needs_a_digest(server: Server, tmp_path: Path):
    url = server.at("/f", without_length)
    assert "does not state the length" in refused(server.remote(url), tmp_path)
    assert fetched(server.remote(url, digest=SHA256), tmp_path) == CONTENT


def test_the_first_download_records_an_unpublished_digest(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    remote = server.remote(server.at("/f", plain))
    download(remote, tmp_path)
    assert any("is recorded" in line and SHA256 in line for line in caplog.messages)
    (tmp_path / "file.bin").unlink()
    changed = server.remote(server.at("/f", tampering))
    assert f"remove its line from {tmp_path / RECORD}" in refused(changed, tmp_path)
    (tmp_path / RECORD).unlink()
    assert fetched(changed, tmp_path) != CONTENT


def test_a_damaged_record_is_an_error(server: Server, tmp_path: Path):
    (tmp_path / RECORD).write_text('{"file.bin": 7}')
    with pytest.raises(ValueError, match=r"sha256\.json: damaged record"):
        fetched(server.remote(server.at("/f", plain)), tmp_path)


def test_a_file_downloaded_by_hand_is_accepted_and_recorded(server: Server, tmp_path: Path):
    (tmp_path / "file.bin").write_bytes(b"mine")
    assert fetched(server.remote("http://127.0.0.1:9/none"), tmp_path) == b"mine"
    assert hashlib.sha256(b"mine").hexdigest() in (tmp_path / RECORD).read_text()


OTHER = CONTENT[::-1]
HALF = len(CONTENT) // 2


def interrupted(server: Server, folder: Path, beginning: bytes = CONTENT[:HALF]) -> str:
    """Leave the beginning of a file, as an interrupted download does; returns the URL."""
    (folder / "file.bin.part").write_bytes(beginning)
    return server.at("/f", plain)


@pytest.mark.parametrize(
    ("beginning", "digest", "ranges"),
    [
        (CONTENT[:HALF], SHA256, [f"bytes={HALF}-"]),
        (CONTENT[:HALF], "", [None]),  # it may belong to another version
        (OTHER[:HALF], SHA256, [f"bytes={HALF}-", None]),
        (CONTENT, SHA256, [f"bytes={len(CONTENT)}-"]),
        (CONTENT + b"more", SHA256, [f"bytes={len(CONTENT) + 4}-", None]),
    ],
)
def test_only_the_rest_is_downloaded(
    server: Server, tmp_path: Path, beginning: bytes, digest: str, ranges: list[str | None]
):
    url = interrupted(server, tmp_path, beginning)
    assert fetched(server.remote(url, url, digest=digest), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == ranges


def test_a_server_that_ignores_ranges_sends_all_again(server: Server, tmp_path: Path):
    url = interrupted(server, tmp_path)
    server.at("/f", ignoring_ranges)
    assert fetched(server.remote(url, digest=SHA256), tmp_path) == CONTENT


def test_a_response_with_another_range_is_rejected(server: Server, tmp_path: Path):
    url = interrupted(server, tmp_path)
    server.at("/f", wrong_part)
    assert f"not the one from byte {HALF}" in refused(server.remote(url, digest=SHA256), tmp_path)
    server.at("/f", plain)
    assert fetched(server.remote(url, digest=SHA256), tmp_path) == CONTENT


def test_two_processes_do_not_write_one_file(server: Server, tmp_path: Path):
    url = server.at("/f", plain)

    def interfere(name: str, done: int, total: int | None) -> None:
        with pytest.raises(OSError, match="another process is downloading this file"):
            fetched(server.remote(url, digest=SHA256), tmp_path)

    remote = server.remote(url, digest=SHA256)
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


def test_a_killed_download_is_resumed(server: Server, tmp_path: Path):
    """A real process is killed in the middle of a file."""
    url = server.at("/f", throttled(0.05, chunk=2048))
    code = (
        "import sys, pathlib; from data.download import Remote, download; "
        "download(Remote(name='file.bin', mirrors=(sys.argv[1],), digest=sys.argv[2]), "
        "pathlib.Path(sys.argv[3]))"
    )
    environment = {**os.environ, "no_proxy": "*"}
    process = subprocess.Popen([sys.executable, "-c", code, url, SHA256, str(tmp_path)], env=environment)
    part = tmp_path / "file.bin.part"
    try:
        while not (part.exists() and part.stat().st_size):
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "file.bin").exists()
    size = part.stat().st_size
    assert 0 < size < len(CONTENT)
    server.at("/f", plain)
    server.asked.clear()
    assert fetched(server.remote(url, digest=SHA256), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == [f"bytes={size}-"]


def test_the_record_keeps_other_files(server: Server, tmp_path: Path):
    for name in ("a", "b"):
        fetched(server.remote(server.at(f"/{name}", plain, name.encode()), name=name), tmp_path)
    recorded = json.loads((tmp_path / "sha256.json").read_text())
    assert recorded == {name: f"sha256:{hashlib.sha256(name.encode()).hexdigest()}" for name in ("a", "b")}
