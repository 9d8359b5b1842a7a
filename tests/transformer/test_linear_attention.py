"""Linear attention: both orders of its products against the formula, its features, and what it refuses."""

import math

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.kits.transformer import HEADS, LENGTHS, B, S, batch, float64, make, small
from transformer import attention as linear_attention
from transformer import flops
from transformer.attention import elu_features
from transformer.attention import linear_attention as attend
from transformer.layers import Parts

_float64 = pytest.fixture(autouse=True)(float64)


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
    for module in (flops, linear_attention) if chunk else ():
        monkeypatch.setattr(module, "CHUNK", chunk)
    inputs = [torch.randn(B, 2, S, width, requires_grad=True) for width in (size, size, 3)]
    queries, keys, values = elu_features(inputs[0]), elu_features(inputs[1]), inputs[2]
    general = (torch.rand(B, 2, S, S) < 0.5) | torch.eye(S, dtype=torch.bool)
    mask = {"free": None, "padded": batch()[1][:, None, None, :], "general": general}[kind]
    allowed = torch.ones(B, 2, S, S, dtype=torch.bool) if mask is None else mask.expand(B, 2, S, S)
    allowed = allowed & torch.ones(S, S).tril().bool() if chunk else allowed
    ours, expected = (
        attend(queries, keys, values, mask, bool(chunk), 0.0),
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
    exact = attend(queries, keys, values, None, True, 0.0)
    rounded = attend(*(part.to(dtype) for part in (queries, keys, values)), None, True, 0.0)
    torch.testing.assert_close(rounded.double(), exact, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.02)


def test_underflow_of_all_features_gives_no_nan():
    queries = keys = elu_features(torch.full((1, 1, 3, 2), -800.0))
    values = torch.ones(1, 1, 3, 1)
    for causal in (False, True):
        assert attend(queries, keys, values, None, causal, 0.0).isfinite().all()


@pytest.mark.parametrize("chunk", [2])
def test_a_model_with_several_chunks_steps_as_it_runs_and_its_products_are_counted(chunk, monkeypatch):
    model = make(attention_kind="linear", num_heads=8)
    src, mask, tgt = batch()
    whole = model(src, mask, tgt)
    for module in (flops, linear_attention):
        monkeypatch.setattr(module, "CHUNK", chunk)
    with FlopCounterMode(display=False) as counter:
        full = model(src, mask, tgt)
    count = flops.multiply_adds(model.config, S, tgt.size(1)) + tgt.size(1) * full.size(-1) * 16
    assert counter.get_total_flops() == 2 * B * count
    torch.testing.assert_close(full, whole, rtol=0, atol=1e-12)
    memory = model.encode(src, mask)
    state = model.init_state(memory, 1, tgt.size(1))
    for t in range(tgt.size(1)):
        logits, state = model.step(tgt[:, t : t + 1], state, memory)
        torch.testing.assert_close(logits[:, 0], full[:, t], rtol=0, atol=1e-12)
    for b, n in enumerate(LENGTHS):
        alone = model(src[b : b + 1, :n], None, tgt[b : b + 1])
        torch.testing.assert_close(alone[0], full[b], rtol=0, atol=1e-12)


def test_recorded_weights_are_shares_of_what_may_be_attended():
    src, mask, tgt = batch()
    for name, weights in make(attention_kind="linear").attention(src, mask, tgt).items():
        assert weights.shape[1] == HEADS
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        if not name.startswith("decoder"):
            assert (weights[~mask[:, None, None, :].expand_as(weights)] == 0).all()
        else:
            assert (weights.triu(1) == 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "rotary"}, 'positions "rotary" change softmax scores'),
        ({"positions": "relative"}, 'positions "relative" change softmax scores'),
        ({"positions": "alibi"}, 'positions "alibi" change softmax scores'),
        ({"attention_dropout": 0.1}, "attention_dropout .0.1. drops weights"),
    ],
)
def test_what_needs_scores_or_weights_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small(attention_kind="linear", **changes)


def test_a_replaced_attention_function_is_refused():
    with pytest.raises(ValueError, match='attention_kind "linear" has no effect with Parts'):
        make(Parts(attend=lambda *_: torch.zeros(0)), attention_kind="linear")


def test_sums_of_prefixes_in_their_deterministic_form():
    x = torch.randn(2, 3, 5, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(linear_attention._sum_prefixes(x), x.cumsum(-3))
