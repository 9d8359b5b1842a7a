"""Files of training as life damages them: states, weights and logs that are cut short or foreign."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from compare.results.run_folder import load_model
from compare.training.checkpoints import FINAL, STATE, average, load_state
from compare.training.log import read_metrics
from data.batches import BatchStream
from tests.kits.common import ROWS
from tests.kits.training import bleus, make_stream, trainer

stream = pytest.fixture(scope="module")(make_stream)


def test_a_state_cut_short_is_refused(stream: BatchStream, tmp_path: Path):
    trainer(stream, tmp_path, bleus(1), max_updates=1).run()
    path = tmp_path / "checkpoints" / STATE
    content = path.read_bytes()
    for damaged in (b"", content[:-1], random.Random(0).randbytes(500)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"trainer\.pt: damaged trainer state") as caught:
            load_state(path)
        assert "\n" not in str(caught.value)
    assert load_state(tmp_path / "absent") is None


class Bomb:
    """Unpickling it would make a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self.target,)


def test_a_state_is_read_without_running_code(tmp_path: Path):
    torch.save({"progress": Bomb(tmp_path / "made")}, tmp_path / STATE)
    with pytest.raises(ValueError, match=r"trainer\.pt: damaged trainer state"):
        load_state(tmp_path / STATE)
    assert not (tmp_path / "made").exists()


@pytest.fixture
def weights(finished: Path, tmp_path: Path) -> Path:
    """The weights of a finished run, which may be spoilt."""
    return Path(shutil.copytree(finished / ROWS[0], tmp_path / ROWS[0])) / "checkpoints" / FINAL


def test_missing_weights_are_named(weights: Path):
    weights.unlink()
    with pytest.raises(ValueError, match=r"final\.safetensors: no such weights"):
        load_model(weights.parents[1])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda weights: weights.pop("output.bias"), "'output.bias' is only in the file or only in"),
        (lambda weights: weights.update({"output.bias": torch.zeros(1)}), "output.bias is (1,)"),
        (lambda weights: weights["output.bias"].fill_(torch.nan), "output.bias holds NaN"),
    ],
)
def test_weights_of_another_model_are_refused(
    weights: Path, change: Callable[[dict[str, torch.Tensor]], Any], reason: str
):
    changed = load_file(weights)
    change(changed)
    save_file(changed, weights)
    with pytest.raises(ValueError, match=r"final\.safetensors") as caught:
        load_model(weights.parents[1])
    assert reason in str(caught.value)


def test_the_average_of_files_is_the_mean_of_floats_and_the_last_of_counters(tmp_path: Path):
    paths = [tmp_path / f"{number}.safetensors" for number in range(3)]
    floats = [torch.tensor([1.0, 2e-8]), torch.tensor([3.0, 0.0]), torch.tensor([8.0, 1e-8])]
    for path, tensor, count in zip(paths, floats, (10, 20, 30), strict=True):
        save_file({"x": tensor, "count": torch.tensor(count)}, path)
    mean = average(paths)
    torch.testing.assert_close(mean["x"], torch.tensor([4.0, 1e-8]), rtol=1e-6, atol=0)
    assert mean["count"].equal(torch.tensor(30))


def test_a_log_is_read_up_to_a_last_line_cut_short(tmp_path: Path):
    path, line = tmp_path / "metrics.jsonl", '{"kind": "valid", "update": 1, "bleu": null}\n'
    path.write_text(f'{line}{{"kind": "tra')
    assert read_metrics(path) == [{"kind": "valid", "update": 1, "bleu": None}]
    path.write_text(f'{{"kind": "tra\n{line}')
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 1: not a JSON object"):
        read_metrics(path)
