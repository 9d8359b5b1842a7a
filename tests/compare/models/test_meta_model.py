"""A model on the meta device: that of training but for its values, or an error if no machine can hold it."""

import sys

import pytest
import torch

from compare.models import registry as meta_model
from compare.models.registry import build, build_meta_model, ensure_fits_memory, training_bytes
from tests.kits.contract import VARIANTS, tiny


def test_it_has_the_parameters_and_buffers_of_the_built_model():
    for name, tie in VARIANTS:
        architecture = tiny(name, tie).architecture
        meta, built = build_meta_model(architecture, 13, 13), build(architecture, 13, 13)
        found, expected = (
            {key: (tensor.shape, tensor.dtype) for key, tensor in model.state_dict().items()}
            for model in (meta, built)
        )
        assert found == expected, name
        assert len(list(meta.parameters())) == len(list(built.parameters())), name  # ties are counted once
        assert all(parameter.is_meta and parameter.requires_grad for parameter in meta.parameters()), name


def test_nothing_is_drawn():
    before = torch.get_rng_state()
    build_meta_model(tiny("transformer").architecture, 13, 13)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_moving_average_is_a_fifth_copy_of_the_weights():
    model = build_meta_model(tiny("transformer").architecture, 13, 13)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert (training_bytes(model, ema=False), training_bytes(model, ema=True)) == (4 * weights, 5 * weights)


def test_memory_that_holds_training_alone_holds_no_moving_average(monkeypatch: pytest.MonkeyPatch):
    architecture = tiny("transformer").architecture
    enough = training_bytes(build_meta_model(architecture, 13, 13), ema=False)
    monkeypatch.setattr(meta_model, "physical_memory_bytes", lambda: enough)
    ensure_fits_memory(architecture, 13, 13, training=True, context="model")
    with pytest.raises(ValueError, match="for weights, moving average, gradients and optimizer"):
        ensure_fits_memory(architecture, 13, 13, training=True, context="model", ema=True)


def test_a_size_that_no_machine_can_count_is_refused():
    with pytest.raises(ValueError, match="no machine can hold this model"):
        build_meta_model(tiny("transformer").architecture, sys.maxsize, 13)
