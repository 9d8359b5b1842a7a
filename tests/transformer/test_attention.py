"""Attention by itself: against its formula, torch's kernels and multi-head attention; linear attention."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from compare.models.flops import count_multiply_adds
from tests.kits.contract import seeded_float64
from tests.kits.transformers import EXACT, HEADS, LENGTHS, B, S, T, batch, make
from transformer.attention import (
    KeysValues,
    elu_features,
    fused_attention,
    hard_attention,
    linear_attention,
    plain_attention,
    prefix_attention,
    record_weights,
)
from transformer.fast import single_query_attention

_float64 = pytest.fixture(autouse=True)(seeded_float64)


def qkv() -> tuple[Tensor, Tensor, Tensor]:
    queries, keys, values = torch.randn(3, B, HEADS, S, 4)
    return queries, keys, values


def general(*shape: int) -> Tensor:
    """A random mask that leaves each row its first column."""
    mask = torch.rand(shape) < 0.5
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["free", "padded", "general", "bias"])
def test_plain_attention_is_torchs_and_its_weights_are_weights(kind, causal):
    queries, keys, values = qkv()
    bias, padding = torch.randn(HEADS, S, S), batch()[1][:, None, None, :]
    mask = {"free": None, "padded": padding, "general": general(B, HEADS, S, S), "bias": bias}[kind]
    contexts, weights = plain_attention(queries, keys, values, mask, causal, 0.0)
    allowed = torch.ones(S, S, dtype=torch.bool) if kind in ("free", "bias") else mask
    allowed = allowed & torch.ones(S, S).tril().bool() if causal else allowed
    both = bias.masked_fill(~allowed, -math.inf) if kind == "bias" else allowed
    expected = nn.functional.scaled_dot_product_attention(queries, keys, values, both)
    torch.testing.assert_close(contexts, expected, **EXACT)
    torch.testing.assert_close(contexts, weights @ values, **EXACT)
    assert torch.equal(weights > 0, allowed.expand(B, HEADS, S, S))


def test_plain_attention_drops_weights_and_makes_up_for_it():
    zeros, one_hot = torch.zeros(40, HEADS, S, S), torch.eye(S).expand(40, HEADS, S, S)
    dropped, weights = plain_attention(zeros, zeros, one_hot, None, False, 0.4)  # one-hot values: the weights
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / S))
    torch.testing.assert_close(dropped, torch.where(dropped == 0, 0.0, 1 / S / 0.6))
    assert (dropped == 0).double().mean().item() == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize("causal", [False, True])
def test_record_weights_records_the_weights_of_any_attention_and_changes_nothing(causal):
    queries, keys, values = qkv()
    mask, recorded = general(S, S), []
    contexts = record_weights(fused_attention, recorded)(queries, keys, values, mask, causal, 0.0)
    expected, weights = plain_attention(queries, keys, values, mask, causal, 0.0)
    torch.testing.assert_close(contexts, expected, **EXACT)
    torch.testing.assert_close(recorded, [weights], **EXACT)
    dropped = record_weights(fused_attention, recorded)(queries, keys, values, mask, causal, 0.9)
    assert not torch.allclose(dropped, expected)
    torch.testing.assert_close(recorded[1], weights, **EXACT)  # before dropout


@pytest.mark.parametrize("beam", [1, 3])
def test_attention_after_a_prefix_is_attention_to_all_of_it(beam: int):
    """A twin with a prefix copied for every hypothesis, and one softmax over the joined rows."""
    queries, generated = torch.randn(B, beam, HEADS, 4), KeysValues(*torch.randn(2, T, B, beam, HEADS, 4))
    shared, (_, mask, _) = KeysValues(*torch.randn(2, B, HEADS, S, 4)), batch()
    visible = nn.functional.pad(mask, (0, T), value=True)[:, None, None]
    masked, _ = prefix_attention(queries, generated, shared, visible)
    unmasked, _ = prefix_attention(queries, generated, shared, None)
    for b, k, head in itertools.product(range(B), range(beam), range(HEADS)):
        for contexts, length in ((masked, LENGTHS[b]), (unmasked, S)):
            keys, values = (
                torch.cat((past[b, head, :length], now[:, b, k, head]))
                for past, now in zip(shared, generated, strict=True)
            )
            weights = (keys @ queries[b, k, head] / 2).softmax(0)
            torch.testing.assert_close(contexts[b, k, head], weights @ values, **EXACT)


@pytest.mark.parametrize("kind", ["free", "general", "bias"])
def test_one_query_sees_what_the_formula_says_however_keys_are_stored(kind: str):
    """Keys that lie time first, as a cache's do, take another way through the sums."""
    queries, cached = torch.randn(3, 2, 1, 4), torch.randn(2, 9, 3, 2, 4).permute(0, 2, 3, 1, 4)
    bias = torch.randn(2, 1, 9).masked_fill(general(2, 1, 9), -math.inf)
    bias[..., 2] = 0.5
    mask = {"free": None, "general": general(3, 1, 1, 9), "bias": bias}[kind]
    assert not cached[0].is_contiguous()
    expected, weights = plain_attention(queries, *cached, mask, False, 0.0)
    torch.testing.assert_close(single_query_attention(queries, *cached, mask), expected, **EXACT)
    for keys, values in (cached, cached.contiguous()):
        torch.testing.assert_close(
            fused_attention(queries, keys, values, mask, False, 0.0), expected, **EXACT
        )
    best = cached[1].gather(2, weights.argmax(-1).unsqueeze(-1).expand(-1, -1, -1, 4))
    torch.testing.assert_close(hard_attention(queries, *cached, mask, False, 0.0), best, **EXACT)


def test_hard_weights_are_recorded_as_zeros_and_ones():
    for name, recorded in make(attention_kind="hard").attention(*batch()).items():
        assert set(recorded.unique().tolist()) == {0.0, 1.0}, name


# --- linear attention


def formula(queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
    """Compute equation 4 one query at a time; ``allowed`` is (B, H, Q, S)."""
    contexts = torch.zeros(*queries.shape[:-1], values.size(-1))
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in queries.shape[:-1])).tolist():
        seen = allowed[b, h, i].nonzero().flatten().tolist()
        weights = keys[b, h, seen] @ queries[b, h, i]
        contexts[b, h, i] = weights @ values[b, h, seen] / weights.sum()
    return contexts


@pytest.mark.parametrize("kind", ["free", "padded", "general"])
@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_all_orders_of_the_products_are_the_formula_and_so_are_gradients(kind, size, chunk, monkeypatch):
    """Heads of 1 are factored, of 7 not; causal ones in chunks, which fit 6 positions or do not."""
    if chunk:
        monkeypatch.setattr("transformer.attention.CHUNK", chunk)
    inputs = [torch.randn(B, 2, S, width, requires_grad=True) for width in (size, size, 3)]
    queries, keys, values = elu_features(inputs[0]), elu_features(inputs[1]), inputs[2]
    any_pairs = (torch.rand(B, 2, S, S) < 0.5) | torch.eye(S, dtype=torch.bool)
    mask = {"free": None, "padded": batch()[1][:, None, None, :], "general": any_pairs}[kind]
    allowed = torch.ones(B, 2, S, S, dtype=torch.bool) if mask is None else mask.expand(B, 2, S, S)
    allowed = allowed & torch.ones(S, S).tril().bool() if chunk else allowed
    ours, expected = (
        linear_attention(queries, keys, values, mask, bool(chunk), 0.0),
        formula(queries, keys, values, allowed),
    )
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    gradients = [torch.autograd.grad(out.sin().sum(), inputs, retain_graph=True) for out in (ours, expected)]
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


def test_features_are_elu_plus_1_and_keep_digits_in_bf16():
    x = torch.tensor([-90.0, -2.0, -1e-3, 0.0, 0.5, 40.0], requires_grad=True)
    torch.testing.assert_close(elu_features(x)[1:], torch.nn.functional.elu(x)[1:] + 1)
    torch.testing.assert_close(elu_features(x)[0].item(), math.exp(-90))
    (slope,) = torch.autograd.grad(elu_features(x).sum(), x)
    torch.testing.assert_close(slope, x.clamp(max=0).exp().detach())  # 1 at 0, as from both sides
    small_ones = elu_features(torch.tensor([-9.0, -8.0], dtype=torch.bfloat16)).float()
    torch.testing.assert_close(small_ones, torch.tensor([-9.0, -8.0]).exp().float(), rtol=4e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_causal_sums_in_low_precision_stay_averages(dtype):
    """Over 1,000 positions: between the smallest and the largest value, and near the float64 result."""
    queries, keys = (elu_features(torch.randn(1, 2, 1000, 8)) for _ in range(2))
    values = torch.rand(1, 2, 1000, 3)
    exact = linear_attention(queries, keys, values, None, True, 0.0)
    rounded = linear_attention(*(part.to(dtype) for part in (queries, keys, values)), None, True, 0.0)
    torch.testing.assert_close(rounded.double(), exact, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.02)


def test_underflow_of_all_features_gives_no_nan():
    queries = keys = elu_features(torch.full((1, 1, 3, 2), -800.0))
    values = torch.ones(1, 1, 3, 1)
    for causal in (False, True):
        assert linear_attention(queries, keys, values, None, causal, 0.0).isfinite().all()


def test_the_products_of_a_model_with_several_chunks_are_counted(monkeypatch):
    model = make(attention_kind="linear", num_heads=8)
    src, mask, tgt = batch()
    monkeypatch.setattr("transformer.attention.CHUNK", 2)
    monkeypatch.setattr("compare.models.flops.CHUNK", 2)
    with FlopCounterMode(display=False) as counter:
        logits = model(src, mask, tgt)
    count = count_multiply_adds(model, S, tgt.size(1)) + tgt.size(1) * logits.size(-1) * 16
    assert counter.get_total_flops() == 2 * B * count
