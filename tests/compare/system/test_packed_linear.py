"""Packed linear layers, and models prepared for decoding: the results of what they replace."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compare.decoding.search import search
from compare.system import packed_linear
from compare.system.packed_linear import PackedLinear, pack_linear_layers
from compare.system.precision import for_decoding
from tests.kits.contract import LENGTHS, PAD, SPECIAL, V, make, sharpen

SRC = torch.randint(4, V - 2, (4, 5), generator=torch.Generator().manual_seed(1))
MASK = torch.arange(5) < torch.tensor(LENGTHS).unsqueeze(1)


@pytest.fixture(autouse=True)
def tried_again() -> Iterator[None]:
    """Try torch's operators anew in every test."""
    packed_linear._agrees.cache_clear()
    yield
    packed_linear._agrees.cache_clear()


def model_of(dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(24, 40), nn.Linear(40, 17, bias=False)).to(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (7, 24), (3, 5, 24)])
def test_products_are_those_of_the_layers(dtype: torch.dtype, tolerance: float, shape: tuple[int, ...]):
    model = model_of(dtype)
    x = torch.randn(*shape[:-1], 2 * shape[-1]).to(dtype)[..., ::2]  # not contiguous
    with torch.no_grad():
        expected = model(x)
        pack_linear_layers(model)
        assert all(isinstance(layer, PackedLinear) for layer in model)
        torch.testing.assert_close(model(x), expected, rtol=0, atol=tolerance)


def test_gradients_are_those_of_the_layers():
    model, twin = model_of(torch.float32), model_of(torch.float32)
    pack_linear_layers(model)
    for each in (model, twin):
        each(torch.ones(2, 24)).square().sum().backward()
    for found, expected in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)


def test_a_layer_of_two_modules_stays_one_layer():
    layer = nn.Linear(3, 3)
    first, second = nn.Sequential(layer), nn.Sequential(layer)
    pack_linear_layers(nn.ModuleList([first, second]))
    assert first[0] is second[0]
    assert first[0].weight is layer.weight


def missing(*_: Any) -> Tensor:
    raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")


@pytest.mark.parametrize("multiply", [missing, lambda x, packed, bias: x @ packed.t().to_dense()])
def test_layers_stay_where_the_operators_are_missing_or_wrong(multiply: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packed_linear, "_pack", lambda weight: weight)
    monkeypatch.setattr(packed_linear, "_multiply", multiply)
    model = model_of(torch.float32)
    pack_linear_layers(model)
    assert [type(layer) for layer in model] == [nn.Linear, nn.Linear]


def test_float64_is_not_packed():
    model = model_of(torch.float64)
    pack_linear_layers(model)
    assert [type(layer) for layer in model] == [nn.Linear, nn.Linear]


@pytest.mark.parametrize(("name", "tie"), [("luong-general", "none"), ("transformer", "all")])
@pytest.mark.parametrize("beam_size", [1, 3])
def test_search_finds_what_it_finds_with_the_model_itself(name: str, tie: str, beam_size: int):
    model = make(name, tie)
    sharpen(model)
    model = model.eval().float()
    decoder = for_decoding(model, "fp32")
    assert next(decoder.parameters()) is next(model.parameters())
    assert any(isinstance(module, PackedLinear) for module in decoder.modules())
    assert not any(isinstance(module, PackedLinear) for module in model.modules())
    found = [
        search(
            each,
            SRC.where(MASK, PAD),
            MASK,
            limits=torch.full((4,), 6),
            special=SPECIAL,
            beam_size=beam_size,
        )
        for each in (model, decoder)
    ]
    assert [each.tokens for each in found[0]] == [each.tokens for each in found[1]]
    assert [each.score for each in found[0]] == pytest.approx([each.score for each in found[1]], abs=1e-4)
