"""Download of a file: mirrors in order, resumed after an interruption, verified, renamed when complete."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from data.download.digests import RECORD, expected_digest, mismatch, record_digest
from data.download.transfer import MirrorError, pull
from data.progress import ProgressCallback, no_progress
from data.text.files import sync_folder

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
    match it. After an interruption the next call resumes the download.

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
    digest = expected_digest(folder, remote.name, remote.digest)
    if not path.is_file():
        part, tag = (path.with_name(f"{path.name}{suffix}") for suffix in (".part", ".part.tag"))
        with _locked(part):
            with _open_part(part) as file:
                url = _obtain(remote, file, tag, digest, timeout_s, progress)
                os.fsync(file.fileno())
            os.replace(part, path)  # after closing: Windows does not rename open files
            sync_folder(folder)
            tag.unlink(missing_ok=True)
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
    remote: Remote, part: IO[bytes], tag: Path, digest: str, timeout_s: float, progress: ProgressCallback
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
                    tag=tag,
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
        + (_or_forget(remote, tag.parent) if digest else "")
    )


def _or_forget(remote: Remote, folder: Path) -> str:
    """Return the advice to drop the recorded digest; empty if the digest is a published one."""
    return "" if remote.digest else f"; for another version, remove its line from {folder / RECORD} too"
