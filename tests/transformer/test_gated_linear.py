"""Gated linear attention: chunks against the recurrence, decays near 0 and 1, padding, steps, operations."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.utils.flop_counter import FlopCounterMode

from compare.models.hybrid import LadderConfig
from compare.models.registry import build, forward_flops
from tests.kits.contract import seeded_float64
from tests.kits.transformers import EXACT, TGT_V, far
from transformer import formulas
from transformer.gated_linear import CHUNK, LOWEST, GatedLinearAttention, StateDecay, gated_linear_attention
from transformer.positions import Relation

LONG = 3 * CHUNK + 3
SIZES = {
    "d_model": 8,
    "num_heads": 2,
    "ffn_size": 12,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dropout": 0.0,
}
CONFIG = LadderConfig(**SIZES, encoder_mixer="gated-linear", decoder_mixer="gated-linear", positions="none")

_float64 = pytest.fixture(autouse=True)(seeded_float64)


def inputs(length: int, scale: float) -> list[Tensor]:
    """Queries, keys and values of two sentences and heads, and ``scale`` times numbers that decays are of."""
    parts = [torch.randn(2, 2, length, width) for width in (3, 3, 4, 3)]
    parts[-1] *= scale
    return [part.requires_grad_() for part in parts]


def log_decay(gate: Tensor) -> Tensor:
    return logsigmoid(gate).clamp(min=LOWEST)


def recur(q: Tensor, k: Tensor, v: Tensor, log_a: Tensor) -> Tensor:
    rows = zip(*(part.flatten(0, 1) for part in (q, k, v, log_a.exp())), strict=True)
    return torch.stack([formulas.gated_linear_attention(*row) for row in rows]).view_as(v)


DECAYS = pytest.mark.parametrize("decay", get_args(StateDecay))


def mixer(decay: StateDecay, *, bidirectional: bool) -> GatedLinearAttention:
    return far(GatedLinearAttention(CONFIG, bidirectional=bidirectional, state_decay=decay))


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("length", [1, 2, CHUNK, CHUNK + 1, 2 * CHUNK, LONG])
def test_chunks_equal_the_recurrence_in_values_and_gradients(length: int, scale: float):
    """With a scale of 300 half of the decays are the lowest, and the others nearly 1."""
    *parts, gate = inputs(length, scale)
    ours, theirs = (form(*parts, log_decay(gate)) for form in (gated_linear_attention, recur))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    for one, two in zip(
        *(torch.autograd.grad(out.sin().sum(), (*parts, gate)) for out in (ours, theirs)), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shift", [0.0, 1e30, -1e30])
def test_fp32_is_near_float64_however_small_the_decays(shift: float):
    """All decays the lowest, all 1, or as they come; numbers at the end of what fp32 can represent."""
    *parts, gate = (part.detach() for part in inputs(20 * CHUNK, 10.0))
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [part.to(dtype).requires_grad_() for part in (*parts, gate + shift)]
        output = gated_linear_attention(*leaves[:3], log_decay(leaves[3]))
        results.append([output.detach(), *torch.autograd.grad(output.square().mean(), leaves)])
    for one, exact in zip(*results, strict=True):
        torch.testing.assert_close(one.double(), exact, rtol=1e-4, atol=1e-5 * float(exact.abs().max()))


def test_under_autocast_the_recurrence_is_near_fp32():
    """The norm of what it gives need not be: see the class."""
    leaves, gradients = [part.float().detach().requires_grad_() for part in inputs(LONG, 1.0)], []
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            output = gated_linear_attention(*leaves[:3], log_decay(leaves[3]))
        gradients.append(torch.autograd.grad(output.float().sin().sum(), leaves))
    for one, exact in zip(*gradients, strict=True):
        assert (one - exact).norm() < 0.03 * exact.norm()


@DECAYS
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_changes_nothing(side: str, decay: StateDecay):
    """A padded step neither forgets nor writes, in both directions."""
    attention, sentence, padding = (
        mixer(decay, bidirectional=True),
        torch.randn(2, LONG, 8),
        9 * torch.randn(2, 5, 8),
    )
    real = torch.ones(2, LONG, dtype=torch.bool), torch.zeros(2, 5, dtype=torch.bool)
    order = slice(None) if side == "right" else slice(None, None, -1)
    x, mask = (torch.cat(parts[order], dim=1) for parts in ((sentence, padding), real))
    output = attention(x, Relation(mask[:, None, None]))[mask].view_as(sentence)
    torch.testing.assert_close(output, attention(sentence, Relation()), **EXACT)


@DECAYS
def test_steps_equal_the_whole_and_the_state_does_not_grow(decay: StateDecay):
    attention, x = mixer(decay, bidirectional=False), torch.randn(2, LONG, 8)
    cache = attention.empty_cache(x, 2, 1, LONG)
    size = cache.state[0].numel()
    steps = [attention.step(token, cache, Relation()) for token in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), attention(x, Relation()), **EXACT)
    assert (cache.length, cache.state[0].numel()) == (LONG, size)


@DECAYS
@pytest.mark.parametrize("length", [CHUNK - 1, CHUNK + 3, 4 * CHUNK])
def test_operations_are_those_that_torch_counts(length: int, decay: StateDecay):
    ids = torch.zeros(1, length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        build(config := replace(CONFIG, state_decay=decay), TGT_V, TGT_V)(ids, None, ids)
    sizes = {"src_len": length, "tgt_len": length, "tgt_vocabulary": TGT_V}
    assert counter.get_total_flops() == forward_flops(config, **sizes)
