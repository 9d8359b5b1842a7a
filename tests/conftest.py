"""Shared fixtures: a tiny experiment and the built-in corpus, each made once per session."""

import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compare.cli import main
from compare.config.parse import load_experiment
from compare.experiment.run import run_experiment
from compare.report.result_table import find_summary
from compare.results.store import read_results
from compare.system import timer
from compare.system.log import Reporter, hide_messages, show_messages
from data.grammar import AlignedPair, embedded_splits
from tests.kits.common import Refusal
from tests.kits.web import Server, serving

WORDS = {
    "red": "rot",
    "old": "alt",
    "small": "klein",
    "dog": "Hund",
    "cat": "Katze",
    "tree": "Baum",
    "sees": "sieht",
}

TINY = (Path(__file__).parent / "kits" / "tiny.toml").read_text(encoding="utf-8")


def pytest_configure() -> None:
    """Ctrl-C is ignored in what a script starts with "&", and in the processes that the tests start then."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that hold slow tests: one that begins last keeps a single process busy."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def write_corpus(root: Path, sizes: dict[str, int]) -> Path:
    """A made-up language pair, word for word and back to front; no sentence is drawn from a clock."""
    rng = random.Random(7)
    root.mkdir()
    for name, size in sizes.items():
        english = [rng.choices(list(WORDS), k=rng.randint(2, 7)) for _ in range(size)]
        german = [[WORDS[word] for word in reversed(line)] for line in english]
        for language, lines in (("en", english), ("de", german)):
            (root / f"{name}.{language}").write_text("".join(" ".join(line) + "\n" for line in lines))
    return root


@pytest.fixture(scope="session", autouse=True)
def no_reference_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep times of tests, some by made-up clocks, out of the user's folder; the work takes 5 ms, not 60."""
    timer.CACHE = tmp_path_factory.mktemp("cache")
    timer.ReferenceWork.SIZE, timer.ReferenceWork.STEPS = 256, 25


@pytest.fixture(scope="session")
def tiny_toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small rows; about 65 batches an epoch, so that 90 updates end in the second."""
    folder = tmp_path_factory.mktemp("tiny")
    root = write_corpus(folder / "corpus", {"train": 400, "valid": 8, "test": 8})
    path = folder / "tiny.toml"
    path.write_text(TINY.format(root=root.as_posix()))
    return path


@pytest.fixture(scope="session")
def run_tiny(tiny_toml: Path) -> Callable[..., Path]:
    """Runs the tiny experiment, with overrides, into a folder."""

    def run(folder: Path, *overrides: str) -> Path:
        run_experiment(load_experiment(tiny_toml, overrides), folder, Reporter())
        return folder

    return run


@pytest.fixture(scope="session")
def finished(run_tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny experiment, run to its end without a break, with its summary."""
    folder = run_tiny(tmp_path_factory.mktemp("finished") / "run")
    find_summary(folder, read_results(folder))  # otherwise the first command writes it
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """The finished experiment, to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Runs a command that must be refused; gives what follows "error: "."""

    def refuse(*arguments: str | Path) -> str:
        assert main([str(argument) for argument in arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
        assert captured.err.endswith("\n")
        return captured.err.removeprefix("error: ").rstrip("\n")

    return refuse


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes ``attnbench run`` draw nothing: that takes longer than training the tiny models."""
    monkeypatch.setattr("compare.report.plots.draw_plots", lambda folder: [])


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves all drawings empty: they take most of the time of a report."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, file, **__: file.write(b"<svg></svg>"))


@pytest.fixture
def show_log() -> Iterator[Callable[..., None]]:
    """Prints log messages to standard error, as a command does, until the test ends."""
    yield show_messages
    hide_messages()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A web server of our own, asked without detours."""
    monkeypatch.setenv("no_proxy", "*")
    with serving() as running:
        yield running


@pytest.fixture(scope="session")
def splits() -> dict[str, list[AlignedPair]]:
    return embedded_splits()
