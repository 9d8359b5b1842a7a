"""Download of a file: mirrors in order, resumed after an interruption, verified; archives."""

import gzip
import logging
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec
from filelock import FileLock, Timeout

from data.files import ProgressCallback, errors_name, hash_file, no_progress, sync_folder

logger = logging.getLogger(__name__)

ATTEMPTS = 5
"""Requests per mirror; another one is made only after progress, or after a resumed file failed its digest."""
TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 16
THIS_MACHINE = ("127.0.0.1", "localhost")
MAX_EXPANSION = 100
"""Length of all texts of an archive, at most, by its own length; text is compressed to about a third."""
AGENT = "attnbench"  # some servers reject urllib's default
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, RuntimeError)
"""Exceptions of the libraries for truncated, altered, encrypted or unsupported archives."""


class Remote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file on one or more servers."""

    name: str = ""
    """Its name in the local folder."""
    mirrors: tuple[str, ...] = ()
    """Its URLs, tried in this order."""
    hash: str = ""
    """Published digest, "sha256:..." or "md5:..."; empty if there is none."""
    bytes: int | None = None
    """Its length if known."""


class MirrorError(Exception):
    """Fault of a server or the network; the message is meant to follow the mirror's URL."""


def download(
    remote: Remote, folder: Path, *, progress: ProgressCallback = no_progress, timeout_s: float = TIMEOUT_S
) -> Path:
    """Download a file, or verify it if it is there already.

    After an interruption the next call resumes the download, if a digest is published.

    Args:
        remote: the file.
        folder: where to put it; created if it does not exist.
        progress: called with the file's name and bytes.
        timeout_s: longest time without data from a server, in seconds.

    Returns:
        Path of the verified file.

    Raises:
        ValueError: the file that is there already has another digest.
        OSError: no mirror has the right file, another process is downloading it, or it cannot be written.
    """
    path = folder / remote.name
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    if path.is_file():
        if fault := _mismatch(path, remote.hash):
            raise ValueError(f"{path}: {fault}; delete it to download it again")
        _lock_file(part).unlink(missing_ok=True)  # of a process that was killed at the end of its download
        return path
    with _lock(part), errors_name(part):
        with part.open("a+b") as file:
            url = _obtain(remote, file, timeout_s, lambda done, total: progress(remote.name, done, total))
            os.fsync(file.fileno())
        os.replace(part, path)  # after closing: Windows does not rename open files
        sync_folder(folder)
    unverified = "" if remote.hash else "; no hash of it is published"
    logger.info(f"{remote.name}: {path.stat().st_size:,} bytes from {url}{unverified}")
    return path


def _mismatch(path: Path, digest: str) -> str:
    """Compare a file with its digest; returns the difference in words, empty if there is none."""
    algorithm, _, expected = digest.partition(":")
    actual = hash_file(path, algorithm) if digest else expected
    return "" if actual == expected else f"its {algorithm} is {actual}, not {expected}"


def _lock_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.lock")


@contextmanager
def _lock(part: Path) -> Iterator[None]:
    """Let only one process at a time download to ``part``; a process that dies releases its lock."""
    lock = _lock_file(part)
    try:
        with FileLock(lock, timeout=0):
            yield
            with suppress(PermissionError):  # Windows deletes no open file
                lock.unlink(missing_ok=True)  # while it is held: afterwards it may be another process's
    except Timeout:
        message = f"{part}: another process is downloading this file; wait until it has finished"
        raise OSError(message) from None


def _obtain(
    remote: Remote, part: IO[bytes], timeout_s: float, show: Callable[[int, int | None], None]
) -> str:
    """Download to ``part``, trying the mirrors in order; returns the URL that had the right file."""
    faults = []
    for url in remote.mirrors:
        for _ in range(ATTEMPTS):
            before = part.seek(0, os.SEEK_END)
            try:
                _pull(url, remote, part, timeout_s, show)
                fault = _mismatch(Path(part.name), remote.hash)
                if not fault:
                    return url
                part.truncate(0)
                retry = before > 0  # the bytes from before may belong to another version
            except MirrorError as error:
                fault, retry = str(error), part.seek(0, os.SEEK_END) > before
            if not retry:
                break
        faults.append(f"{url}: {fault}")
    raise OSError(
        f"{remote.name}: no mirror has the right file ({'; '.join(faults)}); "
        f"try again later, or put it at {part.name.removesuffix('.part')} yourself"
    )


def _pull(
    url: str, remote: Remote, part: IO[bytes], timeout_s: float, show: Callable[[int, int | None], None]
) -> None:
    """Append the rest of the file to ``part``, or replace ``part`` if the server sends all of it.

    Without a digest ``part`` is not resumed, since it may belong to another version, and the server must
    state the size of the file. With one, the caller finds out whether ``part`` is right.

    Raises:
        MirrorError: the server cannot be reached, refuses, or stops early.
        OSError: ``part`` cannot be written.
    """
    if not remote.hash:
        part.truncate(0)
    start = part.seek(0, os.SEEK_END)
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity"}
    try:
        response = urlopen(
            Request(url, headers=headers | ({"Range": f"bytes={start}-"} if start else {})), timeout=timeout_s
        )
    except HTTPError as error:
        error.close()
        if error.code == 416:
            return  # nothing follows: the file is complete, or another one
        raise MirrorError(f"{error.code} {error.reason}".splitlines()[0].strip()) from None
    except (HTTPException, OSError) as error:
        raise MirrorError(_reason(getattr(error, "reason", error))) from None
    with response:
        address = urlsplit(response.url)
        if not remote.hash and address.scheme == "http" and address.hostname not in THIS_MACHINE:
            raise MirrorError("plain http, and no hash of the file is known")
        if response.status != 206:
            part.truncate(0)
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        if total is None and not remote.hash:
            raise MirrorError("does not state the length of the file, and no hash of it is known")
        done = start
        show(done, total)
        while chunk := _read(response, done, total):
            part.write(chunk)
            done += len(chunk)
            show(done, total)
        part.flush()
        if total is not None and done != total:
            raise MirrorError(f"stops after {done:,} of {total:,} bytes")


def _read(response: Any, done: int, total: int | None) -> bytes:
    """Read a chunk, empty at the end; errors of reading, but not of writing, are the mirror's."""
    try:
        chunk: bytes = response.read1(CHUNK_BYTES)
        return chunk
    except (HTTPException, OSError) as error:
        of_total = "" if total is None else f" of {total:,}"
        raise MirrorError(f"{_reason(error)} after {done:,}{of_total} bytes") from None


def _reason(error: object) -> str:
    """Summarise an exception in a few words."""
    if isinstance(error, TimeoutError):
        return "falls silent"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def extract(archive: Path, wanted: Mapping[str, Path]) -> None:
    """Extract members of an archive.

    Only the paths given by the caller are written, so that no member can escape from a folder.

    Args:
        archive: a .zip file, or a .tar file, compressed by gzip or not.
        wanted: the path to write for each member's name.

    Raises:
        ValueError: the archive is damaged, lacks a wanted member, or expands without measure.
    """
    missing = set(wanted)

    left = MAX_EXPANSION * max(archive.stat().st_size, CHUNK_BYTES)

    def write(name: str, content: IO[bytes]) -> None:
        nonlocal left
        wanted[name].parent.mkdir(parents=True, exist_ok=True)
        with wanted[name].open("wb") as file:
            while chunk := content.read(CHUNK_BYTES):
                left -= len(chunk)
                if left < 0:
                    raise ValueError(f"{archive}: its texts are over {MAX_EXPANSION} times its own length")
                file.write(chunk)
        missing.remove(name)

    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as packed:
                for name in missing & set(packed.namelist()):
                    with packed.open(name) as content:
                        write(name, content)
        else:
            with tarfile.open(archive) as tar:
                for member in tar:
                    if (name := member.name.removeprefix("./")) in missing and member.isreg():
                        write(name, tar.extractfile(member))  # type: ignore[arg-type]  # a regular file
                while tar.fileobj.read(CHUNK_BYTES):
                    pass  # gzip's checksum is at the end
    except DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{archive}: damaged archive ({reason}); delete it and download it again") from None
    if missing:
        raise ValueError(f"{archive} holds no file {', '.join(sorted(missing))}; is it another archive?")
