"""New folders: where they may be, what a process leaves that was killed, and what messages name."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from data import files as module
from data.files import MOVED, check_vacant, new_folder
from tests.kits.cli import Refusal, real
from tests.kits.raw_data import made_up, two_files

CODE = """
import os, sys
from pathlib import Path
from data.files import new_folder
with new_folder(Path(sys.argv[1])) as folder:
    for name in ("a", "b", "c"):
        (folder / name).write_text(name)
    {action}
"""
WAIT = "print(folder, flush=True); sys.stdin.read()"
KILLED_WHILE_MOVING = "os.rename = lambda *paths: os.replace(*paths) if paths[0].name == 'a' else os.abort()"
KILLED_AFTER_MOVING = "import shutil; shutil.rmtree = lambda *_, **__: os.abort()"
NEW = [
    "experiment.toml",
    "manifest.json",
    "test.de",
    "test.en",
    "train.de",
    "train.en",
    "valid.de",
    "valid.en",
]


def write_x(folder: Path) -> None:
    (folder / "x").write_text("text")


def fill(out: Path, write: Callable[[Path], object] = write_x) -> None:
    with new_folder(out) as folder:
        write(folder)


def process(out: Path, action: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CODE.format(action=action), str(out)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("out", [".", "new", "deep/er", "empty", "link", "dangling", "chain", "ü" * 120])
def test_data_prepare_takes_any_folder_that_is_new_or_empty(out: str, tmp_path: Path):
    src, tgt = two_files(tmp_path, made_up(20))
    work = tmp_path / "work"
    for name in ("empty", "elsewhere"):
        (work / name).mkdir(parents=True) if out != "." else work.mkdir(exist_ok=True)
    if out != ".":
        (work / "link").symlink_to("elsewhere")
        (work / "dangling").symlink_to(tmp_path / "made")
        (work / "chain").symlink_to("link")
    shell = work.stat().st_ino
    done = subprocess.run(
        [sys.executable, "-m", "compare", "data", "prepare", str(src), str(tgt), "--out", out],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(work / out)) == NEW
    assert work.stat().st_ino == shell  # a shell whose working directory it is sees the files
    assert not [path for path in tmp_path.rglob(".*") if path.name != "."]
    for link in ("link", "dangling", "chain"):
        assert out == "." or (work / link).is_symlink()


def test_what_cannot_be_a_new_folder_is_refused_before_the_work(tmp_path: Path, refusal: Refusal):
    """The sources are not there: a message about --out shows that they have not been looked for."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".hidden").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("full")
    before = sorted(tmp_path.rglob("*"))
    for name, part in {
        "file": "holds something already",
        "full": "holds something already",
        "link": "holds something already",
        "file/new": f"cannot be created: {tmp_path / 'file'} is a file, not a folder",
        "loop": "is a symbolic link that leads back to itself",
    }.items():
        message = refusal("data", "prepare", "absent.en", "absent.de", "--out", tmp_path / name)
        assert message.startswith(f"{tmp_path / name} {part}"), message
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_that_cannot_be_written_is_named_before_the_work(
    tmp_path: Path, exists: bool, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
):
    src, tgt = two_files(tmp_path, made_up(20))
    out = tmp_path / "out"
    if exists:
        out.mkdir()

    def denied(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", denied)
    monkeypatch.setattr("data.prepare.run_first_pass", None)  # not reached
    assert refusal("data", "prepare", src, tgt, "--out", out) == f"{out}: Permission denied"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc, where nobody may make a folder")
def test_a_real_system_that_refuses_is_quoted(tmp_path: Path):
    src, tgt = two_files(tmp_path, made_up(20))
    done = real("data", "prepare", src, tgt, "--out", "/proc/new")
    assert done.returncode == 2
    assert done.stderr == "error: /proc/new: No such file or directory\n"


@pytest.mark.parametrize("exists", [False, True])
def test_errors_name_the_folder_and_not_the_temporary_one(tmp_path: Path, exists: bool):
    out = tmp_path / "out"
    if exists:
        out.mkdir()
    with pytest.raises(IsADirectoryError) as inside:
        fill(out, Path.read_text)
    assert inside.value.filename == str(out)
    with pytest.raises(FileNotFoundError) as outside:
        fill(out, lambda _: (tmp_path / "absent").read_text())
    assert outside.value.filename == str(tmp_path / "absent")
    assert os.listdir(tmp_path) == (["out"] if exists else [])


@pytest.mark.parametrize("exists", [False, True])
def test_what_another_process_writes_meanwhile_is_kept(tmp_path: Path, exists: bool):
    out = tmp_path / "out"
    if exists:
        out.mkdir()

    def write_both(folder: Path) -> None:
        write_x(folder)
        out.mkdir(exist_ok=True)
        (out / "x").write_text("theirs")

    with pytest.raises(FileExistsError, match="out holds something already"):
        fill(out, write_both)
    assert (out / "x").read_text() == "theirs"
    assert os.listdir(out) == ["x"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_failed_move_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rename = os.rename

    def full(source: Path, target: Path) -> None:
        if source.name == "b":
            raise OSError(errno.ENOSPC, "No space left on device", str(source))
        rename(source, target)

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space left") as caught:
        fill(tmp_path, lambda folder: [(folder / name).write_text(name) for name in "abc"])
    assert caught.value.filename == str(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("exists", [False, True])
def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_live_one_is_not(
    tmp_path: Path, exists: bool
):
    out = tmp_path / "out"
    if exists:
        out.mkdir()
    with process(out, WAIT) as writer:
        assert writer.stdout is not None
        temporary = Path(writer.stdout.readline().strip())
        assert temporary.is_dir()
        if exists:
            with pytest.raises(FileExistsError, match="out: another process is writing to this folder"):
                check_vacant(out)
        else:
            check_vacant(out)
        assert sorted(os.listdir(temporary)) == ["a", "b", "c"]
        writer.send_signal(signal.SIGKILL)
    assert temporary.is_dir()
    fill(out)
    assert os.listdir(out) == ["x"]
    assert os.listdir(tmp_path) == ["out"]


def test_the_folders_of_another_target_or_machine_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with process(tmp_path / "other", "os.abort()") as writer:
        pass
    assert writer.returncode == -signal.SIGABRT
    with monkeypatch.context() as patch:
        patch.setattr("data.files._HOST", "0123abcd")
        check_vacant(tmp_path / "other")
    (tmp_path / ".out.0123456789abcdef.tmp").mkdir()
    fill(tmp_path / "out")
    assert len(os.listdir(tmp_path)) == 3
    fill(tmp_path / "other")
    assert sorted(os.listdir(tmp_path)) == [".out.0123456789abcdef.tmp", "other", "out"]


def test_a_process_that_is_killed_while_it_fills_an_existing_folder(tmp_path: Path):
    with process(tmp_path, KILLED_WHILE_MOVING) as writer:
        pass
    assert writer.returncode == -signal.SIGABRT
    left = sorted(os.listdir(tmp_path))
    assert left[1:] == ["a"]
    assert json.loads((tmp_path / left[0] / MOVED).read_text()) == ["a", "b", "c"]
    fill(tmp_path)
    assert os.listdir(tmp_path) == ["x"]


def test_a_second_interrupt_while_moves_are_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What tells a later call which files to move back is kept until all of them are."""
    rename = os.rename

    def interrupted(source: Path, target: Path) -> None:
        if source.name == "b":
            raise KeyboardInterrupt
        rename(source, target)

    def interrupted_again(*_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", interrupted)
        patch.setattr("data.files._undo_moves", interrupted_again)
        with pytest.raises(KeyboardInterrupt):
            fill(tmp_path, lambda folder: [(folder / name).write_text(name) for name in "abc"])
    assert "a" in os.listdir(tmp_path)
    monkeypatch.setattr("data.files._is_running", lambda pid: False)
    fill(tmp_path)
    assert os.listdir(tmp_path) == ["x"]


def test_a_process_that_is_killed_after_it_has_filled_a_folder(tmp_path: Path):
    with process(tmp_path, KILLED_AFTER_MOVING) as writer:
        pass
    assert writer.returncode == -signal.SIGABRT
    with pytest.raises(FileExistsError, match="holds something already"):
        check_vacant(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


@pytest.mark.parametrize("exists", [False, True])
def test_kills_of_data_prepare_leave_nothing_behind(tmp_path: Path, exists: bool):
    src, tgt = two_files(tmp_path, made_up(3_000) * 60)
    out = tmp_path / "parent" / "out"
    if exists:
        out.mkdir(parents=True)
    command = [sys.executable, "-m", "compare", "data", "prepare", str(src), str(tgt), "--out", str(out)]
    for _ in range(3):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not list(tmp_path.glob("parent/**/.out.*.tmp")) and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert len(list(tmp_path.glob("parent/**/.out.*.tmp"))) == 1
    small = two_files(tmp_path, made_up(30), "small")
    assert real("data", "prepare", *small, "--out", out).returncode == 0
    assert os.listdir(tmp_path / "parent") == ["out"]
    assert sorted(os.listdir(out)) == NEW


def write_tree(folder: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "x").write_text("new")


@pytest.mark.parametrize("exists", [False, True])
def test_folders_in_a_new_folder(tmp_path: Path, exists: bool, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "out"
    if exists:
        out.mkdir()
    fill(out, write_tree)
    assert (out / "deep" / "er" / "x").read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


def test_folders_that_were_moved_are_moved_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rename = os.rename

    def interrupted(source: Path, target: Path) -> None:
        rename(source, target)
        if source.name == "deep":
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path, lambda folder: [write_tree(folder), (folder / "x").touch()])
    assert os.listdir(tmp_path) == []


def replace_tree(out: Path) -> None:
    with new_folder(out, replace=True) as folder:
        write_tree(folder)


def test_a_folder_is_replaced_only_when_asked(tmp_path: Path):
    out = tmp_path / "out"
    fill(out)
    with pytest.raises(FileExistsError, match="holds something already"):
        fill(out, write_tree)
    replace_tree(out)
    assert os.listdir(out) == ["deep"]
    assert os.listdir(tmp_path) == ["out"]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        replace_tree(tmp_path / "file")


@pytest.mark.parametrize("operation", ["rename", "replace"])
def test_a_folder_that_cannot_be_replaced_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
):
    out = tmp_path / "out"
    fill(out)
    original, failed = getattr(os, operation), []

    def fail_once(source: Path, target: Path) -> None:
        if not failed:
            failed.append(source)
            raise KeyboardInterrupt
        original(source, target)

    monkeypatch.setattr(os, operation, fail_once)
    with pytest.raises(KeyboardInterrupt):
        replace_tree(out)
    assert failed
    assert os.listdir(out) == ["x"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_process_that_is_killed_between_the_renames_loses_nothing(tmp_path: Path):
    out = tmp_path / "out"
    fill(out)
    killed = "import os; os.replace = lambda *_: os.abort()"
    code = CODE.format(action=killed).replace("Path(sys.argv[1])", "Path(sys.argv[1]), replace=True")
    done = subprocess.run([sys.executable, "-c", code, str(out)], check=False)
    assert done.returncode == -signal.SIGABRT
    assert not out.exists()
    check_vacant(out, replace=True)
    assert os.listdir(out) == ["x"]
    assert os.listdir(tmp_path) == ["out"]
