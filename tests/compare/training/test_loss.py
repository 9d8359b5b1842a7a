"""The loss and its gradients against torch's own cross-entropy."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import compare.training.loss
from compare.training.loss import LossSums, TranslationLoss, linear_cross_entropy
from tests.kits.loss import PAD, ROWS, SIZE, TOKENS, TinyModel, batch, close


def expected_loss(model: TinyModel, parts: tuple[Tensor, ...], smoothing: float) -> Tensor:
    """The loss that torch computes from all logits at once; padding is the ignored index."""
    src, src_mask, tgt_in, tgt_out, _ = parts
    logits = model.output(model.features(src, src_mask, tgt_in).hidden)
    return functional.cross_entropy(
        logits.flatten(0, 1),
        tgt_out.flatten(),
        label_smoothing=smoothing,
        ignore_index=PAD,
        reduction="sum",
    )


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Gradients by parameter name."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden (N, D), weight (V, D), bias (V,) and targets (N,)."""
    generator = torch.Generator().manual_seed(5)
    hidden, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((ROWS, SIZE), (TOKENS, SIZE), (TOKENS,))
    )
    return hidden, weight, bias, torch.tensor([0, 10, 3, 3, 7, 1, 2])


@pytest.mark.parametrize("chunk", [1, 3 * TOKENS, 5 * TOKENS + 1, 1 << 22])  # 1, 3, 5 and all rows at once
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_gradients_are_those_of_torch(
    chunk: int, smoothing: float, tied: bool, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare.training.loss, "CHUNK_ELEMENTS", chunk)
    model, parts = TinyModel(tied=tied, bias=bias), batch()
    loss = TranslationLoss(model, smoothing)(*parts)
    expected = expected_loss(model, parts, smoothing)
    close(loss.minimised, expected)
    close(loss.nll, expected_loss(model, parts, 0.0).detach())
    assert loss.tokens == 12
    found, reference = gradients(model, loss.minimised / loss.tokens), gradients(model, expected / 12)
    assert len(found) == 3 - tied - (not bias)
    for name, gradient in reference.items():
        close(found[name], gradient)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_gradcheck(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare.training.loss, "CHUNK_ELEMENTS", 2 * TOKENS)
    hidden, weight, bias, targets = inputs()

    def loss(*tensors: Tensor) -> Tensor:
        return linear_cross_entropy(*tensors, targets, smoothing)[0]

    assert torch.autograd.gradcheck(loss, (hidden, weight, bias))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_uniform_logits_cost_log_of_the_vocabulary(smoothing: float) -> None:
    hidden, weight, bias, targets = inputs()
    smoothed, nll = linear_cross_entropy(hidden, 0 * weight, 0 * bias + 3.0, targets, smoothing)
    assert smoothed.item() == pytest.approx(ROWS * math.log(TOKENS), rel=1e-14)
    close(nll, torch.full((ROWS,), math.log(TOKENS), dtype=torch.float64))


def test_the_smoothed_loss_is_least_at_the_smoothed_target() -> None:
    """There it is the entropy of (1 - s) on the reference and s / V everywhere, and its gradient is 0."""
    smoothing, rest = 0.2, 0.2 / TOKENS
    target = torch.tensor([4])
    logp = torch.full((TOKENS,), math.log(rest), dtype=torch.float64)
    logp[4] = math.log(1 - smoothing + rest)
    bias = (logp + 5.0).requires_grad_()  # a shift of all logits changes nothing
    zeros = torch.zeros(TOKENS, 1, dtype=torch.float64)
    smoothed, nll = linear_cross_entropy(zeros[:1], zeros, bias, target, smoothing)
    assert smoothed.item() == pytest.approx(-(logp.exp() * logp).sum().item(), rel=1e-12)
    assert nll.item() == pytest.approx(-math.log(1 - smoothing + rest), rel=1e-12)
    close(torch.autograd.grad(smoothed, bias)[0], torch.zeros_like(bias))


def test_padding_takes_no_part() -> None:
    model = TinyModel()
    src, src_mask, tgt_in, tgt_out, tgt_mask = batch()
    criterion = TranslationLoss(model, 0.1)
    loss = criterion(src, src_mask, tgt_in, tgt_out, tgt_mask)
    garbage = torch.full_like(tgt_in, 9)
    other = criterion(
        src, src_mask, tgt_in.where(tgt_mask, garbage), tgt_out.where(tgt_mask, garbage), tgt_mask
    )
    assert torch.equal(other.minimised, loss.minimised)
    assert torch.equal(other.nll, loss.nll)
    assert other.tokens == loss.tokens == int(tgt_mask.sum())
    before, after = gradients(model, loss.minimised), gradients(model, other.minimised)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_real_token_may_have_the_id_of_padding() -> None:
    """The mask alone says what is real."""
    model = TinyModel()
    src, src_mask, tgt_in, tgt_out, tgt_mask = batch()
    tgt_out = tgt_out.clone()
    tgt_out[1] = PAD
    loss = TranslationLoss(model, 0.0)(src, src_mask, tgt_in, tgt_out, tgt_mask)
    logp = model.output(model.features(src, src_mask, tgt_in).hidden).log_softmax(dim=2)
    close(loss.minimised, -logp.gather(2, tgt_out.unsqueeze(2)).squeeze(2)[tgt_mask].sum())
    assert loss.tokens == 12


def test_a_batch_costs_what_its_pairs_cost() -> None:
    parts = batch()
    criterion = TranslationLoss(TinyModel(), 0.1)
    whole = criterion(*parts)
    pairs = [criterion(*(part[row : row + 1] for part in parts)) for row in range(4)]
    assert [pair.tokens for pair in pairs] == [4, 5, 1, 2]
    close(whole.minimised, sum(pair.minimised for pair in pairs))
    close(whole.nll, sum(pair.nll for pair in pairs))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_nll_holds_no_graph(smoothing: float) -> None:
    loss: LossSums = TranslationLoss(TinyModel(), smoothing)(*batch())
    assert loss.minimised.requires_grad
    assert not loss.nll.requires_grad
    total = 0.0 + loss.nll
    assert total.grad_fn is None
    assert loss.nll.untyped_storage().data_ptr() != loss.minimised.untyped_storage().data_ptr()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_grad_mode_no_gradient_is_computed(mode: type, monkeypatch: pytest.MonkeyPatch) -> None:
    criterion, parts = TranslationLoss(TinyModel(), 0.1), batch()
    expected = criterion(*parts)
    monkeypatch.delattr(compare.training.loss, "add_output_gradients")
    with mode():
        loss = criterion(*parts)
    assert torch.equal(loss.minimised, expected.minimised)
    assert torch.equal(loss.nll, expected.nll)
    assert not loss.minimised.requires_grad


def test_no_logits_for_the_whole_batch_ever_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare.training.loss, "CHUNK_ELEMENTS", 3 * TOKENS)
    seen: list[int] = []
    losses = compare.training.loss.compute_losses

    def spy(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        seen.append(logits.numel())
        return losses(logits, targets, smoothing)

    monkeypatch.setattr(compare.training.loss, "compute_losses", spy)
    TranslationLoss(TinyModel(), 0.1)(*batch())
    assert seen == [3 * TOKENS] * 4  # 12 real tokens of 20 positions, 3 at once


def test_large_logits_stay_finite() -> None:
    hidden, weight, bias, targets = inputs(torch.float32)
    smoothed, nll = linear_cross_entropy(1e4 * hidden, weight, bias, targets, 0.1)
    found = torch.autograd.grad(smoothed, (hidden, weight, bias))
    assert all(torch.isfinite(part).all() for part in (smoothed, nll, *found))


def test_the_loss_of_no_tokens_is_zero() -> None:
    hidden, weight, bias, targets = inputs()
    smoothed, nll = linear_cross_entropy(hidden[:0], weight, bias, targets[:0], 0.1)
    assert (smoothed.item(), nll.numel()) == (0.0, 0)
    assert not torch.autograd.grad(smoothed, weight)[0].any()


def test_bf16_autocast_is_close_to_fp32() -> None:
    model, parts = TinyModel(dtype=torch.float32), batch()
    criterion = TranslationLoss(model, 0.1)
    loss = criterion(*parts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = criterion(*parts)
    assert narrow.minimised.dtype == narrow.nll.dtype == torch.float32
    torch.testing.assert_close(narrow.minimised, loss.minimised, rtol=1e-2, atol=0)
    expected = gradients(model, loss.minimised)
    for name, gradient in gradients(model, narrow.minimised).items():
        assert gradient.dtype == torch.float32
        error = (gradient - expected[name]).norm() / expected[name].norm()
        assert 0 < error < 0.01  # bf16 keeps 8 bits; 0 would mean that nothing ran in bf16


def test_under_autocast_only_the_product_is_narrow() -> None:
    hidden, weight, bias, targets = inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        smoothed, nll = linear_cross_entropy(hidden, weight, bias, targets, 0.1)
    logits = (hidden.bfloat16() @ weight.bfloat16().t()).float() + bias
    for found, smoothing in ((smoothed, 0.1), (nll.sum(), 0.0)):
        expected = functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
        torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-6, atol=0)
