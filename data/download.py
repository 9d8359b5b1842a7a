"""Download of a file: mirrors in order, resumed after an interruption, verified, unpacked."""

import gzip
import json
import logging
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from filelock import FileLock, Timeout

from data.files import (
    ProgressCallback,
    hash_file,
    no_progress,
    parse_json,
    read_bytes,
    sync_folder,
    write_atomically,
)

# Digests of downloaded files: published ones, and those that a first download records.


RECORD = "sha256.json"
"""File beside the downloads; holds the sha256 of each file without published digest at its first download."""
MAX_RECORD_BYTES = 10_000_000
"""Size that no record of downloaded files reaches."""


def mismatch(path: Path, digest: str) -> str:
    """Compare a file with its digest; returns the difference in words, empty if there is none."""
    algorithm, _, expected = digest.partition(":")
    actual = hash_file(path, algorithm)
    return "" if actual == expected else f"its {algorithm} is {actual}, not {expected}"


def record_digest(folder: Path, name: str, path: Path) -> str:
    """Record the sha256 of the file ``name`` of ``folder``, stored at ``path``, and return it."""
    digest = f"sha256:{hash_file(path)}"
    digests = {**_read_record(folder / RECORD), name: digest}
    write_atomically(folder / RECORD, json.dumps(digests, indent=2, sort_keys=True) + "\n")
    return digest


def _read_record(path: Path) -> dict[str, str]:
    """Read the recorded digests by file name; empty if there is no record yet."""
    if not path.is_file():
        return {}
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_RECORD_BYTES))
        if isinstance(content, dict) and all(_is_digest(value) for value in content.values()):
            return content
    except ValueError:
        pass
    raise ValueError(f"{path}: damaged record of hashes; delete it and the downloads beside it")


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and value.startswith("sha256:")


# One HTTP transfer from one mirror to a file that may hold the first part already.
#
# Faults of the server or the network raise ``MirrorError``; faults of the disk remain ``OSError``.


CHUNK_BYTES = 1 << 16
AGENT = "attnbench"  # some servers reject urllib's default

Show = Callable[[int, int | None], None]
"""Called with the bytes received, and the bytes in total if these are known."""


class MirrorError(Exception):
    """Fault of a mirror; the message is meant to follow the mirror's URL."""


def pull(
    url: str, part: IO[bytes], *, length: int | None, verified: bool, timeout_s: float, show: Show
) -> None:
    """Append the rest of the file to ``part``, or replace ``part`` if it cannot be resumed.

    Args:
        url: URL of the file.
        part: the unfinished file, open for appending; it keeps the received bytes after an error too.
        length: expected size in bytes; None: unknown.
        verified: whether the caller compares a digest afterwards. If not, ``part`` is not resumed, since it
            may belong to another version, and the server must state the size of the file.
        timeout_s: longest time without data, in seconds.
        show: callback for the progress, in bytes.

    Raises:
        MirrorError: the server cannot be reached, refuses, or sends something else than the file.
        OSError: ``part`` cannot be written.
    """
    if not verified:
        part.truncate(0)
    size = part.seek(0, 2)
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity"}
    request = Request(url, headers=headers | ({"Range": f"bytes={size}-"} if size else {}))
    try:
        response = urlopen(request, timeout=timeout_s)
    except HTTPError as error:
        error.close()
        if error.code != 416:
            raise MirrorError(f"{error.code} {error.reason}".splitlines()[0].strip()) from None
        if error.headers.get("Content-Range") == f"bytes */{size}":
            return  # the file was complete already
        part.truncate(0)
        raise MirrorError("its file is shorter than the part downloaded before") from None
    except (HTTPException, OSError) as error:
        raise MirrorError(_reason(getattr(error, "reason", error))) from None
    with response:
        total = _truncate_to_start(response, part, size)
        if length and total and total != length:
            raise MirrorError(f"its file has {total:,} bytes, the right one {length:,}")
        if not (length or total or verified):
            raise MirrorError("does not state the length of the file, and no hash of it is known")
        _copy(response, part, length or total, show)


def _truncate_to_start(response: Any, part: IO[bytes], size: int) -> int | None:
    """Truncate ``part`` to where the response starts; returns the size of the whole file if it is stated."""
    if response.status == 206:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if span is None or int(span[1]) != size:
            part.truncate(0)  # otherwise the next call would repeat the same request
            raise MirrorError(f"sends another part than requested, not the one from byte {size}")
        return int(span[2])
    part.truncate(0)
    length = response.headers.get("Content-Length")
    return int(length) if length else None


def _copy(response: Any, part: IO[bytes], total: int | None, show: Show) -> None:
    """Append the body of the response to ``part``."""
    done = part.seek(0, 2)
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
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__


# Extraction of files from .tar, .tgz and .zip archives; names in an archive are never used as paths.


COPY_BYTES = 1 << 20

DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, RuntimeError)
"""Exceptions of the libraries for truncated, altered, encrypted or unsupported archives."""


def extract(archive: Path, wanted: Mapping[str, Path]) -> None:
    """Extract members of an archive, each one completely or not at all.

    Only the paths given by the caller are written, so that no member can escape from a folder.

    Args:
        archive: a .zip file, or a .tar file, compressed by gzip or not.
        wanted: the path to write for each member's name.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the archive is damaged, lacks a wanted member, or has a link or device in its place.
    """
    missing = set(wanted)
    members = _from_zip if zipfile.is_zipfile(archive) else _from_tar
    try:
        for name, content in members(archive, missing):
            _write(content, wanted[name])
            missing.remove(name)
    except DAMAGE as error:
        for name in wanted.keys() - missing:
            wanted[name].unlink()
        reason = str(error) or type(error).__name__
        raise ValueError(f"{archive}: damaged archive ({reason}); delete it and download it again") from None
    if missing:
        raise ValueError(f"{archive} holds no file {', '.join(sorted(missing))}; is it another archive?")


def _from_tar(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the wanted members in one pass; the rest is read too, since gzip's checksum is at the end."""
    with _unpacked(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in wanted:
                    content = tar.extractfile(member) if member.isreg() else None
                    if content is None:
                        raise _not_a_file(archive, name)
                    yield name, content
        while stream.read(COPY_BYTES):
            pass


@contextmanager
def _unpacked(archive: Path) -> Iterator[IO[bytes]]:
    """Open a .tar for reading, compressed by gzip or not; ``tarfile`` would not verify gzip's checksum."""
    with archive.open("rb") as file:
        if file.peek(2).startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(IO[bytes], unpacked)
        else:
            yield file


def _from_zip(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the wanted members in the archive's order."""
    with zipfile.ZipFile(archive) as packed:
        for info in packed.infolist():
            name = info.filename.removeprefix("./")
            if name in wanted:
                if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
                    raise _not_a_file(archive, name)
                with packed.open(info) as content:
                    yield name, content


def _not_a_file(archive: Path, name: str) -> ValueError:
    return ValueError(f"{archive}: {name} is a link or a device, not a file; do not trust this archive")


def _write(content: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            shutil.copyfileobj(content, file, COPY_BYTES)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


# Download of a file: mirrors in order, resumed after an interruption, verified, renamed when complete.


logger = logging.getLogger(__name__)

ATTEMPTS = 5
"""Requests per mirror; another one is made only after progress, or after a resumed file failed its digest."""

TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A file on one or more servers."""

    name: str
    """Its name in the local folder."""
    mirrors: tuple[str, ...]
    """Its URLs, tried in this order."""
    digest: str = ""
    """Published digest, "sha256:..." or "md5:..."; empty if there is none."""
    size_bytes: int | None = None
    """Its length if known."""


def download(
    remote: Remote,
    folder: Path,
    *,
    progress: ProgressCallback = no_progress,
    timeout_s: float = TIMEOUT_S,
) -> Path:
    """Download a file, or verify it if it is there already.

    The sha256 of a file without published digest is recorded at its first download; later downloads must
    match it. After an interruption the next call resumes the download if a digest is known.

    Args:
        remote: the file.
        folder: where to put it; created if it does not exist.
        progress: called with the file's name and bytes.
        timeout_s: longest time without data from a server, in seconds.

    Returns:
        Path of the verified file.

    Raises:
        ValueError: the file that is there already has another digest, or the record of digests is damaged.
        OSError: no mirror has the right file, another process is downloading it, or it cannot be written.
    """
    path = folder / remote.name
    folder.mkdir(parents=True, exist_ok=True)
    digest = remote.digest or _read_record(folder / RECORD).get(remote.name, "")
    if not path.is_file():
        part = path.with_name(f"{path.name}.part")
        with _locked(part):
            with _open_part(part) as file:
                url = _obtain(remote, file, digest, timeout_s, progress)
                os.fsync(file.fileno())
            os.replace(part, path)  # after closing: Windows does not rename open files
            sync_folder(folder)
        logger.info(f"{remote.name}: {path.stat().st_size:,} bytes from {url}")
    elif digest and (fault := mismatch(path, digest)):
        raise ValueError(f"{path}: {fault}; delete it to download it again{_or_forget(remote, folder)}")
    if not digest:
        found = record_digest(folder, remote.name, path)
        logger.info(
            f"{remote.name}: no published hash; {found} is recorded, and later downloads must match it"
        )
    return path


@contextmanager
def _locked(part: Path) -> Iterator[None]:
    """Let only one process at a time download to ``part``; a process that dies releases its lock."""
    lock = part.with_name(f"{part.name}.lock")
    try:
        with FileLock(lock, timeout=0):
            yield
            if os.name != "nt":  # Windows cannot delete open files; filelock deletes it there
                lock.unlink(missing_ok=True)
    except Timeout:
        raise OSError(
            f"{part}: another process is downloading this file; wait until it has finished"
        ) from None


@contextmanager
def _open_part(path: Path) -> Iterator[IO[bytes]]:
    """Open the unfinished file for appending."""
    try:
        with path.open("a+b") as part:
            yield part
    except OSError as error:
        if error.errno is not None and error.filename is None:  # such as a full disk
            error.filename = str(path)
        raise


def _obtain(
    remote: Remote, part: IO[bytes], digest: str, timeout_s: float, progress: ProgressCallback
) -> str:
    """Download to ``part``, trying the mirrors in order; returns the URL that had the right file."""
    faults = []
    for url in remote.mirrors:
        for _ in range(ATTEMPTS):
            before = part.seek(0, 2)
            try:
                pull(
                    url,
                    part,
                    length=remote.size_bytes,
                    verified=bool(digest),
                    timeout_s=timeout_s,
                    show=lambda done, total: progress(remote.name, done, total),
                )
                fault = mismatch(Path(part.name), digest) if digest else ""
                if not fault:
                    return url
                part.truncate(0)
                retry = before > 0  # the bytes from before may belong to another version
            except MirrorError as error:
                fault, retry = str(error), part.seek(0, 2) > before
            if not retry:
                break
        faults.append(f"{url}: {fault}")
    raise OSError(
        f"{remote.name}: no mirror has the right file ({'; '.join(faults)}); "
        f"try again later, or put it at {part.name.removesuffix('.part')} yourself"
        + (_or_forget(remote, Path(part.name).parent) if digest else "")
    )


def _or_forget(remote: Remote, folder: Path) -> str:
    """Return the advice to drop the recorded digest; empty if the digest is a published one."""
    return "" if remote.digest else f"; for another version, remove its line from {folder / RECORD} too"
