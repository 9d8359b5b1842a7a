"""The benchmark: who runs when, on which batches, and what is made of the times."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compare import bench
from compare.bench import WARM_UP_UPDATES, bench_experiment, render
from compare.cli import main
from compare.models import build, resolve
from compare.parse import load_experiment
from compare.prepare import prepare
from data.batch import Batch

LABELS = ["luong", "transformer"]


class Stage:
    """Stands in for the training step: notes every call and puts the clock forward by the next seconds."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self.now, self.seconds = 50.0, seconds
        self.calls: list[tuple[int, Batch]] = []

    def step(self, objective: Any, optimizer: Any, batch: Batch, *, precision: str, clip_norm: float) -> None:
        self.calls.append((id(objective), batch))
        self.now += next(self.seconds)


@pytest.fixture
def staged(tiny_toml: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Stage, dict[str, Any], list[str]]:
    """2 updates a turn, 3 turns: warm-up steps take 100 s each, the timed ones 1, 2, 3, ... s."""
    warm_up = [100.0] * (2 * WARM_UP_UPDATES)
    stage = Stage(iter([*warm_up, *map(float, range(1, 13))]))
    monkeypatch.setattr(bench, "train_step", stage.step)
    monkeypatch.setattr(bench.time, "perf_counter", lambda: stage.now)
    monkeypatch.setattr(bench, "matmul_flops_per_s", lambda device, precision, seconds: 1e9)
    said: list[str] = []
    report = bench_experiment(load_experiment(tiny_toml), updates=2, repeats=3, say=said.append)
    return stage, report, said


def test_the_models_take_turns_on_the_same_batches(staged: tuple[Stage, dict[str, Any], list[str]]):
    stage, _, said = staged
    who = [caller for caller, _ in stage.calls]
    first, second = dict.fromkeys(who)
    assert who == [first] * 3 + [second] * 3 + ([first] * 2 + [second] * 2) * 3
    fed = [[batch.rows.tolist() for caller, batch in stage.calls if caller == one] for one in (first, second)]
    assert fed[0] == fed[1]
    assert fed[0][3:5] == fed[0][5:7] == fed[0][7:9]  # every turn on the same two
    assert not set(map(tuple, fed[0][:3])) & set(map(tuple, fed[0][3:]))  # none of the warm-up's
    assert [line.split(":")[0] for line in said[-6:]] == [
        f"{k}/3 {name}" for k in (1, 2, 3) for name in LABELS
    ]


def test_speeds_are_real_tokens_over_the_time_of_a_turn(staged: tuple[Stage, dict[str, Any], list[str]]):
    stage, report, _ = staged
    timed = [batch for _, batch in stage.calls[6:8]]
    tokens = sum(int(batch.src_mask.sum()) - len(batch) + int(batch.tgt_mask.sum()) for batch in timed)
    turns = [1 + 2, 3 + 4, 5 + 6, 7 + 8, 9 + 10, 11 + 12]
    for place, model in enumerate(report["models"]):
        assert model["tokens_per_s"] == pytest.approx([tokens / turn for turn in turns[place::2]])
    assert report["updates"] == 2
    assert report["tgt_tokens_per_update"] == sum(int(batch.tgt_mask.sum()) for batch in timed) / 2


def test_the_report_says_what_was_timed_and_where(
    staged: tuple[Stage, dict[str, Any], list[str]], tiny_toml: Path, tmp_path: Path
):
    _, report, _ = staged
    assert json.loads(json.dumps(report)) == report
    assert {
        "yardstick_flops_per_s",
        "precision",
        "device",
        "threads",
        "torch",
        "code_version",
    } < report.keys()
    experiment = load_experiment(tiny_toml)
    prepared = prepare(experiment, tmp_path, lambda text: None)
    for row, model in zip(experiment.models, report["models"], strict=True):
        made = build(resolve(row).architecture, *(len(side) for side in prepared.vocabularies))
        assert model["label"] == row.label
        assert model["params"] == sum(parameter.numel() for parameter in made.parameters())
        assert model["flops_per_token"] > 2 * model["params"]  # forward and backward


def test_the_table_shows_medians_and_shares():
    models = [
        {"label": "a", "params": 1_500_000, "flops_per_token": 4e6, "tokens_per_s": [90.0, 10.0, 50.0]},
        {"label": "b", "params": 20_000, "flops_per_token": 5e5, "tokens_per_s": [1234.0, 1000.0, 1500.0]},
    ]
    report = {
        "models": models,
        "updates": 7,
        "tgt_tokens_per_update": 3210.4,
        "yardstick_flops_per_s": 1e9,
        "precision": "bf16",
        "device": "abacus",
        "threads": 2,
        "torch": "9.9",
        "code_version": "x",
    }
    text = render(report)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:3]]
    assert rows == [["a", "1.50", "50", "10-90", "4.0", "20%"]]  # 50 * 4e6 / 1e9
    assert "62%" in text.splitlines()[3]  # 1234 * 5e5 / 1e9
    assert "abacus, torch 9.9, 2 threads, bf16; 7 updates of 3,210 real target tokens, median of 3" in text
    assert "yardstick: 1 GFLOP/s" in text


def test_the_command_trains_for_real(
    tiny_toml: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "matmul_flops_per_s", lambda device, precision, seconds: 1e9)
    assert main(["bench", str(tiny_toml), "--updates", "2", "--repeats", "2", "--json", "-q"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert captured.err == ""
    assert [model["label"] for model in report["models"]] == LABELS
    assert all(len(model["tokens_per_s"]) == 2 for model in report["models"])
    assert all(speed > 0 for model in report["models"] for speed in model["tokens_per_s"])
    assert not list(tmp_path.iterdir())


def test_too_few_batches_are_a_mistake(tiny_toml: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", str(tiny_toml), "-q", "--set", "train.batch_tokens=100000"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "too few to time; lower train.batch_tokens" in error
    assert error.count("\n") == 1
