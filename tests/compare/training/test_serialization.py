"""Saved states and weights that are damaged, foreign or hold code: refused in one line."""

import pickle
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from compare.results.run_folder import load_model
from compare.training.serialization import FINAL, STATE, average, load_state, save_state
from data.batches import BatchStream
from tests.kits.training import ROWS, bleus, make_stream, trainer

stream = pytest.fixture(scope="module")(make_stream)


class Bomb:
    """Unpickling it would write a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.write_text, (self.target, "boom")


PICKLERS = [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))]
"""With torch's wrapping and without."""


@pytest.mark.parametrize("save", PICKLERS)
def test_a_state_that_holds_code_is_refused_and_not_run(stream: BatchStream, tmp_path: Path, save: Any):
    run = trainer(stream, tmp_path, bleus(1))
    save({"progress": Bomb(tmp_path / "boom")}, run.checkpoints.folder / STATE)
    with pytest.raises(ValueError, match="damaged trainer state") as caught:
        run.run()
    assert not (tmp_path / "boom").exists()
    assert "\n" not in str(caught.value)


def test_a_state_cut_short_or_altered_is_refused(stream: BatchStream, tmp_path: Path):
    trainer(stream, tmp_path, bleus(1)).run()
    path = tmp_path / "checkpoints" / STATE
    content = path.read_bytes()
    for size in [0, 1, 3, 100, len(content) // 2, len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"trainer\.pt: damaged trainer state") as caught:
            load_state(path)
        assert "\n" not in str(caught.value)
    assert load_state(tmp_path / "absent") is None


def test_bytes_of_noise_are_no_state(tmp_path: Path):
    path = tmp_path / STATE
    path.write_bytes(random.Random(0).randbytes(500))
    with pytest.raises(ValueError, match="damaged trainer state"):
        load_state(path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state["weights"].popitem(),
        lambda state: state["weights"].update(more=torch.zeros(1)),
        lambda state: state["weights"].update({"output.bias": torch.zeros(1)}),  # would broadcast
        lambda state: state["weights"].update({"output.bias": torch.zeros(19)}),
        lambda state: state.pop("progress"),
        lambda state: state.pop("weights"),
        lambda state: state["progress"].update(unheard_of=1),
        lambda state: state["optimizer"]["param_groups"].clear(),
        lambda state: state.update(rng=torch.zeros(3, dtype=torch.uint8)),
    ],
)
def test_the_state_of_another_model_or_program_is_refused(
    stream: BatchStream, tmp_path: Path, spoil: Callable[[dict[str, Any]], Any]
):
    trainer(stream, tmp_path, bleus(1), max_updates=2).run()
    path = tmp_path / "checkpoints" / STATE
    state = load_state(path)
    assert state is not None
    spoil(state)
    save_state(path, state)
    with pytest.raises(ValueError, match=r"trainer\.pt") as caught:
        trainer(stream, tmp_path, bleus(1), max_updates=4).run()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["betas", "eps", "weight_decay", "amsgrad", "foreach", "lr"])
def test_a_setting_that_the_state_lacks_is_that_of_the_run(stream: BatchStream, tmp_path: Path, name: str):
    """States of other versions of torch may lack one; the settings of the run decide in any case."""
    whole, lacking = (tmp_path / part for part in ("whole", "lacking"))
    for folder in (whole, lacking):
        trainer(stream, folder, bleus(1), max_updates=2).run()
    path = lacking / "checkpoints" / STATE
    state = load_state(path)
    assert state is not None
    del state["optimizer"]["param_groups"][0][name]
    save_state(path, state)
    for folder in (whole, lacking):
        trainer(stream, folder, bleus(1), max_updates=4).run()
    weights = [load_file(folder / "checkpoints" / FINAL) for folder in (whole, lacking)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


@pytest.fixture
def finished_copy(finished: Path, tmp_path: Path) -> Path:
    """A row of the finished experiment that may be spoilt."""
    subprocess.run(["cp", "-r", finished / ROWS[0], tmp_path], check=True)
    return tmp_path / ROWS[0]


def test_damaged_weights_are_refused(finished_copy: Path):
    path = finished_copy / "checkpoints" / FINAL
    content = path.read_bytes()
    for size in [0, 7, 60, len(content) // 2, len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(
            ValueError, match=r"final\.safetensors: not a readable safetensors file"
        ) as caught:
            load_model(finished_copy)
        assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(ValueError, match=r"final\.safetensors: no such weights"):
        load_model(finished_copy)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda weights: weights.pop("output.bias"),
            "'output.bias' is only in the file or only in the model",
        ),
        (
            lambda weights: weights.update(other=torch.zeros(2)),
            "'other' is only in the file or only in the model",
        ),
        (lambda weights: weights.update({"output.bias": torch.zeros(1)}), "output.bias is (1,)"),
    ],
)
def test_weights_of_another_size_are_refused(
    finished_copy: Path, change: Callable[[dict[str, torch.Tensor]], Any], reason: str
):
    path = finished_copy / "checkpoints" / FINAL
    weights = load_file(path)
    change(weights)
    save_file(weights, path)
    with pytest.raises(ValueError, match=r"final\.safetensors") as caught:
        load_model(finished_copy)
    assert reason in str(caught.value)


def test_counters_are_not_averaged(tmp_path: Path):
    """Those of a batch norm, for example, are those of the last checkpoint, of their own type."""
    paths = [tmp_path / f"{number}.safetensors" for number in (1, 2)]
    for path, weight, count in zip(paths, (1.0, 4.0), (10, 20), strict=True):
        save_file({"weight": torch.tensor([weight]), "count": torch.tensor(count)}, path)
    mean = average(paths)
    assert mean["weight"].equal(torch.tensor([2.5]))
    assert mean["count"].equal(torch.tensor(20))
