"""Take single files out of .tar, .tgz and .zip archives; a name in an archive never becomes a path here."""

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
"""What the libraries raise for an archive that is cut off, altered, locked or packed in a way of its own."""


def extract(archive: Path, wanted: Mapping[str, Path]) -> None:
    """Write the members named as keys to the files given as values, each whole or not at all.

    Only what is asked for is written, and only to where the caller says, so no member can reach outside;
    one that is a link or a device instead of a file is refused.

    Raises:
        ValueError: the archive is damaged, or does not hold a wanted file.
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
        what = str(error) or type(error).__name__
        raise ValueError(f"{archive}: damaged archive ({what}); delete it, and fetch it again") from None
    if missing:
        raise ValueError(f"{archive} holds no file {', '.join(sorted(missing))}; is it another archive?")


def _from_tar(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The wanted members in their order, read in one pass, and then to the end, where the checksum stands."""
    with _unpacked(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in wanted:
                    content = tar.extractfile(member) if member.isreg() else None
                    if content is None:
                        raise _no_file(archive, name)
                    yield name, content
        while stream.read(COPY_BYTES):
            pass


@contextmanager
def _unpacked(archive: Path) -> Iterator[IO[bytes]]:
    """The bytes of a .tar, packed by gzip or not; the module tarfile alone would not compare the checksum."""
    with archive.open("rb") as file:
        if file.peek(2).startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(IO[bytes], unpacked)
        else:
            yield file


def _from_zip(archive: Path, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """The wanted members in their order."""
    with zipfile.ZipFile(archive) as packed:
        for info in packed.infolist():
            name = info.filename.removeprefix("./")
            if name in wanted:
                if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
                    raise _no_file(archive, name)
                with packed.open(info) as content:
                    yield name, content


def _no_file(archive: Path, name: str) -> ValueError:
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
