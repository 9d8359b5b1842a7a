"""``run --track``: a tracker gets each line of metrics.jsonl once, and no failure of it stops a run."""

import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compare import track_metrics
from compare.integrations import trackers
from compare.training.log import read_metrics
from tests.kits.cli import Refusal
from tests.kits.runs import ROWS

Lines = list[tuple[int, dict[str, float]]]


class StandIn:
    """In place of wandb: init gives a run that is open already, unless reinit="create_new" says otherwise."""

    def __init__(self) -> None:
        self.lines: dict[str, Lines] = defaultdict(list)
        self.options: list[dict[str, Any]] = []
        self.finished: list[str] = []
        self.open: list[Any] = []

    def init(self, *, name: str, reinit: str = "", **options: Any) -> Any:
        self.options.append(options)
        if self.open and reinit != "create_new":
            return self.open[-1]

        def finish() -> None:
            self.finished.append(name)
            self.open.remove(run)

        run = SimpleNamespace(
            step=max((update + 1 for update, _ in self.lines[name]), default=0),
            log=lambda values, step: self.lines[name].append((step, values)),
            finish=finish,
        )
        self.open.append(run)
        return run


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    return stand_in


def expected(folder: Path, run: str) -> Lines:
    """The numbers of a log, under the names that trackers show."""
    lines = read_metrics(folder / run / "metrics.jsonl")
    others = ("kind", "update", "chosen", "machine")
    return [
        (
            line["update"],
            {f"{line['kind']}/{k}": v for k, v in line.items() if k not in others and v is not None},
        )
        for line in lines
    ]


def test_every_line_is_sent_once(wandb: StandIn, copy: Path):
    for _ in range(2):
        with track_metrics(copy, "wandb"):
            pass
        assert {run: wandb.lines[run] for run in ROWS} == {run: expected(copy, run) for run in ROWS}
    assert any("valid/bleu" in values for _, values in wandb.lines[ROWS[0]])
    assert sorted(wandb.finished) == sorted([*ROWS, *ROWS])
    assert {each["project"] for each in wandb.options} == {"copy"}
    assert wandb.options[0]["config"]["train.max_updates"] == 90
    (copy / ROWS[0] / "wandb.id").unlink()  # a run begun again, in a new folder
    with track_metrics(copy, "wandb"):
        pass
    identities = {each["id"] for each in wandb.options}
    assert len(identities) == len(ROWS) + 1


def test_lines_of_runs_side_by_side_are_not_mixed(wandb: StandIn, copy: Path):
    for run in ROWS:
        log = copy / run / "metrics.jsonl"
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))  # none has ended
    with track_metrics(copy, "wandb"):
        pass
    assert {run: len(wandb.lines[run]) for run in ROWS} == dict.fromkeys(ROWS, 3)
    assert sorted(wandb.finished) == sorted(ROWS)


def test_lines_are_sent_as_they_are_written(wandb: StandIn, copy: Path, monkeypatch: pytest.MonkeyPatch):
    """Half a line waits; a log that a continued run has cut back is sent once; a longer run is sent."""
    monkeypatch.setattr(trackers, "POLL_S", 0.01)
    log = copy / ROWS[0] / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    (copy / ROWS[1] / "metrics.jsonl").unlink()

    def sent(number: int) -> None:
        deadline = time.monotonic() + 60
        while len(wandb.lines[ROWS[0]]) < number and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(wandb.lines[ROWS[0]]) == number

    def replace(count: int, *more: bytes) -> None:
        log.with_suffix(".new").write_bytes(b"".join((*lines[:count], *more)))
        log.with_suffix(".new").replace(log)

    log.write_bytes(b"".join(lines[:5]) + lines[5][:10])
    with track_metrics(copy, "wandb"):
        sent(5)
        with log.open("ab") as file:
            file.write(lines[5][10:])
        sent(6)
        replace(3)
        replace(8)
        sent(8)
        assert wandb.lines[ROWS[0]] == expected(copy, ROWS[0])
        replace(6, b'{"kind":"train","update":999,"loss":1}\n')  # the last lines of a shorter training go
    assert wandb.lines[ROWS[0]][8:] == [(999, {"train/loss": 1})]
    assert wandb.finished == [ROWS[0]]  # at the end, as its log has no final line


def test_a_tracker_that_fails_or_hangs_is_a_warning(
    wandb: StandIn,
    copy: Path,
    tiny_toml: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refusal: Refusal,
):
    def fail(**_: Any) -> None:
        raise ConnectionError("no route to host\nand more")

    forever = threading.Event()
    monkeypatch.setattr(trackers, "END_S", 0.05)
    for init in (fail, lambda **_: forever.wait(60)):
        monkeypatch.setattr(wandb, "init", init)
        with track_metrics(copy, "wandb"):
            time.sleep(0.5)
    failed, hanging = caplog.messages
    assert failed.startswith("wandb left out: ConnectionError: no route to host; metrics.jsonl of each run")
    assert hanging.startswith("wandb does not answer: left out")
    forever.set()
    error = refusal("run", tiny_toml, "--out", copy, "--track", "wandbb", "--quiet")
    assert error == "unknown tracker 'wandbb'; did you mean 'wandb'?"


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_the_figures_of_the_log(copy: Path):
    pytest.importorskip("tensorboard", reason="not installed: pip install 'attnbench[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):
        with track_metrics(copy, "tensorboard"):
            pass
    for run in ROWS:
        events = EventAccumulator(str(copy / "trackers" / "tensorboard" / run))
        events.Reload()
        losses = {
            step: values["train/loss"] for step, values in expected(copy, run) if "train/loss" in values
        }
        found = {each.step: each.value for each in events.Scalars("train/loss")}
        assert found == pytest.approx(losses, rel=1e-6)
        assert "train.max_updates = 90" in str(events.Tensors("config/text_summary"))
