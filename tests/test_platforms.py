"""The program without the modules, signals and file operations that Windows or macOS lacks.

This file, run as a program, runs commands, given as JSON, on such a system, imitated on Linux: our packages,
which each command imports anew, cannot import modules of Unix; as on Windows, folders cannot be opened, files
that are open for reading cannot be synced, open files cannot be renamed, and folders are not replaced. Other
packages are imported before.
"""

import builtins
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.kits.common import ROOT
from tests.kits.processes import attnbench

OURS = {"compare", "data", "seq2seq", "transformer"}
OTHERS = "filelock matplotlib.pyplot pandas rich.progress sacrebleu sentencepiece torch._dynamo torchtext"
MISSING = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty", "msvcrt", "winreg"}
UNIX_NAMES = {
    os: "O_DIRECTORY fork getloadavg geteuid killpg mkfifo nice sched_getaffinity sched_setaffinity",
    signal: "SIGALRM SIGHUP SIGKILL SIGPIPE SIGUSR1 SIGUSR2 alarm setitimer",
}


def become_another_system() -> None:
    import fcntl

    import_, open_, fsync, replace = builtins.__import__, os.open, os.fsync, os.replace

    def limited_import(name: str, *arguments: Any, **keywords: Any) -> Any:
        namespace = arguments[0] if arguments else keywords.get("globals")
        importer = (namespace or {}).get("__name__", "").partition(".")[0]
        if importer in OURS and name in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r} on this system", name=name)
        return import_(name, *arguments, **keywords)

    def limited_open(path: Any, flags: int, *arguments: Any, **keywords: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "this system cannot open folders", str(path))
        return open_(path, flags, *arguments, **keywords)

    def limited_fsync(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "this system cannot sync what is open for reading")
        fsync(descriptor)

    def limited_replace(src: Any, dst: Any) -> None:
        links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
        opened = [link.readlink() for link in links if link.is_symlink()]
        if os.path.isdir(dst) or any(path.is_relative_to(Path(src).resolve()) for path in opened):
            raise PermissionError(
                errno.EACCES, "this system replaces neither folders nor open files", str(src)
            )
        replace(src, dst)

    builtins.__import__ = limited_import
    for module, names in UNIX_NAMES.items():
        for name in names.split():
            delattr(module, name)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # else rmtree opens folders
    os.open, os.fsync, os.replace = limited_open, limited_fsync, limited_replace  # type: ignore[assignment]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="imitates other systems on Linux")
def test_experiments_and_corpora_are_made_on_other_systems(tiny_toml: Path, tmp_path: Path):
    root, run, mine = tiny_toml.parent / "corpus", tmp_path / "run", tmp_path / "mine"
    mine.mkdir()
    commands = [
        ["doctor"],
        ["run", tiny_toml, "--out", run, "--set", "train.max_updates=4", "--set", "train.valid_every=4"],
        ["data", "prepare", root / "train.en", root / "train.de", "--out", mine],
        ["table", run],
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.test_platforms"],
        input=json.dumps([list(map(str, command)) for command in commands]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for status, errors in json.loads(done.stdout):
        assert status == 0, errors
    results = [json.loads(path.read_text()) for path in run.glob("*/result.json")]
    assert [result["status"] for result in results] == ["done", "done"]
    assert (mine / "manifest.json").is_file()
    assert "validation loss" in next(run.glob("*/log.txt")).read_text()


if __name__ == "__main__":
    for name in OTHERS.split():
        import_module(name)
    print(json.dumps([attnbench(command, become_another_system) for command in json.load(sys.stdin)]))
