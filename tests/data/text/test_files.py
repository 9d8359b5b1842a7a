"""Atomic writing of files."""

import os
import resource
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import files
from data.files import append_whole, find_leftovers, temporary_path, write_atomically


@given(st.text() | st.binary())
def test_content_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, content: str | bytes):
    path = tmp_path_factory.getbasetemp() / "any"
    try:
        write_atomically(path, content)
    except UnicodeEncodeError:  # a lone surrogate is no text
        return
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_write_changes_nothing(
    call: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "result.json"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(error)):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_on_disk_before_it_gets_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    calls: list[str] = []
    fsync, rename = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        if calls[-1] == "file":
            assert os.fstat(descriptor).st_size == 3  # nothing left in a buffer
        fsync(descriptor)

    def renamed(source: Path, target: Path) -> None:
        calls.append("rename")
        assert Path(source).parent == Path(target).parent  # a rename across devices is a copy
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_atomically(tmp_path / "x", "new")
    assert calls == ["file", "rename", "folder"]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path):
    """Only their owner can read files of the tempfile module, a surprise on a shared machine."""
    (tmp_path / "plain").touch()
    write_atomically(tmp_path / "atomic", "")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


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
    assert path.read_text() == "first\n"
    append_whole(path, "ö\n")
    assert path.read_text(encoding="utf-8") == "first\nö\n"


@pytest.mark.parametrize(
    ("error", "is_leftover"),
    [
        (None, False),  # the process is running
        (PermissionError(), False),  # so is one of another user
        (OverflowError(), False),  # the number is none of this machine's
        (ProcessLookupError(), True),
    ],
)
def test_what_only_a_killed_process_can_have_written_is_left_over(
    error: Exception | None, is_leftover: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def kill(pid: int, signum: int) -> None:
        assert signum == 0
        if error is not None:
            raise error

    monkeypatch.setattr(os, "kill", kill)
    path = temporary_path(tmp_path / "result.json")
    path.touch()
    assert find_leftovers(tmp_path) == ([path] if is_leftover else [])


def test_what_a_process_of_another_machine_writes_is_not_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its process number says nothing here, in a folder that several machines share."""

    def kill(pid: int, signum: int) -> None:
        raise ProcessLookupError

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(files, "_HOST", "0123abcd")
        path = temporary_path(tmp_path / "result.json")
    monkeypatch.setattr(os, "kill", kill)
    path.touch()
    assert path.name.startswith(".result.json.0123abcd-")
    assert find_leftovers(tmp_path) == []
