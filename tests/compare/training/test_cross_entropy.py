"""The loss of the output layer against ``compare.formulas``, in value and gradient; chunks and precision."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from compare import fast, formulas
from compare.training.loss import PairWeights, linear_cross_entropy

N, D, V = 7, 5, 11
TARGETS = torch.tensor([0, 10, 3, 3, 7, 1, 2])
ALL_PARTS = PairWeights(0.3, 0.2, 0.7)
PAIRS = {
    "one": None,
    "r-drop": PairWeights(0.5, 0.6, 0.6),
    "simcut": PairWeights(0.0, 0.7, 0.0),
    "all": ALL_PARTS,
}


def inputs(pair: PairWeights | None, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Weight, bias, and the hidden states of one pass or two."""
    generator = torch.Generator().manual_seed(5)
    shapes = ((V, D), (V,), *[(N, D)] * (1 if pair is None else 2))
    drawn = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return [part.to(dtype).requires_grad_() for part in drawn]


def loss_of(parts: list[Tensor], smoothing: float, pair: PairWeights | None) -> tuple[Tensor, Tensor]:
    weight, bias, *passes = parts
    return linear_cross_entropy(passes, weight, bias, TARGETS, smoothing, pair)


def formula(logits: list[Tensor], smoothing: float, name: str) -> Tensor:
    """The loss of all logits (N, V) of each pass at once."""
    p, q = logits[0], logits[-1]
    if name == "one":
        return formulas.label_smoothing(p, TARGETS, smoothing)
    if name == "r-drop":
        return formulas.r_drop(p, q, TARGETS, smoothing, alpha=1.2)
    if name == "simcut":
        return formulas.simcut(p, q, TARGETS, smoothing, alpha=0.7)
    of_p, of_q = (formulas.label_smoothing(distribution, TARGETS, smoothing) for distribution in (p, q))
    return 0.7 * of_p + 0.3 * of_q + 0.2 * formulas.kl_divergence(p, q) + 0.7 * formulas.kl_divergence(q, p)


@pytest.mark.parametrize("chunk", [1, 6 * V, 1 << 22])  # rows: 1, 6 or 3 of each pass, and all
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", PAIRS)
def test_value_and_gradients_are_those_of_the_formula(
    chunk: int, smoothing: float, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fast, "CHUNK_ELEMENTS", chunk)
    parts = weight, bias, *passes = inputs(PAIRS[name])
    loss, nll = loss_of([*parts], smoothing, PAIRS[name])
    logits = [hidden @ weight.t() + bias for hidden in passes]
    expected = formula(logits, smoothing, name)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    if pair := PAIRS[name]:  # this path serves where fast.py is deleted
        alone = [formulas.label_smoothing(distribution, TARGETS, smoothing) for distribution in logits]
        torch.testing.assert_close(pair.add(alone, logits), expected)
    reference = functional.cross_entropy(logits[0], TARGETS, reduction="none").detach()
    torch.testing.assert_close(nll, reference, rtol=1e-12, atol=1e-12)
    gradients = (torch.autograd.grad(value, parts) for value in (loss, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_without_bias_it_is_as_with_zeros():
    weight, _, hidden = inputs(None)
    bias = torch.zeros(V, dtype=torch.float64, requires_grad=True)
    sums = [linear_cross_entropy([hidden], weight, offset, TARGETS, 0.1)[0] for offset in (None, bias)]
    gradients = [torch.autograd.grad(total, (weight, hidden)) for total in sums]
    torch.testing.assert_close(sums[0], sums[1])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("name", "sizes"), [("one", [4, 3]), ("r-drop", [2, 2] * 3 + [1, 1])])
def test_no_logits_of_all_rows_ever_exist(name: str, sizes: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fast, "CHUNK_ELEMENTS", 4 * V)
    seen: list[int] = []
    losses = fast._losses

    def spy(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        seen.append(len(logits))
        return losses(logits, targets, smoothing)

    monkeypatch.setattr(fast, "_losses", spy)
    loss_of(inputs(PAIRS[name]), 0.1, PAIRS[name])
    assert seen == sizes


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_grad_mode_no_gradient_is_computed(mode: type, monkeypatch: pytest.MonkeyPatch):
    parts = inputs(None)
    expected, _ = loss_of(parts, 0.1, None)
    monkeypatch.delattr(fast, "_Gradients")
    with mode():
        loss, _ = loss_of(parts, 0.1, None)
    assert torch.equal(loss, expected)
    assert not loss.requires_grad


def test_large_logits_stay_finite_and_no_tokens_cost_nothing():
    weight, bias, hidden = parts = inputs(None, torch.float32)
    smoothed, nll = linear_cross_entropy([1e4 * hidden], weight, bias, TARGETS, 0.1)
    gradients = torch.autograd.grad(smoothed, parts)
    assert all(torch.isfinite(part).all() for part in (smoothed, nll, *gradients))
    smoothed, nll = linear_cross_entropy([hidden[:0]], weight, bias, TARGETS[:0], 0.1)
    assert (smoothed.item(), nll.numel()) == (0.0, 0)
    assert not torch.autograd.grad(smoothed, weight)[0].any()


@pytest.mark.parametrize("name", PAIRS)
def test_under_autocast_only_the_products_are_narrow(name: str):
    parts = weight, bias, *passes = inputs(PAIRS[name], torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, nll = loss_of([*parts], 0.1, PAIRS[name])
    assert loss.dtype == nll.dtype == torch.float32
    logits = [(hidden.bfloat16() @ weight.bfloat16().t()).float() + bias for hidden in passes]
    expected = formula(logits, 0.1, name)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    for one, other in zip(*(torch.autograd.grad(value, parts) for value in (loss, expected)), strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() / other.norm() < 0.01  # bf16 keeps 8 bits
