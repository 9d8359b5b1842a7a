"""Attention by itself: against its formula, torch's kernels, and torch's own multi-head attention."""

import math

import pytest
import torch
from torch import Tensor, nn

from tests.kits.transformer import EXACT, HEADS, LENGTHS, B, D, S, T, batch, float64, small
from tests.kits.transformer_twin import attend
from transformer.attention import (
    KeysValues,
    _single_query_attention,
    fused_attention,
    plain_attention,
    prefix_attention,
    record_weights,
)
from transformer.masks import causal_mask, combine_masks, prefix_mask
from transformer.multihead import CrossAttention, SelfAttention

_float64 = pytest.fixture(autouse=True)(float64)


def qkv() -> tuple[Tensor, Tensor, Tensor]:
    queries, keys, values = torch.randn(3, B, HEADS, S, 4)
    return queries, keys, values


def general(*shape: int) -> Tensor:
    """A random mask that leaves each row its first column."""
    mask = torch.rand(shape) < 0.5
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["free", "padded", "general"])
def test_plain_attention_is_the_fused_one_and_its_weights_are_weights(kind, causal):
    queries, keys, values = qkv()
    masks = {"free": None, "padded": batch()[1][:, None, None, :], "general": general(B, HEADS, S, S)}
    contexts, weights = plain_attention(queries, keys, values, masks[kind], causal, 0.0)
    fused = fused_attention(queries, keys, values, masks[kind], causal, 0.0)
    torch.testing.assert_close(contexts, fused, **EXACT)
    torch.testing.assert_close(contexts, weights @ values, **EXACT)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, HEADS, S), **EXACT)
    allowed = torch.ones(S, S, dtype=torch.bool) if masks[kind] is None else masks[kind]
    allowed = allowed & torch.ones(S, S).tril().bool() if causal else allowed
    assert torch.equal(weights > 0, allowed.expand(B, HEADS, S, S))


def test_plain_attention_by_hand():
    """Scores 0 and ln 3 once divided by sqrt(4): weights 1/4 and 3/4."""
    query = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]])
    keys = torch.tensor([[[[0.0, 5.0, 0.0, 0.0], [math.log(3), 0.0, 0.0, 7.0]]]])
    context, weights = plain_attention(query, keys, keys, None, False, 0.0)
    torch.testing.assert_close(weights, torch.tensor([[[[0.25, 0.75]]]]), **EXACT)
    torch.testing.assert_close(context[0, 0, 0, 1:], torch.tensor([1.25, 0.0, 5.25]), **EXACT)


def test_plain_attention_drops_weights_and_makes_up_for_it():
    zeros, one_hot = torch.zeros(40, HEADS, S, S), torch.eye(S).expand(40, HEADS, S, S)
    kept, weights = plain_attention(zeros, zeros, one_hot, None, False, 0.4)  # one-hot values: the weights
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / S))
    torch.testing.assert_close(kept, torch.where(kept == 0, 0.0, 1 / S / 0.6))
    assert (kept == 0).double().mean().item() == pytest.approx(0.4, abs=0.03)


def test_bf16_attention_on_a_cpu_stays_within_its_rounding():
    queries, keys, values = qkv()
    mask = batch()[1][:, None, None, :]
    exact = fused_attention(queries, keys, values, mask, False, 0.0)
    rough = fused_attention(queries.bfloat16(), keys.bfloat16(), values.bfloat16(), mask, False, 0.0)
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.double(), exact, rtol=0, atol=0.05)


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
def test_attention_after_a_prefix_is_attention_to_all_of_it(beam):
    """A twin with a prefix copied for every hypothesis, and one softmax over the joined rows."""
    queries, own = torch.randn(B, beam, HEADS, 4), KeysValues(*torch.randn(2, T, B, beam, HEADS, 4))
    shared, (_, mask, _) = KeysValues(*torch.randn(2, B, HEADS, S, 4)), batch()
    found, _ = prefix_attention(queries, own, shared, mask[:, None, None, :])
    for b, length in enumerate(LENGTHS):
        for k in range(beam):
            for head in range(HEADS):
                keys, values = (
                    torch.cat((past[b, head, :length], now[:, b, k, head]))
                    for past, now in zip(shared, own, strict=True)
                )
                weights = (keys @ queries[b, k, head] / 2).softmax(0)
                torch.testing.assert_close(found[b, k, head], weights @ values, **EXACT)
    unmasked, _ = prefix_attention(queries, own, shared, None)
    torch.testing.assert_close(unmasked[0], found[0], **EXACT)  # LENGTHS[0] is the whole prefix
    assert not torch.allclose(unmasked[1], found[1])


# --- many heads


@torch.no_grad()
@pytest.mark.parametrize("mask_shape", [(T, S), (B, 1, 1, S), (B, HEADS, T, S)])
def test_attention_to_states_of_another_width_is_torchs_under_a_general_mask(mask_shape):
    width, (x, states) = 10, (torch.randn(B, T, D), torch.randn(B, S, 10))
    ours = CrossAttention(small(), width)
    theirs = nn.MultiheadAttention(D, HEADS, kdim=width, vdim=width, batch_first=True)
    theirs.q_proj_weight.copy_(ours.project_query.weight)
    for part, weight in zip("kv", ours.project_memory.weight.chunk(2), strict=True):
        getattr(theirs, f"{part}_proj_weight").copy_(weight)
    theirs.in_proj_bias.copy_(torch.cat((ours.project_query.bias, ours.project_memory.bias)))
    theirs.out_proj.load_state_dict(ours.project_out.state_dict())
    mask = general(*mask_shape)
    forbidden = ~mask.expand(B, HEADS, T, S).flatten(0, 1)
    expected, _ = theirs(x, states, states, attn_mask=forbidden)
    torch.testing.assert_close(ours(x, ours.remember(states), mask), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("num_heads", "head_size"), [(4, None), (1, None), (4, 1), (3, 7), (1, 40)])
def test_heads_may_have_any_width(num_heads, head_size):
    config = small(num_heads=num_heads, head_size=head_size)
    size = num_heads * (head_size or D // num_heads)
    own, cross = SelfAttention(config, causal=False), CrossAttention(config)
    for module in (own, cross):
        assert sum(p.numel() for p in module.parameters()) == 4 * D * size + 3 * size + D
    x, states, mask = torch.randn(B, T, D), torch.randn(B, S, D), general(B, T, S)
    square = general(B, T, T)
    for b in range(B):
        expected = attend(own, x[b], x[b], square[b], config)
        torch.testing.assert_close(own(x, square[:, None])[b], expected, **EXACT)
        expected = attend(cross, x[b], states[b], mask[b], config)
        torch.testing.assert_close(cross(x, cross.remember(states), mask[:, None])[b], expected, **EXACT)


# --- masks


def test_a_position_sees_its_past_and_a_target_its_source():
    assert causal_mask(3, torch.device("cpu")).tolist() == [
        [True, False, False],
        [True, True, False],
        [True] * 3,
    ]
    for row, length in zip(prefix_mask(batch()[1], T), LENGTHS, strict=True):
        assert row.shape == (1, S + T, S + T)
        for i in range(S + T):
            sees = [j < length if j < S else S <= j <= i for j in range(S + T)]
            assert row[0, i].tolist() == sees


def test_a_callers_mask_takes_away_and_gives_nothing():
    mask = batch()[1][:, None, None, :]
    square, cube, full = general(S, S), general(B, S, S), general(B, HEADS, S, S)
    for b, h in ((0, 0), (1, 3), (2, 1)):
        for allowed, own in ((square, square), (cube, cube[b]), (full, full[b, h])):
            joined = combine_masks(mask, allowed).expand(B, HEADS, S, S)
            assert torch.equal(joined[b, h], own & batch()[1][b])


def test_a_mask_that_cannot_be_is_refused():
    mask = batch()[1]
    with pytest.raises(ValueError, match=r"must be bool.* got torch.int64 of shape \(6, 6\)"):
        combine_masks(mask[:, None, None, :], torch.ones(S, S, dtype=torch.long))
    for shape in ((B, S), (S,), (B, S, T)):
        with pytest.raises(ValueError, match=r"end in \(6, 6\): got torch.bool of shape"):
            combine_masks(mask[:, None, None, :], torch.ones(shape, dtype=torch.bool))
    diagonal = torch.eye(S, dtype=torch.bool)
    with pytest.raises(ValueError, match="leaves a position nothing to attend to"):
        combine_masks(mask[:, None, None, :], diagonal)  # padding sees itself alone, which is padding
    real = combine_masks(mask[:, None, None, :], diagonal, mask[:, None, :, None])
    assert torch.equal(real[1, 0, :4], diagonal[:4])
    assert torch.equal(real[1, 0, 4:], mask[1].expand(2, S))
    diagonal[2, 2] = False
    with pytest.raises(ValueError, match="leaves a position nothing to attend to"):
        combine_masks(mask[:, None, None, :], diagonal, mask[:, None, :, None])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("keys", [1, 2, 9])
def test_one_query_over_a_cache_sees_what_the_formula_says(keys: int, masked: bool):
    """Keys that lie time first, as a cache's do, take another way through the sums."""
    torch.manual_seed(keys)
    queries = torch.randn(3, 2, 1, 4, dtype=torch.float64)
    cached = torch.randn(2, keys, 3, 2, 4, dtype=torch.float64).permute(0, 2, 3, 1, 4)
    mask = torch.ones(3, 1, 1, keys, dtype=torch.bool) if masked else None
    if mask is not None:
        mask[0, ..., 1:] = False
    assert not cached[0].is_contiguous() or keys == 1
    expected, _ = plain_attention(queries, *cached, mask, False, 0.0)
    found = fused_attention(queries, *cached, mask, False, 0.0)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        _single_query_attention(queries, *cached, mask), expected, rtol=1e-12, atol=1e-12
    )
