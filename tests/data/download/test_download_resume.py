"""Interrupted downloads are resumed, and never combine two versions of a file."""

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

from data.download import download
from tests.kits.http_server import (
    CONTENT,
    SHA256,
    Server,
    cut_after,
    fetched,
    first,
    ignoring_ranges,
    plain,
    refused,
    status,
    throttled,
    untagged,
    weakly_tagged,
    wrong_part,
)

OTHER = CONTENT[::-1]
HALF = len(CONTENT) // 2


def interrupted(server: Server, folder: Path, *, version: str = '"v1"', content: bytes = CONTENT) -> str:
    """Leave the first half of a file, as an interrupted download does; returns the URL."""
    url = server.at("/f", plain)
    folder.mkdir(exist_ok=True)
    (folder / "file.bin.part").write_bytes(content[:HALF])
    (folder / "file.bin.part.tag").write_text(f"{url}\n{version}")
    return url


@pytest.mark.parametrize("digest", [SHA256, ""])
def test_only_the_rest_is_downloaded(server: Server, tmp_path: Path, digest: str):
    url = interrupted(server, tmp_path)
    assert fetched(server.remote(url, digest=digest), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == [f"bytes={HALF}-"]


def test_a_real_interruption_leaves_the_same_files(server: Server, tmp_path: Path):
    url = server.at("/f", first(cut_after(HALF), then=status(503)))
    refused(server.remote(url, digest=SHA256), tmp_path)
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:HALF]
    assert (tmp_path / "file.bin.part.tag").read_text() == f'{url}\n"v1"'


@pytest.mark.parametrize("digest", [SHA256, ""])
def test_a_server_that_ignores_ranges_sends_all_again(server: Server, tmp_path: Path, digest: str):
    url = interrupted(server, tmp_path)
    server.at("/f", ignoring_ranges)
    assert fetched(server.remote(url, digest=digest), tmp_path) == CONTENT


def test_a_new_version_on_the_server_is_downloaded_from_the_start(server: Server, tmp_path: Path):
    """The ETag differs, so the server sends the whole file."""
    url = interrupted(server, tmp_path, version='"v0"', content=OTHER)
    assert fetched(server.remote(url), tmp_path) == CONTENT


def test_without_version_or_digest_nothing_is_resumed(server: Server, tmp_path: Path):
    url = interrupted(server, tmp_path, version="", content=OTHER)
    server.at("/f", untagged)
    assert fetched(server.remote(url), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == [None]


def test_a_weak_etag_is_not_trusted(server: Server, tmp_path: Path):
    url = server.at("/f", first(weakly_tagged(HALF), then=weakly_tagged(len(CONTENT))))
    assert fetched(server.remote(url), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == [None, None]


def test_without_a_digest_another_mirror_does_not_resume(server: Server, tmp_path: Path):
    interrupted(server, tmp_path, content=OTHER)
    assert fetched(server.remote(server.at("/other", plain)), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == [None]


def test_with_a_digest_any_mirror_resumes(server: Server, tmp_path: Path):
    interrupted(server, tmp_path)
    assert fetched(server.remote(server.at("/other", plain), digest=SHA256), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == [f"bytes={HALF}-"]


def test_a_wrong_beginning_is_discarded(server: Server, tmp_path: Path):
    url = interrupted(server, tmp_path, content=OTHER)
    assert fetched(server.remote(url, digest=SHA256), tmp_path) == CONTENT
    assert [asked.range for asked in server.asked] == [f"bytes={HALF}-", None]


def test_a_response_with_another_range_is_rejected(server: Server, tmp_path: Path):
    url = interrupted(server, tmp_path)
    server.at("/f", wrong_part)
    assert f"not the one from byte {HALF}" in refused(server.remote(url, digest=SHA256), tmp_path)
    server.at("/f", plain)
    assert fetched(server.remote(url, digest=SHA256), tmp_path) == CONTENT


@pytest.mark.parametrize("digest", [SHA256, ""])
@pytest.mark.parametrize(("size", "questions"), [(len(CONTENT), 1), (len(CONTENT) + 9, 2)])
def test_a_beginning_as_long_as_the_file_or_longer(
    server: Server, tmp_path: Path, size: int, questions: int, digest: str
):
    url = interrupted(server, tmp_path)
    (tmp_path / "file.bin.part").write_bytes((CONTENT + OTHER)[:size])
    remote = server.remote(url, url, digest=digest)
    assert fetched(remote, tmp_path) == CONTENT
    assert len(server.asked) == questions


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
