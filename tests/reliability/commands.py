"""The commands that the kill test ends, each on an input of its own, and the files that each must leave."""

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from tests.conftest import TINY, write_corpus

OUT = "out"
"""What a command writes, in the folder of a series."""
SHORT = ["train.max_updates=24", "train.valid_every=12", "train.checkpoint_every=3"]
BENCH = ["--phase", "train,greedy", "--updates", "1", "--repeats", "1", "--batch", "2", "--steps", "2"]
TUNE = ["--trials", "2", "--updates", "12"]
STUDY = "distance"
"""The study that is fastest in quick mode."""

IMPORTS = [
    "compare.benchmark.benchmark",
    "compare.check.recompute",
    "compare.cli",
    "compare.experiment.publish",
    "compare.experiment.run",
    "compare.experiment.tune",
    "compare.report.html",
    "compare.report.views",
    "compare.studies.distance",
    "compare.studies.registry",
    "data.prepare",
    "torch._dynamo",
    "torch._inductor",
    "jinja2",
    "lxml.etree",
    "sacrebleu",
    "requests",
    "pydantic",
    "numpy.polynomial",
    "PIL.features",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.PpmImagePlugin",
]
"""Modules that commands import when they need them."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line and what has to be there before it."""

    name: str
    arguments: Callable[[Path], list[str]]
    """The arguments, from the folder of the series."""
    set_up: Callable[[Path], None] = lambda folder: None
    """Fills the folder of the series before the first call."""
    module: str = "compare"
    """What ``python -m`` starts in a real process."""
    resumes: bool = False
    """Whether a second call continues the first one's work instead of repeating it."""
    within: float = 1.0
    """It is killed within this part of its undisturbed duration and operations."""
    has_children: bool = False
    """Whether it starts processes, which are killed too."""
    undoes: bool = False
    """Whether a second call removes what an incomplete first one has written."""


def write_inputs(folder: Path, *, short: bool) -> Path:
    """Write a corpus and the tiny experiment of the other tests into a new folder; return its path."""
    folder.mkdir()
    root = write_corpus(folder / "corpus", {"train": 400, "valid": 8, "test": 8})
    text = TINY.format(root=root.as_posix())
    for setting in SHORT if short else ():
        key, value = setting.removeprefix("train.").split("=")
        before = next(line for line in text.splitlines() if line.startswith(f"{key} = "))
        text = text.replace(before, f"{key} = {value}", 1)
    (folder / "tiny.toml").write_text(text)
    return folder


def make_commands(inputs: Path, finished: Path) -> dict[str, Command]:
    """Make the commands by name.

    Args:
        inputs: the folder of ``write_inputs``.
        finished: the finished experiment that ``report`` and ``publish`` read; made later.
    """
    config, corpus = str(inputs / "tiny.toml"), [str(inputs / "corpus" / f"train.{x}") for x in ("en", "de")]

    def copy_finished(folder: Path) -> None:
        shutil.copytree(finished, folder / OUT)

    def make_empty(folder: Path) -> None:
        (folder / OUT).mkdir()

    def prepare(folder: Path) -> list[str]:
        return ["data", "prepare", *corpus, "--out", str(folder / OUT), "-q"]

    commands = [
        Command(
            name="run",
            arguments=lambda folder: ["run", config, "--out", str(folder / OUT), "-q"],
            resumes=True,
            within=0.1,
        ),
        Command(
            name="run --jobs 2",
            arguments=lambda folder: ["run", config, "--out", str(folder / OUT), "--jobs", "2", "-q"],
            resumes=True,
            within=0.8,
            has_children=True,
        ),
        Command(
            name="tune",
            arguments=lambda folder: ["tune", config, *TUNE, "--out", str(folder / OUT), "-q"],
            resumes=True,
            within=0.1,
        ),
        Command(
            name="tune --jobs 2",
            arguments=lambda folder: ["tune", config, *TUNE, "--out", str(folder / OUT), "--jobs", "2", "-q"],
            resumes=True,
            within=0.8,
            has_children=True,
        ),
        Command(name="prepare", arguments=prepare),
        Command(name="prepare-into", arguments=prepare, set_up=make_empty, undoes=True),
        Command(
            name="report",
            arguments=lambda folder: ["report", str(folder / OUT), "-q"],
            set_up=copy_finished,
        ),
        Command(
            name="publish",
            arguments=lambda folder: ["publish", str(finished), "--out", str(folder / OUT)],
        ),
        Command(
            name="study",
            arguments=lambda folder: ["study", STUDY, "--out", str(folder / OUT), "-q"],
            module="tests.reliability.quick_study",
        ),
        Command(
            name="bench",
            arguments=lambda folder: ["bench", config, *BENCH, "--out", str(folder / OUT / "b.json"), "-q"],
        ),
    ]
    return {command.name: command for command in commands}


def warm_up() -> None:
    """Import what the commands import, so that forked processes need not."""
    for name in IMPORTS:
        with suppress(ImportError):  # other packages' modules differ from version to version
            import_module(name)


def main(arguments: Sequence[str]) -> int:
    """Run a command as ``python -m compare`` does, but studies are quick, and corpora need processes."""
    import compare.studies
    import data.parallel
    import data.text
    from compare.cli import main as run_command

    if list(arguments[:2]) == ["data", "prepare"]:
        data.parallel.SERIAL_BLOCKS = 0
        data.parallel.available_cores = lambda: 2
        data.text.BLOCK_BYTES = 256  # several requests to each process

    compare.studies.run_study = partial(compare.studies.registry.run_study, quick=True)
    return run_command(list(arguments))


def run_in_child(arguments: Sequence[str], errors: Path, before: Callable[[], None]) -> None:
    """Run a command in a process that has just been forked, and end the process.

    Args:
        arguments: of the command.
        errors: the file for standard error; standard output is discarded.
        before: called first.
    """
    status = 70
    try:
        for descriptor, path in ((1, os.devnull), (2, str(errors))):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        before()
        status = main(arguments)
    except KeyboardInterrupt:  # before or after the command, as when Python starts or ends
        status = 130
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)
