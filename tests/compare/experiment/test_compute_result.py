"""Sizes in a result, against models that were really made, and speeds, against repeats made up."""

import json
from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.config.resolve_model import resolve_model
from compare.config.run import resolve_models
from compare.config.sections import ModelConfig
from compare.experiment.compute_result import compute_figures, size_figures
from compare.experiment.prepare import prepare_data
from compare.models.registry import build
from compare.results.run_folder import RunFolder
from compare.training.serialization import model_weights, save_weights
from tests.kits.runs import ROWS

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


def test_speeds_are_medians_and_percentiles_of_their_own_repeats(copy: Path, tmp_path: Path):
    folder = RunFolder.read(copy / ROWS[0])
    timed = {
        "greedy": {"sentences": 6, "tokens": 60, "seconds": [9.0, 2.0, 1.0]},
        "beam": {"sentences": 6, "tokens": 90, "seconds": [3.0, 30.0, 1.0]},
        "latency_ms": [float(ms) for ms in range(101, 0, -1)],
        "decode_s": 7.0,
    }
    folder.speed.write_text(json.dumps({**json.loads(folder.speed.read_text()), **timed}))
    figures = compute_figures(folder, prepare_data(folder.run, tmp_path / "encoded"))
    expected = {
        "greedy_sentences_per_s": 3.0,
        "beam_sentences_per_s": 2.0,
        "decode_tokens_per_s": 30.0,
        "latency_ms_p50": 51,
        "latency_ms_p95": 96,
        "decode_s": 7.0,
    }
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
