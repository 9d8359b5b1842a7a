"""Several budgets: each run gives what a training to its budget alone gives, whatever came before it."""

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.resolve import resolve_models
from compare.experiment.run import run_experiment
from compare.experiment.start import start_from_trunk
from compare.results.run_folder import RunFolder
from compare.results.store import read_results
from compare.training.checkpoints import CHECKPOINTS, FINAL, STATE, TRUNK
from tests.kits.common import ROOT
from tests.kits.experiments import edit_text
from tests.kits.training import metrics, same_weights

RUNS = ("luong-seed1", "transformer-seed1")
TIMES = ("seconds", "train_s", "data_s", "tokens_per_s", "validation_s", "checkpoint_s", "joules")
"""Fields of the log that differ between two trainings."""


HOLD = """
import sys
from contextlib import ExitStack
from pathlib import Path
from data.locks import lock_folder
with ExitStack() as locks:
    for folder in sys.argv[1:]:
        locks.enter_context(lock_folder(Path(folder)))
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def run_budgets(tiny_toml: Path) -> Callable[..., Path]:
    """Runs the tiny experiment with these budgets; Luong's model is trained by Muon, weights are averaged."""

    def run(folder: Path, *budgets: int) -> Path:
        settings = [f"train.budgets={list(budgets)}", "train.ema=0.9", "models.luong.optimizer=muon"]
        run_experiment(load_experiment(tiny_toml, settings), folder)
        return folder

    return run


@pytest.fixture(scope="module")
def alone(run_budgets: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The largest budget alone."""
    return run_budgets(tmp_path_factory.mktemp("alone") / "run", 61)


@pytest.fixture(scope="module")
def both(run_budgets: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two budgets. The trunk of the first ends between two log lines, validations and saves, at update 43."""
    return run_budgets(tmp_path_factory.mktemp("both") / "run", 54, 61)


def assert_equal_runs(folder: Path, expected: Path, budget: int = 61) -> None:
    for name in RUNS:
        here, there = folder / f"{name}-budget{budget}", expected / f"{name}-budget{budget}"
        assert same_weights(here / CHECKPOINTS / FINAL, there / CHECKPOINTS / FINAL)
        assert (here / "test.hyp").read_bytes() == (there / "test.hyp").read_bytes()
        lines = [
            [{key: value for key, value in line.items() if key not in TIMES} for line in metrics(run)]
            for run in (here, there)
        ]
        assert lines[0] == lines[1]


def test_a_budget_gives_what_it_gives_alone(both: Path, alone: Path):
    assert_equal_runs(both, alone)
    results = {result.run: result for result in read_results(both)}
    assert list(results) == [f"{name}-budget{budget}" for name in RUNS for budget in (54, 61)]
    assert [result.updates for result in results.values()] == [54, 61, 54, 61]
    assert len({result.settings_hash for result in (*results.values(), *read_results(alone))}) == 1


def test_a_larger_budget_continues_the_trunk(
    run_budgets: Callable[..., Path], both: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = run_budgets(tmp_path / "run", 54)
    first = {path: path.read_bytes() for path in folder.rglob("*.hyp")}
    with caplog.at_level(logging.INFO):
        run_budgets(folder, 54, 61)
    assert "luong-seed1-budget61: starts from update 43 of luong-seed1-budget54" in caplog.messages
    assert_equal_runs(folder, both)
    states = sorted(
        path.relative_to(folder / "luong-seed1-budget61")
        for path in folder.glob(f"luong-seed1-budget61/**/{STATE}")
    )
    assert states == [Path(CHECKPOINTS, TRUNK, STATE)]
    assert {path: path.read_bytes() for path in first} == first


def test_a_smaller_budget_can_be_added(
    run_budgets: Callable[..., Path], both: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = run_budgets(tmp_path / "run", 61)
    with caplog.at_level(logging.INFO):
        run_budgets(folder, 54, 61)
    assert_equal_runs(folder, both, 54)
    why = "starts from update 0, since no smaller budget has saved a state"
    assert f"luong-seed1-budget54: {why}" in caplog.messages


def test_a_lost_result_is_made_again_from_the_chosen_weights(
    run_budgets: Callable[..., Path], both: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = Path(shutil.copytree(both, tmp_path / "run"))
    (folder / "luong-seed1-budget61" / "result.json").unlink()
    with caplog.at_level(logging.INFO):
        run_budgets(folder, 54, 61)
    assert_equal_runs(folder, both)
    assert not any("starts from" in line or "continues" in line for line in caplog.messages)
    log = (folder / "luong-seed1-budget61" / "metrics.jsonl").read_bytes()
    assert log == (both / "luong-seed1-budget61" / "metrics.jsonl").read_bytes()


def test_the_longest_trunk_of_the_same_settings_is_continued(both: Path, tmp_path: Path):
    folder = Path(shutil.copytree(both, tmp_path / "run"))
    small, middle, large = (folder / f"luong-seed1-budget{budget}" for budget in (54, 61, 70))
    shutil.copytree(middle, large)
    edit_text(large / "config.toml", "budgets = [61]", "budgets = [70]")
    edit_text(large / "config.toml", "max_updates = 61", "max_updates = 70")
    for dropout, origin in (("0.3", middle), ("0.2", small)):
        edit_text(middle / "config.toml", "dropout = 0.3", f"dropout = {dropout}")
        shutil.rmtree(large / CHECKPOINTS)
        start_from_trunk(RunFolder.read(large))
        state, expected = large / CHECKPOINTS / STATE, origin / CHECKPOINTS / TRUNK / STATE
        assert state.read_bytes() == expected.read_bytes()


def test_a_deleted_trunk_is_named_and_trained_again(
    run_budgets: Callable[..., Path], both: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = run_budgets(tmp_path / "run", 54)
    shutil.rmtree(folder / "luong-seed1-budget54" / CHECKPOINTS / TRUNK)
    run_budgets(folder, 54, 61)
    assert any("luong-seed1-budget61" in line and TRUNK in line for line in caplog.messages)
    assert_equal_runs(folder, both)


def test_a_trunk_that_another_process_trains_is_left_to_it(
    run_budgets: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Both models are left out: the smaller budget, and the larger one, which would begin the trunk again."""
    folder = run_budgets(tmp_path / "run", 54)
    for name in RUNS:
        (folder / f"{name}-budget54" / "result.json").unlink()
    command = [sys.executable, "-c", HOLD, *(str(folder / f"{name}-budget54") for name in RUNS)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=ROOT
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        run_budgets(folder, 54, 61)
        other.communicate("")
    left_out = [line.split(" ")[1] for line in caplog.messages if "left out" in line]
    assert left_out == [f"{name}-budget{budget}:" for name in RUNS for budget in (54, 61)]
    assert not list(folder.glob("*-budget61"))


def test_each_run_of_an_experiment_has_one_budget(tiny_toml: Path):
    model, *_ = resolve_models(load_experiment(tiny_toml, ["train.budgets=[20,40]"]))
    assert [
        (run.train.budget, run.train.max_updates, run.train.branch_update) for run in model.by_budget()
    ] == [
        (20, 20, 16),
        (40, 40, 32),
    ]
    assert model.model.optim.schedule == "stable"
