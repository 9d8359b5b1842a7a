"""Extraction of files from .tar, .tgz and .zip archives; names in an archive are never used as paths."""

import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

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
