"""``check`` of runs whose weights may be averages: honest ones agree, another choice does not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compare.check.recompute import check_experiment
from compare.results.store import read_results
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


def test_another_choice_than_the_best_is_found(honest: Path, tmp_path: Path):
    """The log says that the weights of the last validation were chosen, though an average was better."""
    folder = Path(shutil.copytree(honest, tmp_path / "edited"))
    for row in ROWS:
        lines = lines_of(folder / row)
        lines[-1]["chosen"] = "update 1"
        (folder / row / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    differences = [each.name for each in check_experiment(folder).differences]
    assert differences.count("metrics.jsonl: chosen of the final line") == len(ROWS)
