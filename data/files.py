"""Safe reading and writing of files: whole or absent after a crash; folders that appear complete."""

import hashlib
import json
import os
import re
import shutil
import socket
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

# The callback by which long work reports its progress; who displays it is up to the caller.


ProgressCallback = Callable[[str, int, int | None], None]
"""Called with the name of the work, the units done so far, and their final number (None: unknown)."""

PAIRS_PER_CALL = 10_000
"""Sentence pairs between two calls."""


def no_progress(name: str, done: int, total: int | None) -> None:
    """Do nothing: the ``ProgressCallback`` for work without a display."""


# Conversion of path arguments of public functions to lists.


def as_paths(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """Convert one path or several to a list of ``Path``s; a string is one path, not a list of letters."""
    return [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


# Atomic writing of files, reading of regular files, detection of changed files, and JSON.


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
    return path.with_name(f".{_short(path.name)}.{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:12]}.tmp")


def find_leftovers(folder: Path, name: str = "") -> list[Path]:
    """List the temporary files and folders in ``folder`` that killed processes of this machine left.

    Args:
        folder: where to look; it need not exist.
        name: list only those that were to become the file or folder of this name; empty: all.
    """
    try:
        entries = os.listdir(folder)
    except OSError:
        return []
    matches = [match for entry in entries if (match := _TEMPORARY.fullmatch(entry))]
    return [
        folder / match[0]
        for match in matches
        if match["host"] == _HOST
        and (not name or match["name"] == _short(name))
        and not _is_running(int(match["pid"]))
    ]


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Delete what ``find_leftovers`` lists."""
    for path in find_leftovers(folder, name):
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def is_temporary(entry: str, name: str) -> bool:
    """Tell whether ``entry`` is the name of a temporary file or folder that is to become ``name``."""
    match = _TEMPORARY.fullmatch(entry)
    return match is not None and match["name"] == _short(name)


def _short(name: str) -> str:
    """Return ``name``, or its hash if a longer name would be too long for a file system (255 bytes)."""
    encoded = os.fsencode(name)
    return name if len(encoded) <= 180 else hashlib.sha256(encoded).hexdigest()


def _is_running(pid: int) -> bool:
    """Return whether a process of this machine is running; True where the system cannot tell."""
    if os.name == "nt":
        return True  # os.kill would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
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


def ensure_regular(path: Path) -> None:
    """Refuse pipes, devices and sockets, which may be endless or never begin.

    Raises:
        ValueError: ``path`` exists and is neither a file nor a folder.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path}: a pipe, a device or a socket, not a file; put the file itself there")


def read_bytes(path: Path, *, max_bytes: int) -> bytes:
    """Read a whole file of an experiment, which must be a regular file of reasonable size.

    Args:
        path: the file; links are followed.
        max_bytes: size that no such file reaches.

    Raises:
        OSError: ``path`` cannot be read, or is a folder.
        ValueError: ``path`` is a pipe, a device or a socket, or larger than ``max_bytes``.
    """
    with _open_regular(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"{path}: over {max_bytes:,} bytes; no {path.name} is so large")
    return content


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Compute the digest of a regular file of any size, in hexadecimal.

    Raises:
        OSError: ``path`` cannot be read, or is a folder.
        ValueError: ``path`` is a pipe, a device or a socket.
    """
    with _open_regular(path) as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading."""
    ensure_regular(path)
    # Without O_NONBLOCK, a pipe that has replaced the file since then would be waited for.
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    file = open(path, "rb", opener=lambda name, _: os.open(name, flags))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{path}: a pipe, a device or a socket, not a file; put the file itself there")
    return file


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


def parse_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: ``text`` is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


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


def sync_folder(folder: Path) -> None:
    """Fsync ``folder`` so that a rename inside it survives a power failure."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows cannot open folders
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Creation of a folder whose files appear only when they are complete.


REPLACED = "replaced"
"""Name, in a temporary folder, of a folder that is being replaced."""
MOVED = "moved.json"
"""File in a temporary folder with the names of the files that are being moved to an existing folder."""


def check_vacant(out: Path, *, replace: bool = False) -> Path:
    """Check that a folder can be created, and that nothing would be overwritten.

    Temporary folders that killed processes left for ``out`` are removed; a folder that one had moved away to
    replace it is put back.

    Args:
        out: a new name, an existing empty folder, or a symbolic link to either.
        replace: accept a folder that is not empty.

    Returns:
        The absolute path of the folder, with symbolic links resolved.

    Raises:
        FileExistsError: ``out`` is a file or a folder that is not empty, another process is writing to it, or
            it is a symbolic link to itself.
        NotADirectoryError: ``out`` would be inside a file.
    """
    target = Path(os.path.realpath(out))
    if target.is_symlink():
        raise FileExistsError(f"{out} is a symbolic link that leads back to itself; remove it")
    ancestor = next(path for path in (target, *target.parents) if os.path.lexists(path))
    if ancestor != target and not ancestor.is_dir():
        raise NotADirectoryError(f"{out} cannot be created: {ancestor} is a file, not a folder")
    _remove_leftovers(target)
    if not (replace and target.is_dir()):
        _ensure_empty(target, out)
    return target


@contextmanager
def new_folder(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """Create a folder whose files appear all together or not at all.

    The context manager gives a temporary folder. If the ``with`` block succeeds, it is renamed to ``out``;
    otherwise it is deleted. If ``out`` is an existing empty folder, the files are moved into it instead,
    because a mount point or the working directory of a shell must not be replaced.

    Args:
        out: see ``check_vacant``.
        replace: delete what ``out`` holds once the new files are complete. A process that is killed between
            two renames leaves no ``out``; the next call puts the old one back.

    Raises:
        FileExistsError: see ``check_vacant``.
        OSError: ``out`` cannot be written; the error names ``out`` if it would name a temporary file or none
            (disk full).
    """
    target = check_vacant(out, replace=replace)
    exists = target.is_dir()
    replace = exists and replace and any(target.iterdir())
    name = temporary_path(target).name
    temporary = (target if exists and not replace else target.parent) / name
    try:
        temporary.mkdir(parents=True)
        yield temporary
        _sync_tree(temporary)
        if replace:
            _replace_folder(temporary, target)
            return
        _ensure_empty(target, out, except_for=name)
        if exists:
            _move_files(temporary, target)
        else:
            if target.is_dir():
                target.rmdir()  # it is empty, and Windows does not replace folders
            os.replace(temporary, target)
            sync_folder(target.parent)
    except OSError as error:
        if error.errno is not None and str(error.filename or temporary).startswith(str(temporary)):
            error.filename = str(out)
        raise
    finally:
        if not (
            temporary / MOVED
        ).exists():  # else a signal stopped the undoing; the next call goes on with it
            shutil.rmtree(temporary, ignore_errors=True)  # no longer there if the rename succeeded


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


def _ensure_empty(target: Path, out: Path, *, except_for: str = "") -> None:
    """Raise FileExistsError if ``target`` is a file, or holds an entry other than ``except_for``.

    The message names the folder as ``out``, as the user wrote it.
    """
    if not target.exists():
        return
    entries = [name for name in os.listdir(target) if name != except_for] if target.is_dir() else [""]
    if entries and all(is_temporary(name, target.name) for name in entries):
        raise FileExistsError(f"{out}: another process is writing to this folder; wait until it has ended")
    if entries:
        raise FileExistsError(f"{out} holds something already; name a new folder, or remove this one")


def _replace_folder(temporary: Path, target: Path) -> None:
    """Put ``temporary`` in the place of ``target``, which is deleted."""
    old = temporary_path(target)
    try:
        old.mkdir()
        os.rename(target, old / REPLACED)
        os.replace(temporary, target)
        sync_folder(target.parent)
    finally:
        _put_back(old, target)
        shutil.rmtree(old, ignore_errors=True)


def _put_back(leftover: Path, target: Path) -> None:
    """Move the folder that ``leftover`` may hold to its place ``target``, unless another one is there."""
    if (leftover / REPLACED).is_dir() and not target.exists():
        os.rename(leftover / REPLACED, target)


def _move_files(temporary: Path, target: Path) -> None:
    """Move all files of ``temporary`` to ``target``, or none."""
    names = sorted(os.listdir(temporary))
    (temporary / MOVED).write_text(json.dumps(names))
    sync_folder(temporary)
    try:
        for name in names:
            os.rename(temporary / name, target / name)
        sync_folder(target)
        (temporary / MOVED).unlink()
    except BaseException:
        _undo_moves(temporary, target)
        raise


def _undo_moves(temporary: Path, target: Path) -> None:
    """Delete the files that ``_move_files`` has moved, unless it has moved all of them."""
    try:
        names = json.loads((temporary / MOVED).read_text())
    except (OSError, ValueError):
        return  # nothing has been moved
    waiting = [name for name in names if (temporary / name).exists()]
    if waiting:
        for path in (target / name for name in set(names).difference(waiting)):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (temporary / MOVED).unlink()


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary folders of killed processes for ``target``, and what they had moved to it."""
    for parent in (target, target.parent):
        for leftover in find_leftovers(parent, target.name):
            if parent == target:
                _undo_moves(leftover, target)
            else:
                _put_back(leftover, target)
            shutil.rmtree(leftover, ignore_errors=True)
