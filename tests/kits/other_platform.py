"""Run as a program: ``attnbench`` with the given arguments, on Linux made to lack what other systems lack.

Our packages cannot import modules of Unix, and its functions and signals are missing. As on Windows, folders
cannot be opened, files that are open for reading cannot be synced, open files cannot be renamed, and folders
are not replaced. Other packages ask ``sys.platform`` instead, so they are imported before.
"""

import builtins
import errno
import fcntl
import os
import shutil
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

OURS = {"compare", "data", "seq2seq", "transformer"}
OTHERS = "filelock matplotlib.pyplot pandas rich.progress sacrebleu sentencepiece torch torchtext zstandard"
UNIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
WINDOWS_MODULES = {"msvcrt", "winreg", "_winapi"}
UNIX_NAMES = {
    os: "O_DIRECTORY fork getloadavg geteuid killpg mkfifo nice sched_getaffinity sched_setaffinity",
    signal: "SIGALRM SIGHUP SIGKILL SIGPIPE SIGUSR1 SIGUSR2 alarm setitimer",
}
IMPORT, OPEN, FSYNC, REPLACE = builtins.__import__, os.open, os.fsync, os.replace


def import_(name: str, *arguments: Any, **keywords: Any) -> Any:
    namespace = arguments[0] if arguments else keywords.get("globals")
    importer = (namespace or {}).get("__name__", "").partition(".")[0]
    if importer in OURS and name in UNIX_MODULES | WINDOWS_MODULES:
        raise ModuleNotFoundError(f"No module named {name!r} on this system", name=name)
    return IMPORT(name, *arguments, **keywords)


def open_(path: Any, flags: int, *arguments: Any, **keywords: Any) -> int:
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "this system cannot open folders", str(path))
    return OPEN(path, flags, *arguments, **keywords)


def fsync(descriptor: int) -> None:
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "this system cannot sync what is open for reading")
    FSYNC(descriptor)


def replace(src: Any, dst: Any) -> None:
    links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    opened = [link.readlink() for link in links if link.is_symlink()]
    if any(path.is_relative_to(Path(src).resolve()) for path in opened):
        raise PermissionError(errno.EACCES, "this system cannot rename open files", str(src))
    if os.path.isdir(dst):
        raise PermissionError(errno.EACCES, "this system does not replace folders", str(dst))
    REPLACE(src, dst)


def become_another_system() -> None:
    for name in OTHERS.split():
        import_module(name)
    builtins.__import__ = import_
    for module, names in UNIX_NAMES.items():
        for name in names.split():
            delattr(module, name)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # else rmtree opens folders
    os.open, os.fsync, os.replace = open_, fsync, replace  # type: ignore[assignment]


if __name__ == "__main__":
    become_another_system()
    from compare.cli import main

    sys.exit(main(sys.argv[1:]))
