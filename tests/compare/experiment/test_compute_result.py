"""Sizes in a result, against models that were really made."""

from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.run import resolve_model, resolve_models
from compare.config.sections import ModelConfig
from compare.experiment.compute_result import size_figures
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
