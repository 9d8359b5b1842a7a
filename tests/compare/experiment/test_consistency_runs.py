"""A whole experiment with consistency regularisation: the same batches, and twice the FLOPs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compare.cli import main
from tests.kits.training import ROWS

pytestmark = pytest.mark.slow


def result(folder: Path, row: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / row / "result.json").read_text())
    return content


def test_a_regularised_experiment(
    run_tiny: Callable[..., Path], finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = run_tiny(tmp_path / "run", "regularization.consistency=simcut", "train.max_updates=40")
    for row in ROWS:
        found, plain = result(folder, row), result(finished, row)
        assert found["consistency"] == "simcut, weight 3, cut 0.05"
        assert "consistency" not in plain
        assert found["batch_hash"] == plain["batch_hash"]
        assert found["train_flops_per_token"] == 2 * plain["train_flops_per_token"]
    assert main(["check", str(folder), "-q"]) == 0
    capsys.readouterr()
    assert main(["table", str(folder), str(finished)]) == 0
    printed = capsys.readouterr().out
    assert "consistency simcut, weight 3, cut 0.05" in printed
    warning = next(line for line in printed.splitlines() if "do not share their settings" in line)
    assert "consistency" in warning
