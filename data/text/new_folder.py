"""Creation of a folder whose files appear only when they are complete."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.text.files import find_leftovers, hash_file, is_temporary, sync_folder, temporary_path

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
