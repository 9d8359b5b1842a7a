"""Commands that are killed, or whose power is cut: nothing is lost, and the same command again ends as ever.

``make kill-test`` kills each command at 300 operations on files (``ATTNBENCH_KILLS=300``), and cuts the power
as often under each command that trains.
"""

import gzip
import json
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch

from data.download import Remote
from data.files import hash_file
from data.named import CORPORA, NamedCorpus
from tests.conftest import TINY, write_corpus
from tests.kits.common import differences, leftovers, read_contents

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")]
KILLS = int(os.environ.get("ATTNBENCH_KILLS", "0"))
"""Kills of each command; 0: three of a command that resumes, two of another, by all signals in turn."""
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
FILE_EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        *("tests.test_kills", "compare.cli", "compare.experiment.run", "compare.experiment.tune"),
        *("compare.report.publish", "compare.report.html"),
        *("compare.report.result_table", "data.prepare"),
        *("torch._dynamo", "sacrebleu", "matplotlib.backends.backend_svg", "PIL.PngImagePlugin"),
    ]
)
"""Processes are forked from one that has imported what commands import when they need it."""


class Command(NamedTuple):
    """A command line, in which {out} is what it writes, and what has to be there before it."""

    arguments: str
    resumes: bool = False
    """Whether a second call continues the work of the first."""
    set_up: Callable[[Path, Path], object] = lambda finished, out: None
    """Called with the finished experiment and ``out`` before the first call."""


COMMANDS = {
    "run": Command("run {config} --out {out} -q", resumes=True),
    "tune": Command("tune {config} --trials 1 --updates 12 --out {out} -q", resumes=True),
    "prepare": Command(
        "data prepare {corpus}/train.en {corpus}/train.de --out {out} -q", set_up=lambda _, out: out.mkdir()
    ),
    "report": Command("report {out} -q", set_up=shutil.copytree),
    "publish": Command("publish {finished} --out {out}"),
    "budgets": Command("run {config} --set train.budgets=[9,18] --out {out} -q", resumes=True),
    "fine-tuning": Command("run {config} --set train.init_from={finished} --out {out} -q", resumes=True),
    "time-again": Command("run {config} --time-again --out {out} -q", set_up=shutil.copytree),
    "table": Command("table {out}", set_up=lambda *folders: outdated(*folders)),
    "plot": Command("plot {out} -q", set_up=shutil.copytree),
    "score": Command(
        "score {finished}/luong-seed1 --src {corpus}/test.en --ref {corpus}/test.de --out {out} -q"
    ),
    "external": Command(
        "score {out} --external 'fixed={finished}.{{run}}' -q", set_up=lambda *folders: with_scores(*folders)
    ),
    "export": Command("export {finished}/transformer-seed1 --out {out}"),
    "save_pretrained": Command("save_pretrained {finished}/luong-seed1 {out}"),
    "get": Command("data get multi30k --out {out}"),
}


def with_scores(finished: Path, out: Path) -> None:
    """Copy an experiment, and write scores of its translations beside it."""
    shutil.copytree(finished, out)
    for path in out.glob("*/test.hyp"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        finished.with_name(f"{finished.name}.{path.parent.name}").write_text("1\n" * lines)


def outdated(finished: Path, out: Path) -> None:
    """Copy an experiment whose tables ``table`` writes again."""
    shutil.copytree(finished, out)
    for path in (*out.glob("table.*"), out / "results.jsonl"):
        path.write_text("old")


def small_corpus(corpus: NamedCorpus, folder: Path) -> NamedCorpus:
    """The named corpus, with files of ``folder`` in the place of its downloads."""
    folder.mkdir(exist_ok=True)
    files = {}
    for name in corpus.files:
        (folder / name).write_bytes(gzip.compress(b"one\ntwo\n", mtime=0))
        files[name] = Remote(hash=f"sha256:{hash_file(folder / name)}", mirrors=((folder / name).as_uri(),))
    return msgspec.structs.replace(corpus, files=files)


def run(arguments: list[str], errors: Path, at: int, signum: int) -> None:
    """Run a command in this new process, which sends itself a signal before its ``at``-th operation on files.

    Operations are: opening for writing, renaming, removing, making and truncating; and before and after
    fsync. Standard error, and a last line with the number of operations, go to a file.
    """
    import matplotlib.figure

    import compare
    import data.formats
    import data.workers
    from compare.cli import main

    CORPORA["multi30k"] = small_corpus(CORPORA["multi30k"], errors.parent / "published")

    data.workers.SERIAL_BLOCKS, data.formats.BLOCK_PAIRS = 0, 10  # several blocks for each of two processes
    data.workers.available_cores = lambda: 2
    # Drawing takes most of the time; the files of plots are written all the same.
    matplotlib.figure.Figure.savefig = lambda _, file, **__: file.write(b"<svg></svg>")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    count, fsync = 0, os.fsync

    def operation() -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signum)

    def hook(event: str, details: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)
        if is_write or event in FILE_EVENTS:
            operation()

    def counted_fsync(descriptor: int) -> None:
        operation()
        fsync(descriptor)
        operation()

    os.fsync = counted_fsync
    sys.addaudithook(hook)
    status, call = 70, main
    if arguments[0] == "save_pretrained":
        call = lambda words: (compare.save_pretrained(*words[1:]), 0)[1]  # noqa: E731
    try:
        status = call(arguments)
        os.write(2, f"{count}\n".encode())
    except FileExistsError as error:  # raised by save_pretrained, which is no command
        os.write(2, f"{error}\n".encode())
    except KeyboardInterrupt:  # before or after the command, as when Python starts or ends
        status = 130
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def start(arguments: list[str], errors: Path, at: int = 0, signum: int = 0) -> Any:
    process = PROCESSES.Process(target=run, args=(arguments, errors, at, signum))
    process.start()
    return process


def end(process: Any, errors: Path) -> tuple[int, str]:
    """Wait for a process; returns its exit status and standard error."""
    process.join(300)
    assert process.exitcode is not None, "it hangs"
    text = errors.read_text()
    assert "Traceback" not in text
    return process.exitcode, text


def saved(folder: Path) -> dict[str, int]:
    """Read every file; the update of each trainer state, and how many runs have ended."""
    results = [json.loads(path.read_bytes())["status"] for path in folder.rglob("*-seed*/result.json")]
    updates = {
        str(path): torch.load(path, weights_only=True)["progress"]["update"]
        for path in folder.rglob("trainer.pt")
    }
    return {"ended": sum(status != "unfinished" for status in results), **updates}


class Inputs(NamedTuple):
    """The tiny experiment, and what it gives undisturbed."""

    config: Path
    corpus: Path
    finished: Path


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder = tmp_path_factory.mktemp("inputs")
    corpus = write_corpus(folder / "corpus", {"train": 400, "valid": 8, "test": 8})
    text = TINY.format(root=corpus.as_posix())
    for name, new in (("max_updates", 12), ("valid_every", 6), ("checkpoint_every", 3)):
        before = next(line for line in text.splitlines() if line.startswith(name))
        text = text.replace(before, f"{name} = {new}", 1)
    (folder / "tiny.toml").write_text(text)
    made = Inputs(folder / "tiny.toml", corpus, folder / "finished" / "out")
    made.finished.parent.mkdir()
    command = ["run", str(made.config), "--out", str(made.finished), "-q"]
    assert end(start(command, folder / "errors"), folder / "errors")[0] == 0
    return made


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_loses_and_leaves_nothing(name: str, inputs: Inputs, tmp_path: Path):
    """One that resumes is killed again and again before it may finish."""
    command, out, errors = COMMANDS[name], tmp_path / "killed" / "out", tmp_path / "errors"

    def begin(out: Path) -> list[str]:
        shutil.rmtree(out.parent, ignore_errors=True)
        out.parent.mkdir()
        command.set_up(inputs.finished, out)
        return [word.format(out=out, **inputs._asdict()) for word in shlex.split(command.arguments)]

    undisturbed = tmp_path / "undisturbed" / "out"
    status, text = end(start(begin(undisturbed), errors), errors)
    assert status == 0, text
    operations, reference = int(text.split()[-1]), read_contents(undisturbed)
    within = operations // 3 if command.resumes else operations
    kills = KILLS or (3 if command.resumes else 2)
    first = list(COMMANDS).index(name)  # with few kills, other signals for each command
    for number in range(kills):
        if status == 0 or not command.resumes:
            arguments = begin(out)
        before = saved(out)
        at = 1 + (2 * number + 1) * within // (2 * kills)
        process = start(arguments, errors, at, SIGNALS[(first + number) % len(SIGNALS)])
        status, _ = end(process, errors)
        after = saved(out)
        assert all(after.get(key, value) >= value for key, value in before.items())
        if status == 0 or not command.resumes or number == kills - 1:
            again, text = end(start(arguments, errors), errors)
            assert again == 0 or "already" in text, text
            assert differences(read_contents(out), reference) == []
            assert leftovers(out.parent) == []


def test_processes_share_an_experiment_of_which_some_are_killed(inputs: Inputs, tmp_path: Path):
    """Two at a time, twice, one of them killed; a run that another works on is left out."""
    arguments = ["run", str(inputs.config), "--out", str(tmp_path / "out"), "-q"]
    for number, signum in enumerate(SIGNALS[:2]):
        names = [tmp_path / "errors", tmp_path / "other errors"]
        both = [start(arguments, names[0], 40 * (number + 1), signum), start(arguments, names[1])]
        statuses = [end(process, errors)[0] for process, errors in zip(both, names, strict=True)]
        assert statuses[1] in (0, 1)
    assert end(start(arguments, tmp_path / "errors"), tmp_path / "errors")[0] == 0
    assert differences(read_contents(tmp_path / "out"), read_contents(inputs.finished)) == []
    assert leftovers(tmp_path) == []


# Power cuts: a copy of the disk while the process stands still holds what has reached the disk, and no more.


MOUNTS = ["defaults", "data=writeback,noauto_da_alloc,commit=1", "data=writeback,noauto_da_alloc,commit=100"]
"""Options of ext4: by the last two, names reach the disk before or long after what they name."""


class Disk:
    """An ext4 file system in a file."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.image, self.folder, self.mounts = image, folder, 0
        folder.mkdir()
        subprocess.run(["truncate", "--size", "64M", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        self.empty = self.read()

    def mount(self) -> None:
        """Mount it, with other options each time."""
        options = f"loop,{MOUNTS[self.mounts % len(MOUNTS)]}"
        self.mounts += 1
        subprocess.run(["mount", "-o", options, self.image, self.folder], check=True, capture_output=True)

    def read(self) -> bytes:
        """Return what the disk holds, at a moment without writing by the kernel."""
        content = self.image.read_bytes()
        while (again := self.image.read_bytes()) != content:
            content = again
        return content

    def replace(self, content: bytes) -> None:
        """Unmount it and write what it holds from now on."""
        subprocess.run(["umount", self.folder], check=False, capture_output=True)
        self.image.write_bytes(content)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk that this user may mount, in memory, where fsync takes no time."""
    memory = Path("/dev/shm")
    try:
        with tempfile.NamedTemporaryFile(dir=memory if memory.is_dir() else tmp_path) as image:
            disk = Disk(Path(image.name), tmp_path / "mounted")
            disk.mount()
            yield disk
            disk.replace(b"")
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no ext4 file system can be mounted here: {error}")


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.resumes])
def test_a_power_cut_loses_no_result(name: str, inputs: Inputs, disk: Disk, tmp_path: Path):
    """The power is cut once or twice, some times just after the end, before the command may finish."""
    errors, out = tmp_path / "errors", disk.folder / "out"
    arguments = shlex.split(COMMANDS[name].arguments.format(out=out, **inputs._asdict()))
    status, text = end(start(arguments, errors), errors)
    assert status == 0, text
    operations, reference = int(text.split()[-1]), read_contents(out)
    disk.replace(disk.empty)
    cuts = KILLS or 2
    for number in range(cuts):
        disk.mount()
        at = 1 + (2 * number + 1) * (operations + operations // 4) // (2 * cuts)
        process = start(arguments, errors, at, signal.SIGSTOP)
        with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
            while "State:\tT" not in Path(f"/proc/{process.pid}/status").read_text():
                time.sleep(0.01)
        content = disk.read()
        process.kill()
        process.join()
        disk.replace(content)
        if number % 2 or number == cuts - 1:
            disk.mount()
            status, text = end(start(arguments, errors), errors)
            assert status == 0, text
            assert differences(read_contents(out), reference) == []
            assert leftovers(disk.folder) == []
            disk.replace(disk.empty)
