"""Sizes in a result, against models that were really made."""

from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.run import resolve_model, resolve_models
from compare.config.sections import ModelConfig
from compare.experiment.compute_result import late_gain, size_figures
from compare.models.registry import build
from compare.results.run_folder import RunFolder
from compare.training.serialization import model_weights, save_weights

WORDS, WIDTH = 30, 16


@pytest.mark.parametrize(("tie", "matrices"), [("none", 2), ("output", 2), ("all", 1)])
@pytest.mark.parametrize(
    ("preset", "sizes"),
    [
        ("luong-dot", {"embedding_size": WIDTH, "hidden_size": WIDTH}),
        ("transformer", {"d_model": WIDTH, "ffn_size": WIDTH, "num_heads": 2}),
    ],
)
def test_a_tied_embedding_counts_once(
    preset: str, sizes: dict[str, int], tie: str, matrices: int, tiny_toml: Path, tmp_path: Path
):
    model = resolve_model(ModelConfig(preset=preset, label=preset, overrides={**sizes, "tie": tie}))
    run = RunFolder(run=resolve_models(load_experiment(tiny_toml))[0], folder=tmp_path)
    made = build(model.architecture, WORDS, WORDS)
    run.weights.parent.mkdir()
    save_weights(run.weights, model_weights(made))
    figures = size_figures(run, model.architecture, (WORDS, WORDS))
    assert figures["params"] == sum(tensor.numel() for tensor in made.parameters())
    assert figures["params"] - figures["params_no_embedding"] == matrices * WORDS * WIDTH


@pytest.mark.parametrize(
    ("curve", "gain"),
    [
        ([(25, 10.0), (50, 12.0), (75, 11.0), (100, 12.5)], 0.5),
        ([(25, 10.0), (50, 13.0), (75, 11.0), (100, 12.5)], 0.0),
        ([(25, 10.0), (50, 12.0), (76, 14.0), (100, 13.0)], 2.0),
        ([(90, 10.0), (100, 12.0)], None),
        ([(50, None), (100, None)], None),
        ([], None),
    ],
)
def test_the_gain_of_the_last_quarter(curve: list[tuple[int, float | None]], gain: float | None):
    lines = [{"kind": "valid", "update": update, "bleu": bleu} for update, bleu in curve]
    assert late_gain([{"kind": "train", "update": 1}, *lines]) == gain
