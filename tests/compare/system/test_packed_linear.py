"""Packed linear layers: the results and gradients of the layers that they replace."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from compare.system import cpu as packed_linear
from compare.system.cpu import PackedLinear, is_packable


@pytest.fixture(autouse=True)
def small_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pack products of any size and dtype, and try torch's operators anew in every test."""
    monkeypatch.setattr(packed_linear, "MIN_MULTIPLY_ADDS", 0)
    monkeypatch.setattr(packed_linear, "sends_fp32_to_onednn", lambda: True)
    packed_linear._agrees.cache_clear()
    yield
    packed_linear._agrees.cache_clear()


def layers(dtype: torch.dtype = torch.float32) -> list[nn.Linear]:
    torch.manual_seed(1)
    return [nn.Linear(24, 40).to(dtype), nn.Linear(24, 17, bias=False).to(dtype)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (7, 24), (3, 5, 24), (0, 24)])
def test_products_are_those_of_the_layer(dtype: torch.dtype, tolerance: float, shape: tuple[int, ...]):
    x = torch.randn(*shape[:-1], 2 * shape[-1]).to(dtype)[..., ::2]  # not contiguous
    for layer in layers(dtype):
        assert is_packable(layer)
        packed = PackedLinear(layer)
        with torch.no_grad():
            torch.testing.assert_close(packed(x), layer(x), rtol=0, atol=tolerance)
        assert (packed.packed is not None) == (x.numel() > 24)


def test_small_products_and_single_rows_are_not_packed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packed_linear, "MIN_MULTIPLY_ADDS", 3 * 24 * 40)
    packed = PackedLinear(layers()[0])
    with torch.no_grad():
        for rows, expected in ((1, False), (2, False), (3, True)):
            packed(torch.ones(rows, 24))
            assert (packed.packed is not None) == expected


def test_fp32_is_packed_only_where_onednn_multiplies_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packed_linear, "sends_fp32_to_onednn", lambda: False)
    assert [is_packable(layers(dtype)[0]) for dtype in (torch.float32, torch.bfloat16)] == [False, True]


def test_gradients_and_autocast_use_the_layer():
    for layer in layers():
        packed, x = PackedLinear(layer), torch.ones(2, 24)
        gradients = [
            torch.autograd.grad(each(x).square().sum(), list(layer.parameters())) for each in (packed, layer)
        ]
        assert all(map(torch.equal, *gradients))
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert packed(x).dtype is torch.bfloat16
        assert packed.packed is None


def hooked(layer: nn.Linear) -> nn.Module:
    layer.register_forward_hook(lambda module, args, result: 2 * result)
    return layer


def patched(layer: nn.Linear) -> nn.Module:
    layer.forward = lambda x: x
    return layer


@pytest.mark.parametrize(
    "change",
    [
        hooked,
        patched,
        parametrizations.weight_norm,
        lambda layer: prune.random_unstructured(layer, "weight", 0.5),
        lambda layer: layer.double(),
        lambda layer: layer.to("meta"),
        lambda layer: nn.Bilinear(24, 2, 3),
    ],
)
def test_other_layers_are_not_replaced(change: Any):
    assert not is_packable(change(layers()[0]))


def missing(*_: Any) -> Tensor:
    raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")


@pytest.mark.parametrize("multiply", [missing, lambda x, packed, bias: x @ packed.t().to_dense()])
def test_nothing_is_packed_where_operators_are_missing_or_wrong(
    multiply: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(packed_linear, "_pack", lambda weight: weight)
    monkeypatch.setattr(packed_linear, "_multiply", multiply)
    assert not is_packable(layers()[0])
