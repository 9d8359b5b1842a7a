"""Speed on a CPU: fp32 stays fp32, packed layers and copies for decoding find what the model itself finds."""

import subprocess
import sys
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from compare import fast as cpu
from compare.decoding.search import Ensemble, search
from compare.decoding.translator import for_decoding
from compare.fast import PackedLinear, decoding_copy, is_packable
from tests.kits.contract import SPECIAL, make, sharpen, sources


@pytest.fixture(params=["cpu", "accelerator"])
def setting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """In place of torch's switches, which no test may leave changed; the older one is for a CPU alone."""
    switch = SimpleNamespace(fp32_precision="none")
    backend = SimpleNamespace(is_available=lambda: True, matmul=switch)
    monkeypatch.setattr(torch.backends, "mkldnn", backend)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: request.param == "accelerator")

    def set_all(precision: str) -> None:
        assert request.param == "cpu"
        switch.fp32_precision = {"medium": "bf16", "highest": "none"}[precision]

    monkeypatch.setattr(torch, "set_float32_matmul_precision", set_all)
    return switch


@pytest.mark.parametrize(("dtype", "is_unchanged"), [(torch.float32, True), (torch.bfloat16, False)])
def test_products_go_to_onednn_only_where_it_computes_them_in_fp32(
    dtype: torch.dtype, is_unchanged: bool, setting: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    multiply = torch.Tensor.__matmul__

    def as_the_processor_would(left: Tensor, right: Tensor) -> Tensor:
        if setting.fp32_precision == "none" or left.dtype == torch.float64:
            return multiply(left, right)
        return multiply(left.to(dtype), right.to(dtype)).float()

    monkeypatch.setattr(torch.Tensor, "__matmul__", as_the_processor_would)
    cpu._multiply_by_onednn()
    assert setting.fp32_precision == ("bf16" if is_unchanged else "none")
    setting.fp32_precision = "tf32"  # the user's own choice
    cpu._multiply_by_onednn()
    assert setting.fp32_precision == "tf32"


def test_a_tuned_process_multiplies_in_fp32():
    """In a process of its own, with the real switch: as exact as fp32 for shapes of every kind."""
    code = """
import torch
from compare.fast import FP32_ERROR, tune_cpu
tune_cpu()
if not torch.accelerator.is_available():
    torch.get_float32_matmul_precision()  # torch raises an error if its older and newer switch are mixed
for rows, inner, columns in [(1, 512, 2048), (2048, 2048, 64), (333, 1000, 333)]:
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    exact = left.double() @ right.double()
    added = torch.addmm(torch.zeros(columns), left, right)
    for found in (left @ right, added, (left[None] @ right[None])[0]):
        assert (found - exact).abs().max() < FP32_ERROR * exact.abs().max()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack products of any size and of fp32 too."""
    monkeypatch.setattr(cpu, "MIN_MULTIPLY_ADDS", 0)
    monkeypatch.setattr(cpu, "sends_fp32_to_onednn", lambda: True)


def layer(dtype: torch.dtype = torch.float32, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(24, 40, bias=bias).to(dtype)


@pytest.mark.usefixtures("packing")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (3, 5, 24), (0, 24)])
def test_packed_products_are_those_of_the_layer(dtype: torch.dtype, tolerance: float, shape: tuple[int, ...]):
    x = torch.randn(*shape[:-1], 2 * shape[-1]).to(dtype)[..., ::2]  # not contiguous
    for plain in (layer(dtype), layer(dtype, bias=False)):
        packed = PackedLinear(plain)
        with torch.no_grad():
            torch.testing.assert_close(packed(x), plain(x), rtol=0, atol=tolerance)
        assert (packed.packed is not None) == (x.numel() > 24)


def test_small_products_gradients_and_autocast_use_the_layer(packing: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu, "MIN_MULTIPLY_ADDS", 3 * 24 * 40)
    plain, x = layer(), torch.ones(3, 24)
    packed = PackedLinear(plain)
    gradients = [
        torch.autograd.grad(module(x).square().sum(), list(plain.parameters())) for module in (packed, plain)
    ]
    assert all(map(torch.equal, *gradients))
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            assert packed(x).dtype is torch.bfloat16
        packed(x[:2])
        assert packed.packed is None
        packed(x)
        assert packed.packed is not None


def hooked(layer: nn.Linear) -> nn.Module:
    layer.register_forward_hook(lambda module, args, result: 2 * result)
    return layer


@pytest.mark.usefixtures("packing")
@pytest.mark.parametrize(
    "change",
    [
        hooked,
        parametrizations.weight_norm,
        lambda layer: prune.random_unstructured(layer, "weight", 0.5),
        lambda layer: layer.double(),
    ],
)
def test_other_layers_are_not_replaced(change: Any):
    assert is_packable(layer())
    assert not is_packable(change(layer()))


@pytest.mark.usefixtures("packing")
def test_nothing_is_packed_where_operators_are_wrong(monkeypatch: pytest.MonkeyPatch):
    cpu._agrees.cache_clear()
    monkeypatch.setattr(cpu, "_pack", lambda weight: weight)
    monkeypatch.setattr(cpu, "_multiply", lambda x, packed, bias: x @ packed.t().to_dense())
    assert not is_packable(layer())
    cpu._agrees.cache_clear()


def sharp(name: str, tie: str = "none") -> nn.Module:
    model = make(name, tie)
    sharpen(model)
    return model.eval().float()


def is_packed(model: nn.Module) -> bool:
    return any(isinstance(module, PackedLinear) and module.packed is not None for module in model.modules())


def assert_finds_the_same(copy: nn.Module, model: nn.Module, beam_size: int) -> None:
    src, mask = sources()
    results = [
        search(one, src, mask, limits=torch.full((4,), 6), special=SPECIAL, beam_size=beam_size)
        for one in (model, copy)
    ]
    assert [best.tokens for best in results[0]] == [best.tokens for best in results[1]]
    scores = [[best.score for best in result] for result in results]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.usefixtures("packing")
@pytest.mark.parametrize(
    ("name", "tie"), [("luong-general", "none"), ("transformer", "all"), ("both", "none")]
)
def test_search_with_a_copy_finds_what_it_finds_with_the_model_itself(name: str, tie: str):
    both = ("luong-general", "transformer")
    model = Ensemble([sharp(member) for member in both]) if name == "both" else sharp(name, tie)
    before = {key: id(module) for key, module in model.named_modules()}
    copy = decoding_copy(model)
    for beam_size in (1, 3):
        assert_finds_the_same(copy, model, beam_size)
    assert is_packed(copy)
    assert {key: id(module) for key, module in model.named_modules()} == before
    shared = {id(tensor) for tensor in chain(model.parameters(), model.buffers())}
    assert all(id(tensor) in shared for key, tensor in copy.named_parameters() if "joined_gates" not in key)


def test_where_nothing_is_packed_the_model_itself_decodes(packing: None, monkeypatch: pytest.MonkeyPatch):
    unchanged = nn.Sequential(nn.Embedding(3, 4), nn.GRU(4, 5), nn.Linear(5, 3).double())
    model = sharp("luong-general")
    meta = sharp("luong-general").to("meta")
    assert all(decoding_copy(module) is module for module in (unchanged, nn.Sequential(), meta))
    monkeypatch.setattr(cpu, "sends_fp32_to_onednn", lambda: False)
    assert decoding_copy(model) is model  # joined gates are copies of all weights, which gain nothing there
    copy = for_decoding(model, "bf16")
    assert {parameter.dtype for parameter in copy.parameters()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
