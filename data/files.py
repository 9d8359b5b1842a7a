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
"""Called with the name of the work, the units done so far, and their final number (None: unknown)."""


def no_progress(name: str, done: int, total: int | None) -> None:
    """Do nothing: the ``ProgressCallback`` for work without a display."""


# Conversion of path arguments of public functions to lists.


def as_paths(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Convert one path or several to a list of ``Path``s; a string is one path, not a list of letters.

    Raises:
        ValueError: there is none.
    """
    found = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not found:
        raise ValueError("an empty list: name at least one file or folder")
    return found


# Atomic writing of files, detection of changed files, and JSON.


_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{12}\.tmp")

FileState = tuple[int, ...] | None
"""Inode, size in bytes and modification time in ns of a file; None if it does not exist."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that readers, also after a power failure, find the old content or all of the new one.

    Args:
        path: the file; its folder is created if necessary.
        content: the new content; text is written as UTF-8.

    Raises:
        OSError: ``path`` cannot be written (disk full, read-only folder, a folder of that name); it names
            ``path``.
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
            temporary.unlink(missing_ok=True)  # no longer there if the replacement succeeded


def temporary_path(path: Path) -> Path:
    """Make a name beside ``path`` for its new content; it tells which process is writing there."""
    return path.with_name(f".{path.name}.{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:12]}.tmp")


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Delete the temporary files and folders in ``folder`` that killed processes of this machine left.

    Args:
        folder: where to look; it need not exist.
        name: delete only those that were to become the file or folder of this name; empty: all.
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
    """Append ``text`` to a file, or leave the file as it was if not all of it can be written.

    Raises:
        OSError: ``path`` cannot be written (disk full, for example); it names ``path``.
    """
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
    """Fsync a file and its folder, so that what was appended survives a power failure."""
    with errors_name(path), path.open("r+b") as file:
        os.fsync(file.fileno())
    sync_folder(path.parent)


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Compute the digest of a file of any size, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def file_states(*paths: Path) -> dict[Path, FileState]:
    """Record the state of each file, for ``ensure_states``."""
    return {path: _state(path) for path in paths}


def ensure_unchanged(*paths: Path) -> AbstractContextManager[None]:
    """Raise ValueError if one of the files is written to or replaced while the ``with`` block reads them."""
    return ensure_states(file_states(*paths))


@contextmanager
def ensure_states(states: Mapping[Path, FileState]) -> Iterator[None]:
    """Check at the end of the ``with`` block that files are still in the states of ``file_states``.

    Raises:
        ValueError: a file has changed; what was read may mix its old content with the new.
    """
    content_error = None
    try:
        yield
    except ValueError as error:
        content_error = error  # a change of the file would explain it, and is reported instead
    for path, state in states.items():
        if _state(path) != state:
            raise ValueError(f"{path} was changed while it was read; run this again once it is written")
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
    """Return the state of a file."""
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
    """Check that a folder can be created, and that nothing would be overwritten.

    Temporary folders that killed processes left for ``out`` are removed.

    Args:
        out: a new name, an existing empty folder, or a symbolic link to either.
        replace: accept a folder that is not empty.

    Returns:
        The absolute path of the folder, with symbolic links resolved.

    Raises:
        FileExistsError: ``out`` is a file, a folder that is not empty, or the working directory.
    """
    target = Path(os.path.realpath(out))
    ensure_utf8(target)
    remove_leftovers(target.parent, target.name)
    if target == Path.cwd():
        raise FileExistsError(f"{out} is the working directory; name a new folder in it")
    if target.exists() and not (target.is_dir() and (replace or not any(target.iterdir()))):
        raise FileExistsError(f"{out} holds something already; name a new folder, or remove this one")
    return target


@contextmanager
def new_folder(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """Create a folder whose files appear all together or not at all.

    The context manager gives a temporary folder. If the ``with`` block succeeds, it is renamed to ``out``;
    otherwise it is deleted.

    Args:
        out: see ``check_vacant``.
        replace: replace what ``out`` holds once the new files are complete. If the process is killed between
            the two renames, the old folder is beside it, its name ``out`` with ".old" and a number.

    Raises:
        FileExistsError: see ``check_vacant``.
        OSError: ``out`` cannot be written; the error names ``out`` if it would name a temporary file or none
            (disk full).
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
        shutil.rmtree(temporary, ignore_errors=True)  # no longer there if it was renamed


def described(path: Path) -> dict[str, int | str]:
    """Return the size in bytes and the sha256 of a file."""
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def _sync_tree(folder: Path) -> None:
    """Fsync all files and folders in ``folder``, and the folder itself."""
    for path in folder.iterdir():
        if path.is_dir():
            _sync_tree(path)
        else:
            with path.open("r+b") as file:  # Windows syncs only what is open for writing
                os.fsync(file.fileno())
    sync_folder(folder)
