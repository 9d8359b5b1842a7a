"""The contract of compare/protocol.py, for every preset at tiny size."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from compare.integrations.verify import CHECKS, check_gradients, check_saving, check_seed
from seq2seq.config import RecurrentLanguageModelConfig
from tests.kits.contract import (
    TRANSLATING,
    VARIANTS,
    V,
    float64,
    make,
    sharpen,
    sharpened,
    sources,
    targets,
    tiny,
)

if TYPE_CHECKING:
    from compare.models.registry import Model

_float64 = pytest.fixture(autouse=True)(float64)
model = pytest.fixture(params=VARIANTS, ids="-".join)(sharpened)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_it_holds_to_the_contract(check: "Callable[[Model], None]", model: "Model"):
    check(model)


def test_ties_share_storage():
    for name, tie in VARIANTS:
        model = make(name, tie)
        if "tie" not in tiny(name).settings() or name not in dict(TRANSLATING):
            continue
        embeddings = [
            module.weight
            for module in model.modules()
            if isinstance(module, nn.Embedding) and module.num_embeddings <= V  # of tokens, not of positions
        ]
        assert any(weight is model.output.weight for weight in embeddings), name
        assert (len({id(weight) for weight in embeddings}) == 1) == (tie == "all"), name


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_the_seed_decides_the_weights(name: str, tie: str):
    check_seed(lambda seed: make(name, tie, seed))


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_saved_weights_are_those_of_the_model(name: str, tie: str):
    one, other = make(name, tie).eval(), make(name, tie).eval()
    sharpen(one, seed=5)
    sharpen(other, seed=6)
    check_saving(one, other)


def test_dropout_acts_in_training_only(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    model.train()
    assert not torch.equal(model(src, mask, tgt_in), model(src, mask, tgt_in))


def test_only_a_model_without_attention_has_no_weights(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    has_none = isinstance(model.config, RecurrentLanguageModelConfig)
    expected = not has_none and getattr(model.config, "attention", "") is not None
    assert bool(model.attention(src, mask, tgt_in)) == expected


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_every_weight_has_a_gradient(name: str, tie: str):
    check_gradients(make(name, tie))
