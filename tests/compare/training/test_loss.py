"""The loss of a batch: padding, consistency regularisation with its cut tokens, and REINFORCE."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seq2seq.formulas
from compare import formulas
from compare.config.sections import RegularizationConfig
from compare.models.presets import PRESETS
from compare.training.loss import (
    TranslationLoss,
    cut_embeddings,
    cut_tokens,
    may_cut_source,
    may_cut_target,
    reinforce,
)
from seq2seq.normalisers import Choices
from tests.kits.contract import EXACT, V, make, seeded_float64, sharpen, sources, targets
from tests.kits.training import TOKENS, TinyModel

PAD = 0


def batch() -> tuple[Tensor, ...]:
    """Build four pairs; three have padded sources or targets, and one target is the end of sentence alone."""
    generator = torch.Generator().manual_seed(4)
    src_mask = torch.arange(6) < torch.tensor([[6], [2], [3], [1]])
    tgt_mask = torch.arange(5) < torch.tensor([[4], [5], [1], [2]])
    src, tgt_in, tgt_out = (torch.randint(1, TOKENS, (4, size), generator=generator) for size in (6, 5, 5))
    return src * src_mask, src_mask, tgt_in * tgt_mask, tgt_out * tgt_mask, tgt_mask


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


_float64 = pytest.fixture(autouse=True)(seeded_float64)
R_DROP = RegularizationConfig(consistency="r-drop", consistency_weight=1.5)
SIMCUT = RegularizationConfig(consistency="simcut", consistency_weight=0.7, cut=0.4)
METHODS = pytest.mark.parametrize("settings", [R_DROP, SIMCUT], ids=lambda settings: settings.consistency)


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    computed = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [torch.zeros(()) if part is None else part for part in computed]


def example() -> tuple[Tensor, ...]:
    """A batch with padding on both sides, for the presets."""
    (src, src_mask), ids = sources(), targets(7)
    tgt_mask = torch.arange(6) < torch.tensor([[6], [4], [1], [5]])
    return src, src_mask, ids[:, :-1], ids[:, 1:], tgt_mask


@pytest.mark.parametrize("settings", [None, R_DROP, SIMCUT])
def test_the_mask_alone_says_what_is_real(settings: RegularizationConfig | None):
    """Ids at padding change nothing, and a real token may have the id of padding."""
    model, (src, src_mask, tgt_in, tgt_out, tgt_mask) = TinyModel(), batch()
    criterion = TranslationLoss(model, 0.1, settings)
    tgt_out = tgt_out.clone()
    tgt_out[1] = PAD
    losses = []
    for rest in (0, 9):
        torch.manual_seed(1)
        ids = (side.where(tgt_mask, torch.full_like(side, rest)) for side in (tgt_in, tgt_out))
        loss = criterion(src, src_mask, *ids, tgt_mask)
        losses.append([loss.minimised, loss.nll, *gradients(model, loss.minimised)])
        assert loss.tokens == 12
    assert all(torch.equal(one, other) for one, other in zip(*losses, strict=True))


# --- two passes


def loss_of_two_passes(model: Any, settings: RegularizationConfig, parts: tuple[Tensor, ...]) -> Tensor:
    """The formula on all logits of a model, with the draws of torch's generator in the same order."""
    src, src_mask, tgt_in, tgt_out, tgt_mask = parts
    p = model(src, src_mask, tgt_in)[tgt_mask]
    if settings.consistency == "r-drop":
        q = model(src, src_mask, tgt_in)[tgt_mask]
        return formulas.r_drop(p, q, tgt_out[tgt_mask], 0.1, settings.consistency_weight or 0.0)
    src = cut_tokens(src, may_cut_source(src_mask), settings.cut or 0.0)
    tgt_in = cut_tokens(tgt_in, may_cut_target(tgt_in), settings.cut or 0.0)
    with cut_embeddings(model):
        q = model(src, src_mask, tgt_in)[tgt_mask]
    return formulas.simcut(p, q, tgt_out[tgt_mask], 0.1, settings.consistency_weight or 0.0)


@METHODS
@pytest.mark.parametrize("name", ["bahdanau", "luong-general", "decoder-only", "lstm-lm", "transformer-lm"])
def test_every_family_is_trained_by_the_formula(name: str, settings: RegularizationConfig):
    model, parts = make(name).train(), example()
    torch.manual_seed(7)
    loss = TranslationLoss(model, 0.1, settings)(*parts)
    torch.manual_seed(7)
    expected = loss_of_two_passes(model, settings, parts)
    close(loss.minimised, expected)
    for gradient, reference in zip(gradients(model, loss.minimised), gradients(model, expected), strict=True):
        close(gradient, reference)
    alone = TranslationLoss(model, 0.1)(*parts)  # other dropout
    assert abs(loss.minimised.item() - alone.minimised.item()) > 1e-3


@METHODS
def test_outside_training_there_is_one_pass(settings: RegularizationConfig):
    model, parts = make("transformer"), example()
    loss = TranslationLoss(model, 0.1, settings).eval()(*parts)
    expected = TranslationLoss(model, 0.1, RegularizationConfig()).eval()(*parts)
    assert torch.equal(loss.minimised, expected.minimised)
    assert torch.equal(loss.nll, expected.nll)


# --- cut tokens

ZERO = 9
"""The id whose embeddings are set to zero."""
CUT_SRC = torch.tensor([[0, 2], [1, 1], [3, 0]])
CUT_TGT = torch.tensor([[0, 1], [0, 4], [2, 3]])


def without_zero() -> tuple[Tensor, Tensor, Tensor]:
    """Draw a batch without ``ZERO``."""
    (src, mask), tgt = sources(), targets()
    return src.masked_fill(src == ZERO, 8), mask, tgt.masked_fill(tgt == ZERO, 8)


def put(ids: Tensor, positions: Tensor, values: Tensor) -> Tensor:
    return ids.index_put(tuple(positions.t()), values)


def cut(ids: Tensor, positions: Tensor) -> Tensor:
    return put(ids, positions, ~ids[tuple(positions.t())])


@pytest.mark.parametrize("name", PRESETS)
def test_a_cut_token_is_one_with_an_embedding_of_zeros(name: str):
    model = make(name).eval()
    sharpen(model)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.Embedding) and part.num_embeddings in (V, V - 2):  # not of positions
                part.weight[ZERO] = 0.0
    src, mask, tgt = without_zero()
    zero = torch.tensor(ZERO)
    expected = model.features(put(src, CUT_SRC, zero), mask, put(tgt, CUT_TGT, zero)).hidden
    before = model.features(src, mask, tgt).hidden
    with cut_embeddings(model):
        hidden = model.features(cut(src, CUT_SRC), mask, cut(tgt, CUT_TGT)).hidden
    torch.testing.assert_close(hidden, expected, **EXACT)
    assert not torch.equal(before, expected)
    assert torch.equal(model.features(src, mask, tgt).hidden, before)  # embeddings are as before


def test_ends_of_sources_and_begins_of_targets_are_never_cut():
    src, mask, tgt = without_zero()
    certain = cut_tokens(src, may_cut_source(mask), 1.0)
    assert torch.equal(certain < 0, torch.arange(src.size(1)) < mask.sum(dim=1, keepdim=True) - 1)
    assert torch.equal(torch.where(certain < 0, ~certain, certain), src)
    assert torch.equal(
        cut_tokens(tgt, may_cut_target(tgt), 1.0) < 0, torch.arange(tgt.size(1)).expand_as(tgt) > 0
    )


def test_as_many_tokens_are_cut_as_was_asked_for():
    ids = torch.arange(40_000).view(200, 200)
    torch.manual_seed(3)
    is_cut = cut_tokens(ids, torch.ones_like(ids, dtype=torch.bool), 0.05) < 0
    assert float(is_cut.double().mean()) == pytest.approx(0.05, abs=4 * (0.05 * 0.95 / 40_000) ** 0.5)
    assert len({tuple(row.tolist()) for row in is_cut}) == 200


# --- REINFORCE


def test_reinforce_is_its_formula():
    """The squared error fits the baseline alone, the other term the choices alone; padding takes no part."""
    generator = torch.Generator().manual_seed(6)
    rewards, logp, value = (-torch.rand(2, 3, generator=generator) for _ in range(3))
    mask = torch.tensor([[True, True, True], [True, True, False]])
    rewards *= mask
    logp.requires_grad_(), value.requires_grad_()
    estimate = reinforce(rewards, Choices(logp, value), mask)
    expected = torch.zeros(())
    for row, length in enumerate((3, 2)):
        to_go = rewards[row].flip(0).cumsum(0).flip(0)
        parts = rewards[row, :length], logp[row, :length], value[row, :length]
        expected = expected + seq2seq.formulas.reinforce(*parts)
        expected = expected + (to_go[:length] - value[row, :length]).square().sum() / 2
    close(estimate, expected)
    for one, other in zip(
        *(torch.autograd.grad(loss, (logp, value)) for loss in (estimate, expected)), strict=True
    ):
        close(one, other)


def test_the_loss_adds_what_choices_earned():
    """Rewards are the log-likelihoods of the references, without smoothing; the average moves by a tenth."""
    model, parts = TinyModel(), batch()
    plain = TranslationLoss(model, 0.1)(*parts)
    *_, tgt_out, tgt_mask = parts
    logp, value, entropy = (torch.rand(tgt_mask.shape, requires_grad=True) for _ in range(3))
    average = torch.tensor([-3.0])
    inner = model.features
    likelihood = model.output(inner(*parts[:3]).hidden).log_softmax(-1)
    rewards = likelihood.gather(2, tgt_out.unsqueeze(2)).squeeze(2).masked_fill(~tgt_mask, 0).detach()
    expected = reinforce(rewards, Choices(logp, value), tgt_mask) - entropy[tgt_mask].sum()
    choices = Choices(logp, value, entropy, average)
    model.features = lambda *args: inner(*args)._replace(choices=choices)  # type: ignore[method-assign]
    total = TranslationLoss(model, 0.1)(*parts)
    close(total.minimised - plain.minimised, expected)
    close(total.nll, plain.nll)
    to_go = rewards.flip(1).cumsum(1).flip(1)[tgt_mask]
    close(average, torch.tensor([0.9 * -3.0 + 0.1 * float(to_go.mean())]))
