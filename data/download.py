"""Download of a file: mirrors in order, resumed after an interruption, verified; archives."""

import gzip
import logging
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec

from data.files import ProgressCallback, hash_file, no_progress, sync_folder

logger = logging.getLogger(__name__)

ROUNDS = 2
"""How often each mirror is asked: a broken transfer is resumed, and one of another version begun anew."""
TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 16
THIS_MACHINE = ("127.0.0.1", "localhost")
AGENT = "attnbench"  # some servers reject urllib's default
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    gzip.BadGzipFile,
    KeyError,
    RuntimeError,
)
"""Exceptions of the libraries for truncated, altered or encrypted archives, and links to nothing."""


class Remote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file on one or more servers."""

    name: str = ""
    mirrors: tuple[str, ...] = ()
    hash: str = ""
    """Published digest, "sha256:..." or "md5:..."; empty if there is none."""
    bytes: int | None = None
    """Length if published."""


def download(
    remote: Remote, folder: Path, *, progress: ProgressCallback = no_progress, timeout_s: float = TIMEOUT_S
) -> Path:
    """Download a file, or verify it if it is there already.

    After an interruption the next call resumes the download, if a digest is published.

    Raises:
        ValueError: the file that is there already has another digest.
        OSError: no mirror has the right file, or it cannot be written.
    """
    path = folder / remote.name
    folder.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        if fault := _mismatch(path, remote.hash):
            raise ValueError(f"{path}: {fault}; delete it to download it again")
        return path
    part = path.with_name(f"{path.name}.part")
    with part.open("a+b") as file:
        url = _obtain(remote, file, timeout_s, lambda done, total: progress(remote.name, done, total))
        os.fsync(file.fileno())
    os.replace(part, path)  # after closing: Windows does not rename open files
    sync_folder(folder)
    unverified = "" if remote.hash else " (not verified: no hash is published)"
    logger.info(f"{remote.name}: {path.stat().st_size:,} bytes from {url}{unverified}")
    return path


def _mismatch(path: Path, digest: str) -> str:
    algorithm, _, expected = digest.partition(":")
    actual = hash_file(path, algorithm) if digest else expected
    return "" if actual == expected else f"{algorithm} is {actual}, expected {expected}"


def _obtain(
    remote: Remote, part: IO[bytes], timeout_s: float, show: Callable[[int, int | None], None]
) -> str:
    """Try the mirrors in order; returns the URL that had the right file."""
    faults = {}
    for url in remote.mirrors * ROUNDS:
        if not remote.hash:
            part.truncate(0)  # the partial file may belong to another version
        try:
            _pull(url, remote.hash, part, timeout_s, show)
        except (HTTPException, OSError) as error:
            faults[url] = str(error)
            if isinstance(error, HTTPError):
                error.close()
                if error.code == 416:  # no such range: it has all bytes already, or is another version
                    part.truncate(0)
            continue
        if not (fault := _mismatch(Path(part.name), remote.hash)):
            return url
        part.truncate(0)
        faults[url] = fault
    reasons = "; ".join(f"{url}: {fault}" for url, fault in faults.items())
    raise OSError(
        f"{remote.name}: download failed ({reasons}); "
        f"try again later, or save the file as {part.name.removesuffix('.part')} yourself"
    )


def _pull(
    url: str, digest: str, part: IO[bytes], timeout_s: float, show: Callable[[int, int | None], None]
) -> None:
    """Append the rest of the file to ``part``, or replace it if the server sends everything."""
    done = part.seek(0, os.SEEK_END)
    headers = {"User-Agent": AGENT} | ({"Range": f"bytes={done}-"} if done else {})
    with urlopen(Request(url, headers=headers), timeout=timeout_s) as response:
        address = urlsplit(response.url)  # after redirections
        if not digest and address.scheme == "http" and address.hostname not in THIS_MACHINE:
            raise OSError("refused over plain http, because no hash is published to verify the file")
        if response.status != 206:
            done = part.truncate(0)
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        show(done, total)
        while chunk := response.read1(CHUNK_BYTES):
            part.write(chunk)
            done += len(chunk)
            show(done, total)
    part.flush()
    if total is not None and done != total:
        raise OSError(f"transfer ended after {done:,} of {total:,} bytes")


def extract(archive: Path, wanted: Collection[str], folder: Path) -> None:
    """Extract the ``wanted`` members of a .zip or .tar file; ValueError if it is damaged or lacks one."""
    missing = set(wanted)
    try:
        for name, content in _members(archive):
            if name in missing and content:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    shutil.copyfileobj(content, file)
                missing.remove(name)
    except DAMAGE as error:
        raise ValueError(f"{archive}: damaged archive ({error}); delete it and download it again") from None
    if missing:
        raise ValueError(f"{archive} does not contain {', '.join(sorted(missing))}; is it the right archive?")


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                yield name, packed.open(name)
    else:
        with tarfile.open(archive) as tar:
            for member in tar:
                yield member.name.removeprefix("./"), tar.extractfile(member)
            while tar.fileobj.read(CHUNK_BYTES):
                pass  # gzip's checksum is at the end
