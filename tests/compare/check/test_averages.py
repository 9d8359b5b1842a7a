"""``check`` of runs whose weights may be averages: honest ones agree, forged ones do not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compare.check.recompute import check_experiment
from compare.results.store import read_results
from compare.training.serialization import load_state, save_state
from tests.kits.cli import ROWS

SETTINGS = ("train.average=3", "train.average_every=12", "train.ema=0.9", "train.max_updates=80")


@pytest.fixture(scope="module")
def honest(run_tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny(tmp_path_factory.mktemp("averages") / "run", *SETTINGS)


def lines_of(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_honest_averages_have_no_difference(honest: Path):
    assert not check_experiment(honest, decode=10**6).differences
    chosen = {str(lines_of(honest / row)[-1]["chosen"]) for row in ROWS}
    assert chosen & {"average of updates [48, 60, 72]", "exponential moving average"}
    for result in read_results(honest):
        assert (result.average, result.average_every, result.ema) == (3, 12, 0.9)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("ema = 0.9", "ema = 0.0", "validation of the moving average: recorded 1, found 0"),
        ("average_every = 12", "average_every = 70", "validation of averaged weights: recorded 1, found 0"),
    ],
)
def test_other_averages_in_the_configs_are_found(
    honest: Path, tmp_path: Path, old: str, new: str, found: str
):
    folder = Path(shutil.copytree(honest, tmp_path / "forged"))
    for row in ROWS:
        config = folder / row / "config.toml"
        config.write_text(config.read_text().replace(old, new))
    differences = [str(each) for each in check_experiment(folder).differences]
    assert any(found in each for each in differences), differences


def test_weights_other_than_the_moving_average_are_found(honest: Path, tmp_path: Path):
    """The log says that the moving average was chosen, but the trainer state has another."""
    folder = Path(shutil.copytree(honest, tmp_path / "forged"))
    for row in ROWS:
        lines = lines_of(folder / row)
        lines[-1]["chosen"] = "exponential moving average"
        (folder / row / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        path = folder / row / "checkpoints" / "trainer.pt"
        state = load_state(path) or {}
        next(iter(state["ema"].values())).add_(1)
        save_state(path, state)
    differences = [str(each) for each in check_experiment(folder).differences]
    name = "checkpoints/final.safetensors: recorded the exponential moving average, found other weights"
    assert sum(name in each for each in differences) == len(ROWS), differences


def test_weights_whose_checkpoints_are_not_here_are_said_not_to_be_compared(honest: Path, tmp_path: Path):
    folder = Path(shutil.copytree(honest, tmp_path / "copied"))
    for path in folder.glob("*/checkpoints/*"):
        if path.name != "final.safetensors":
            path.unlink()
    said = (
        f"that the weights are those chosen in training, whose checkpoints are not here ({', '.join(ROWS)})"
    )
    assert said in check_experiment(folder).not_checked
    assert said not in check_experiment(honest).not_checked
