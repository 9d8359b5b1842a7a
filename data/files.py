"""Safe reading and writing of files: whole or absent after a crash; folders that appear complete."""

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

# The callback by which long work reports its progress; who displays it is up to the caller.


ProgressCallback = Callable[[str, int, int | None], None]
"""Called with the name of the work, the units done, and their final number (None: unknown)."""


def no_progress(name: str, done: int, total: int | None) -> None:
    """Show no progress."""


# Conversion of path arguments of public functions to lists.


def as_paths(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Convert one path or several to a list; ValueError if there is none."""
    as_list = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not as_list:
        raise ValueError("the list of paths is empty: name at least one file or folder")
    return as_list


# Atomic writing of files, detection of changed files, and JSON.


_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{12}\.tmp")

FileState = tuple[int, ...] | None
"""Inode, size in bytes and modification time in ns of a file; None if it does not exist."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that readers, also after a power failure, see the old content or the new.

    An OSError (disk full, read-only folder, a folder of that name) names ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, path.name)
    temporary = temporary_path(path)  # the tempfile module would ignore the umask
    with errors_name(path):
        try:
            with temporary.open("xb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)  # it is gone if the replacement succeeded


def temporary_path(path: Path) -> Path:
    """Make a name beside ``path`` that tells which process is writing there."""
    return path.with_name(f".{path.name}.{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:12]}.tmp")


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Delete temporary files that killed processes of this machine left in ``folder``.

    With ``name``, delete only those that were to become that file or folder.
    """
    if not folder.is_dir():
        return
    for entry in os.listdir(folder):
        match = _TEMPORARY.fullmatch(entry)
        if match and match["host"] == _HOST and (not name or match["name"] == name):
            path = folder / entry
            if not _is_running(int(match["pid"])):
                with suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_running(pid: int) -> bool:
    """Return whether a process of this machine is running; True where the system cannot tell."""
    if os.name == "nt":
        return True  # os.kill would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def append_whole(path: Path, text: str) -> None:
    """Append ``text`` to a file, or leave the file as it was if the disk is full (OSError)."""
    content = memoryview(text.encode())
    with errors_name(path), path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            while content:
                content = content[file.write(content) :]
        except OSError:
            file.truncate(end)
            raise


def sync_file(path: Path) -> None:
    """Fsync a file and its folder, so that appended text survives a power failure."""
    with errors_name(path), path.open("r+b") as file:
        os.fsync(file.fileno())
    sync_folder(path.parent)


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Compute the digest of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def file_states(*paths: Path) -> dict[Path, FileState]:
    """Record the state of every file, for ``ensure_states``."""
    return {path: _state(path) for path in paths}


def ensure_unchanged(*paths: Path) -> AbstractContextManager[None]:
    """Raise ValueError if a file changes while the ``with`` block reads it."""
    return ensure_states(file_states(*paths))


@contextmanager
def ensure_states(states: Mapping[Path, FileState]) -> Iterator[None]:
    """Raise ValueError at the end of the ``with`` block if a file's state has changed."""
    content_error = None
    try:
        yield
    except ValueError as error:
        content_error = error  # if the file has changed, that explains this error and is reported instead
    for path, state in states.items():
        if _state(path) != state:
            raise ValueError(
                f"{path} changed while it was being read; run the command again when the file is complete"
            )
    if content_error is not None:
        raise content_error


def json_bytes(content: Any) -> bytes:
    """Serialise ``content`` as compact JSON in UTF-8; equal content gives equal bytes."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Make OSErrors name ``path`` instead of a temporary file or no file."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def _state(path: Path) -> FileState:
    try:
        status = path.stat()
    except OSError:
        return None  # reading it will raise a better message
    return (status.st_ino, status.st_size, status.st_mtime_ns)


CANNOT_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Errors of file systems that have no fsync of folders, such as SMB and some of FUSE."""


def sync_folder(folder: Path) -> None:
    """Fsync ``folder`` so that a rename inside it survives a power failure."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows cannot open folders
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise
        warn_once(
            "this file system cannot sync folders: after a power failure, files that were just written may "
            "be missing; nothing else changes"
        )
    finally:
        os.close(descriptor)


@cache
def warn_once(message: str) -> None:
    """Warn of something that stays as it is for as long as the process runs."""
    logger.warning(message)


def ensure_utf8(path: Path) -> None:
    """Raise ValueError if a path is not UTF-8: the libraries that read weights cannot open it."""
    try:
        os.path.abspath(path).encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{path}: this path is not UTF-8: rename its folder or name another one; if it has accents or "
            "other scripts, set LC_ALL=C.UTF-8"
        ) from None


# Creation of a folder whose files appear only when they are complete.


def check_vacant(out: Path, *, replace: bool = False) -> Path:
    """Check that a folder can be created without overwriting anything; returns its real path.

    Temporary folders that killed processes left for ``out`` are removed.

    Args:
        out: a new name, an existing empty folder, or a symbolic link to either.
        replace: accept a folder that is not empty.

    Raises:
        FileExistsError: ``out`` is a file, a folder that is not empty, or the working directory.
    """
    target = Path(os.path.realpath(out))
    ensure_utf8(target)
    remove_leftovers(target.parent, target.name)
    if target == Path.cwd():
        raise FileExistsError(f"{out} is the working directory; choose a new folder in it")
    if target.exists() and not (target.is_dir() and (replace or not any(target.iterdir()))):
        raise FileExistsError(f"{out} already exists; choose a new folder, or remove this one")
    return target


@contextmanager
def new_folder(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """Create a folder whose files appear all together or not at all.

    The context manager gives a temporary folder, which becomes ``out`` if the ``with`` block succeeds.

    Args:
        out: see ``check_vacant``.
        replace: replace what ``out`` holds once the new files are complete. A process killed between the
        two renames leaves the old folder as ``out`` with ".old" and a number.

    Raises:
        FileExistsError: see ``check_vacant``.
        OSError: ``out`` cannot be written; the error names ``out``.
    """
    target = check_vacant(out, replace=replace)
    temporary, old = temporary_path(target), target.with_name(f"{target.name}.old-{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        _sync_tree(temporary)
        check_vacant(out, replace=replace)
        if target.exists() and any(target.iterdir()):
            os.rename(target, old)
        elif target.exists():
            target.rmdir()  # Windows does not replace folders
        os.rename(temporary, target)
        sync_folder(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        if error.errno is not None and str(error.filename or temporary).startswith(str(temporary)):
            error.filename = str(out)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # it is gone if it was renamed


def described(path: Path) -> dict[str, int | str]:
    """Return the size in bytes and the sha256 of a file."""
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def _sync_tree(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            _sync_tree(path)
        else:
            with path.open("r+b") as file:  # Windows syncs only what is open for writing
                os.fsync(file.fileno())
    sync_folder(folder)
