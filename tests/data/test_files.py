"""Files and folders that are whole or absent, whatever happens while they are written."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from data import files
from data.files import (
    append_whole,
    check_vacant,
    new_folder,
    remove_leftovers,
    sync_file,
    temporary_path,
    warn_once,
    write_atomically,
)


@pytest.mark.parametrize("content", ["", "ä\r\nb\n", b"\xff\x00"])
def test_a_file_is_written_with_the_usual_permissions(tmp_path: Path, content: str | bytes):
    """Only their owner can read files of the tempfile module, a surprise on a shared machine."""
    path = tmp_path / "new" / "x"
    write_atomically(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch, call: str, error: BaseException):
    path = tmp_path / "result.json"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(error)):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_on_disk_before_it_gets_its_name_and_the_folder_after(tmp_path: Path, monkeypatch):
    calls: list[tuple[str, int]] = []
    fsync, rename = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        status = os.fstat(descriptor)
        calls.append(("folder", 0) if stat.S_ISDIR(status.st_mode) else ("file", status.st_size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append(("rename", 0)), rename(*paths)))
    write_atomically(tmp_path / "x", "new")
    assert calls == [("file", 3), ("rename", 0), ("folder", 0)]
    append_whole(tmp_path / "x", " line")
    sync_file(tmp_path / "x")
    assert calls[3:] == [("file", 8), ("folder", 0)]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBADF, errno.EIO])
def test_a_file_system_without_fsync_of_folders_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
):
    fsync = os.fsync

    def of_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files)
    warn_once.cache_clear()
    if number == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            write_atomically(tmp_path / "x", "new")
        return
    for content in ("one", "two"):
        write_atomically(tmp_path / "x", content)
    assert caplog.text.count("cannot sync folders") == 1
    warn_once.cache_clear()


def test_a_path_that_is_not_utf8_is_refused_before_the_work(tmp_path: Path):
    with pytest.raises(ValueError, match="this path is not UTF-8: rename its folder or name another one"):
        new_folder(tmp_path / "caf\udce9").__enter__()
    assert not list(tmp_path.iterdir())


def test_an_append_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path):
    """A real limit of the system, which admits some bytes of the line; the lines before it remain."""
    path = tmp_path / "log"
    append_whole(path, "first\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            append_whole(path, "second\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(path)
    append_whole(path, "ö\n")
    assert path.read_text(encoding="utf-8") == "first\nö\n"


@pytest.mark.parametrize(
    ("error", "host", "stays"),
    [
        (None, None, True),  # the process is running
        (PermissionError(), None, True),  # so is one of another user
        (ProcessLookupError(), "0123abcd", True),  # another machine shares the folder
        (ProcessLookupError(), None, False),
    ],
)
def test_only_what_a_killed_process_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None, host: str | None, stays: bool
):
    def kill(pid: int, signum: int) -> None:
        assert signum == 0
        if error is not None:
            raise error

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(files, "_HOST", host or files._HOST)
        path = temporary_path(tmp_path / "result.json")
    path.touch()
    monkeypatch.setattr(os, "kill", kill)
    remove_leftovers(tmp_path, "other.json")
    assert path.exists()
    remove_leftovers(tmp_path)
    assert path.exists() == stays


# New folders


def write_tree(folder: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "x").write_text("new")
    (folder / "y").write_text("new")


def fill(out: Path, write: Callable[[Path], object] = write_tree, **options: bool) -> None:
    with new_folder(out, **options) as folder:
        write(folder)


@pytest.mark.parametrize("out", ["new", "deep/er", "empty", "link", "dangling"])
def test_any_folder_that_is_new_or_empty_is_filled(tmp_path: Path, monkeypatch, out: str):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("elsewhere").mkdir()
    Path("link").symlink_to("elsewhere")
    Path("dangling").symlink_to("made")
    with new_folder(Path(out)) as folder:
        write_tree(folder)
        assert not (Path(out) / "y").exists()
    assert sorted(os.listdir(out)) == ["deep", "y"]
    assert (Path(out) / "deep" / "er" / "x").read_text() == "new"
    assert not list(tmp_path.rglob(".*.tmp"))
    assert Path("link").is_symlink()
    assert Path("dangling").is_symlink()


def test_what_cannot_be_a_new_folder_is_refused_before_the_work(tmp_path: Path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".hidden").write_text("mine")
    (tmp_path / "link").symlink_to("full")
    before = sorted(tmp_path.rglob("*"))
    for name, error in {
        "file": "already exists",
        "full": "already exists",
        "link": "already exists",
        "file/new": "Not a directory",
        "here": "is the working directory; choose a new folder in it",
    }.items():
        with pytest.raises(OSError, match=error) as caught:
            fill(tmp_path / name, lambda folder: pytest.fail("worked for nothing"))
        assert str(tmp_path / name) in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("exists", [False, True])
def test_a_failure_leaves_nothing_and_names_the_folder(tmp_path: Path, monkeypatch, exists: bool):
    out = tmp_path / "out"
    if exists:
        out.mkdir()
    with pytest.raises(IsADirectoryError) as inside:
        fill(out, Path.read_text)
    assert inside.value.filename == str(out)
    with pytest.raises(FileNotFoundError) as outside:
        fill(out, lambda _: (tmp_path / "absent").read_text())
    assert outside.value.filename == str(tmp_path / "absent")
    assert [str(path) for path in tmp_path.rglob("*")] == ([str(out)] if exists else [])

    def write_both(folder: Path) -> None:
        out.mkdir(exist_ok=True)
        (out / "x").write_text("theirs")

    with pytest.raises(FileExistsError, match="out already exists"):
        fill(out, write_both)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "x"]


def test_the_folder_of_a_killed_process_is_removed_and_of_a_live_one_is_not(tmp_path: Path):
    out = tmp_path / "out"
    code = (
        "import sys; from pathlib import Path; from data.files import new_folder\n"
        "with new_folder(Path(sys.argv[1])) as folder: print(folder, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        temporary = Path(writer.stdout.readline().strip())
        check_vacant(out)
        assert temporary.is_dir()
        writer.send_signal(signal.SIGKILL)
    assert temporary.is_dir()
    fill(out)
    assert sorted(os.listdir(out)) == ["deep", "y"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_folder_is_replaced_only_when_asked_and_never_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "out"
    fill(out, lambda folder: (folder / "old").touch())
    with pytest.raises(FileExistsError, match="already exists"):
        fill(out)
    with monkeypatch.context() as patch:
        renames = iter([os.rename])
        patch.setattr(os, "rename", lambda *paths: next(renames)(*paths))  # killed before the second
        with pytest.raises(RuntimeError):
            fill(out, replace=True)
    (old,) = tmp_path.iterdir()
    assert old.name.startswith("out.old-")
    old.rename(out)
    fill(out, replace=True)
    assert sorted(os.listdir(out)) == ["deep", "y"]
    assert os.listdir(tmp_path) == ["out"]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        fill(tmp_path / "file", replace=True)
