"""``run --track``: a tracker gets each line of metrics.jsonl once, and no failure of it stops a run."""

import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from compare import track_metrics
from compare.cli import main
from compare.integrations import trackers
from compare.training.metrics_log import read_metrics
from tests.kits.cli import Refusal

RUNS = ("luong-seed1", "transformer-seed1")


class StandIn(ModuleType):
    """A package with the calls of wandb: init(...) gives a run with its next step, log(...) and finish().

    While a run of wandb is open, init gives that run back unless reinit="create_new" says otherwise.
    """

    def __init__(self) -> None:
        super().__init__("wandb")
        self.lines: dict[str, list[tuple[int, dict[str, float]]]] = defaultdict(list)
        self.options: list[dict[str, Any]] = []
        self.finished: list[str] = []
        self.open: list[Any] = []

    def init(self, *, project: str, name: str, config: dict[str, Any], resume: str, **options: Any) -> Any:
        self.options.append({"project": project, "name": name, "config": config, "resume": resume, **options})
        module = self
        if self.open and options.get("reinit") != "create_new":
            return self.open[-1]

        class Run:
            step = max((update + 1 for update, _ in module.lines[name]), default=0)

            def log(self, values: dict[str, float], step: int) -> None:
                module.lines[name].append((step, values))

            def finish(self) -> None:
                module.finished.append(name)
                module.open.remove(self)

        self.open.append(Run())
        return self.open[-1]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    module = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def expected(folder: Path, run: str) -> list[tuple[int, dict[str, float]]]:
    """The numbers of a log, under the names that trackers show."""
    return [
        (
            line["update"],
            {
                f"{line['kind']}/{key}": value
                for key, value in line.items()
                if key not in ("kind", "update", "chosen") and value is not None
            },
        )
        for line in read_metrics(folder / run / "metrics.jsonl")
    ]


def test_every_line_is_sent_once(package: StandIn, copy: Path):
    with track_metrics(copy, "wandb"):
        pass
    assert {run: package.lines[run] for run in RUNS} == {run: expected(copy, run) for run in RUNS}
    assert any("valid/bleu" in values for _, values in package.lines[RUNS[0]])
    assert sorted(package.finished) == sorted(RUNS)
    assert {each["project"] for each in package.options} == {"copy"}
    assert package.options[0]["config"]["train.max_updates"] == 90
    with track_metrics(copy, "wandb"):
        pass
    assert {run: package.lines[run] for run in RUNS} == {run: expected(copy, run) for run in RUNS}


def test_lines_of_runs_side_by_side_are_not_mixed(
    package: StandIn, copy: Path, tiny_toml: Path, refusal: Refusal
):
    error = refusal("run", tiny_toml, "--out", copy, "--track", "wandbb", "--quiet")
    assert error == "unknown tracker 'wandbb'; did you mean 'wandb'?"
    for run in RUNS:
        log = copy / run / "metrics.jsonl"
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))  # none has ended
    with track_metrics(copy, "wandb"):
        pass
    assert {run: len(package.lines[run]) for run in RUNS} == dict.fromkeys(RUNS, 3)
    assert sorted(package.finished) == sorted(RUNS)


def test_lines_are_sent_as_they_are_written(package: StandIn, copy: Path, monkeypatch: pytest.MonkeyPatch):
    """Half a line waits; a log that a continued run has cut back is not sent twice; a new run is sent."""
    monkeypatch.setattr(trackers, "POLL_S", 0.01)
    log = copy / RUNS[0] / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    (copy / RUNS[1] / "metrics.jsonl").unlink()

    def sent(number: int) -> None:
        deadline = time.monotonic() + 60
        while len(package.lines[RUNS[0]]) < number and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(package.lines[RUNS[0]]) == number

    log.write_bytes(b"".join(lines[:5]) + lines[5][:10])
    with track_metrics(copy, "wandb"):
        sent(5)
        with log.open("ab") as file:
            file.write(lines[5][10:])
        sent(6)
        replace(log, lines[:3])
        replace(log, lines[:8])
        sent(8)
    assert package.lines[RUNS[0]] == expected(copy, RUNS[0])
    assert package.finished == [RUNS[0]]  # at the end, as its log has no final line


def replace(path: Path, lines: list[bytes]) -> None:
    path.with_suffix(".new").write_bytes(b"".join(lines))
    path.with_suffix(".new").replace(path)


def test_a_tracker_that_fails_is_a_warning_and_the_run_goes_on(
    package: StandIn,
    copy: Path,
    tiny_toml: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr("compare.report.figures.draw_plots", lambda folder: [])

    def init(**_: Any) -> None:
        raise ConnectionError("no route to host\nand more")

    package.init = init  # type: ignore[method-assign]
    assert main(["run", str(tiny_toml), "--out", str(copy), "--track", "wandb"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("| model")
    warning = "wandb left out: ConnectionError: no route to host; metrics.jsonl of each run has"
    assert captured.err.count(warning) == 1


def test_a_tracker_that_hangs_is_left(
    package: StandIn, copy: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    forever = threading.Event()
    monkeypatch.setattr(package, "init", lambda **_: forever.wait(60))
    monkeypatch.setattr(trackers, "END_S", 0.05)
    with track_metrics(copy, "wandb"):
        pass
    assert "wandb does not answer: left out" in caplog.text
    forever.set()


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_the_figures_of_the_log(copy: Path):
    pytest.importorskip(
        "tensorboard", reason="tensorboard is not installed: pip install 'attnbench[tensorboard]'"
    )
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):
        with track_metrics(copy, "tensorboard"):
            pass
    for run in RUNS:
        events = EventAccumulator(str(copy / "trackers" / "tensorboard" / run))
        events.Reload()
        losses = [
            (step, values["train/loss"]) for step, values in expected(copy, run) if "train/loss" in values
        ]
        found = events.Scalars("train/loss")
        assert [each.step for each in found] == [step for step, _ in losses]
        assert [each.value for each in found] == pytest.approx([loss for _, loss in losses], rel=1e-6)
        assert "train.max_updates = 90" in str(events.Tensors("config/text_summary"))
