"""A name means one model in all experiments of this repository."""

from pathlib import Path

import pytest

from compare.config.parse import load_experiment
from compare.models.presets import PRESETS
from tests.kits.paths import ROOT

SIZES = {"d_model", "num_heads", "embedding_size", "ffn_size", "hidden_size", "encoder_size"}
LAYERS = {"encoder_layers", "decoder_layers", "num_layers"}
SUITED_TO_DATA = {"dropout", "attention_dropout", "tie", "learning_rate", "schedule", "warmup_updates"}
"""Regularisation, what a joint vocabulary allows, and the optimizer."""


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.toml")), ids=lambda path: path.stem)
def test_a_model_with_the_label_of_a_preset_is_that_preset(path: Path):
    """Its mechanisms are the preset's; a model with others has a label of its own."""
    for model in load_experiment(path).models:
        if model.label in PRESETS:
            assert model.label == model.preset
            assert model.overrides.keys() <= SIZES | LAYERS | SUITED_TO_DATA, model.label
