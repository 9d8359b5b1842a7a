"""``run --track``: a tracker gets each line of metrics.jsonl once, and no failure of it stops a run."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compare import TrackingReporter, load_experiment, run_experiment
from compare.experiment.launch import Launch
from compare.training.log import read_metrics
from tests.kits.common import ROWS, Refusal

Lines = list[tuple[int, dict[str, float]]]


class StandIn:
    """In place of wandb: init gives a run that is open already, unless reinit="create_new" says otherwise."""

    __spec__ = "installed"

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

        begin = max((update + 1 for update, _ in self.lines[name]), default=0)

        def log(values: dict[str, float], step: int) -> None:
            if step >= begin:  # others are dropped
                self.lines[name].append((step, values))

        run = SimpleNamespace(log=log, finish=finish)
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
    others = ("kind", "update", "chosen", "machine", "code", "torch")
    return [
        (
            line["update"],
            {f"{line['kind']}/{k}": v for k, v in line.items() if k not in others and v is not None},
        )
        for line in lines
    ]


def replay(reporter: TrackingReporter, folder: Path, runs: Sequence[str] = ROWS, *, end: int | None = None):
    """Report the first lines of the logs of runs side by side, as a training reports them."""
    logs = {run: read_metrics(folder / run / "metrics.jsonl")[:end] for run in runs}
    with reporter.trainings() as show:
        for number in range(max(map(len, logs.values()))):
            for run, lines in logs.items():
                for line in lines[number : number + 1]:
                    show(run, 90, {"kind": "update", "update": line["update"]})
                    show(run, 90, line)


@pytest.mark.parametrize("launch", [None, Launch(jobs=2)])
def test_a_run_sends_each_line_of_its_log(
    wandb: StandIn, tiny_toml: Path, tmp_path: Path, launch: Launch | None
):
    folder = tmp_path / "tracked"
    experiment = load_experiment(tiny_toml, ["train.max_updates=4"])
    run_experiment(experiment, folder, TrackingReporter(folder, "wandb"), launch=launch, tests=False)
    assert wandb.lines == {run: expected(folder, run) for run in ROWS}
    assert any("valid/bleu" in values for _, values in wandb.lines[ROWS[0]])
    assert sorted(wandb.finished) == sorted(ROWS)
    assert {options["project"] for options in wandb.options} == {"tracked"}
    assert wandb.options[0]["config"]["train.max_updates"] == 4


def test_a_continued_run_continues_in_the_tracker(wandb: StandIn, copy: Path):
    for end in (3, None):
        replay(TrackingReporter(copy, "wandb"), copy, end=end)
        assert wandb.lines == {run: expected(copy, run)[:end] for run in ROWS}
    assert sorted(wandb.finished) == sorted([*ROWS, *ROWS])
    (copy / ROWS[0] / "wandb.id").unlink()  # a run begun again, in a new folder
    replay(TrackingReporter(copy, "wandb"), copy)
    assert len({options["id"] for options in wandb.options}) == len(ROWS) + 1


def test_a_tracker_that_fails_is_a_warning(
    wandb: StandIn,
    copy: Path,
    tiny_toml: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refusal: Refusal,
):
    def fail(**_: Any) -> None:
        raise ConnectionError("no route to host\nand more")

    monkeypatch.setattr(wandb, "init", fail)
    replay(TrackingReporter(copy, "wandb"), copy)
    (failed,) = [message for message in caplog.messages if "wandb" in message]
    assert failed.startswith("wandb is not used any more: ConnectionError: no route to host; metrics.jsonl")
    error = refusal("run", tiny_toml, "--out", copy, "--track", "wandbb", "--quiet")
    assert error == "unknown tracker 'wandbb'; did you mean 'wandb'?"


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_the_figures_of_the_log(copy: Path):
    pytest.importorskip("tensorboard", reason="not installed: pip install 'attnbench[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for run in ROWS:
        replay(TrackingReporter(copy, "tensorboard"), copy, [run], end=4)  # a killed run repeats these
        replay(TrackingReporter(copy, "tensorboard"), copy, [run])
        events = EventAccumulator(str(copy / "trackers" / "tensorboard" / run))
        events.Reload()
        losses = [
            (step, values["train/loss"]) for step, values in expected(copy, run) if "train/loss" in values
        ]
        assert [event.step for event in events.Scalars("train/loss")] == [step for step, _ in losses]
        assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(
            [v for _, v in losses], rel=1e-6
        )
        assert "train.max_updates = 90" in str(events.Tensors("config/text_summary"))
