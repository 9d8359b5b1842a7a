"""Fetch a file: mirrors in order, resumed after a break, verified, there whole or not at all."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from data.download.digests import RECORD, expected_digest, mismatch, record_digest
from data.download.transfer import MirrorError, pull
from data.text.files import sync_folder

ATTEMPTS = 5
"""How often one mirror is asked; again only if the time before brought the file on, or spoilt it."""

TIMEOUT_S = 30.0

Say = Callable[[str], None]
Show = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes there are, and the bytes there will be where that is known."""


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A file that can be had from several places."""

    name: str
    """What it is called here."""
    mirrors: tuple[str, ...]
    """Its addresses, tried in this order."""
    digest: str = ""
    """As published, "sha256:..." or "md5:..."; empty where nobody has published one."""
    size_bytes: int | None = None
    """Its length, where known."""


def nothing_shown(name: str, done: int, total: int | None) -> None:
    """A ``Show`` that shows nothing."""


def download(
    remote: Remote, folder: Path, *, say: Say, show: Show = nothing_shown, timeout_s: float = TIMEOUT_S
) -> Path:
    """Have ``remote`` in ``folder``; what is there already is verified, not fetched again.

    A file of no known hash is taken as first seen; its sha256 is recorded beside it, ``say`` says so, and
    later downloads must match. After a break of any kind the next call goes on where this one ended.

    Raises:
        ValueError: the file that is there already is not the right one.
        OSError: no mirror gave the file, or the disk would not take it.
    """
    path = folder / remote.name
    folder.mkdir(parents=True, exist_ok=True)
    digest = expected_digest(folder, remote.name, remote.digest)
    if not path.is_file():
        with _claimed(path.with_name(f"{path.name}.part")) as part:
            tag = path.with_name(f"{path.name}.part.tag")
            url = _obtain(remote, part, tag, digest, timeout_s, show)
            os.fsync(part.fileno())
            os.replace(part.name, path)
            sync_folder(folder)
            tag.unlink(missing_ok=True)
        say(f"{remote.name}: {path.stat().st_size:,} bytes from {url}")
    elif digest and (fault := mismatch(path, digest)):
        raise ValueError(f"{path}: {fault}; delete it, and it is fetched again{_or_forget(remote, folder)}")
    if not digest:
        found = record_digest(folder, remote.name, path)
        say(f"{remote.name}: no hash of it was known; {found} is recorded, and must be found from now on")
    return path


@contextmanager
def _claimed(path: Path) -> Iterator[IO[bytes]]:
    """The unfinished file, open for appending, for one process alone."""
    try:
        with path.open("a+b") as part:
            try:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError(f"{path}: another process is fetching this file; wait for its end") from None
            yield part
    except OSError as error:
        if error.errno is not None and error.filename is None:  # a full disk, say
            error.filename = str(path)
        raise


def _obtain(remote: Remote, part: IO[bytes], tag: Path, digest: str, timeout_s: float, show: Show) -> str:
    """Fill ``part`` with the right bytes; returns the address that had them."""
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
                    show=lambda done, total: show(remote.name, done, total),
                )
                fault = mismatch(Path(part.name), digest) if digest else ""
                if not fault:
                    return url
                part.truncate(0)
                again = before > 0  # its beginning may have been another version's
            except MirrorError as error:
                fault, again = str(error), part.seek(0, 2) > before
            if not again:
                break
        faults.append(f"{url}: {fault}")
    raise OSError(
        f"{remote.name}: no mirror has the right file ({'; '.join(faults)}); "
        f"try again later, or put it at {part.name.removesuffix('.part')} yourself"
        + (_or_forget(remote, tag.parent) if digest else "")
    )


def _or_forget(remote: Remote, folder: Path) -> str:
    """What else helps where the hash is only that of the first download."""
    return "" if remote.digest else f"; for another version, take its line out of {folder / RECORD} too"
