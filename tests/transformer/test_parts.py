"""Parts of a model: positions, dropout, and replacements of them."""

import math
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from tests.kits.transformer import EXACT, B, D, S, T, batch, float64, make, make_language_model, small
from transformer import Parts, plain_attention
from transformer.config import LayerConfig, Positions
from transformer.layers import Residual
from transformer.positions import MIN_CACHED, PositionalEmbedding, sinusoids

_float64 = pytest.fixture(autouse=True)(float64)

# --- positions


def test_sinusoids_follow_the_formula():
    table = sinusoids(torch.arange(4700, 5000), D)
    for n, position in enumerate(range(4700, 5000)):
        for i in range(D // 2):
            angle = position / 10000 ** (2 * i / D)
            assert table[n, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-11)
            assert table[n, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-11)


def test_moving_on_by_k_positions_is_a_rotation_that_depends_on_k_alone():
    k = 7
    sine, cosine = (sinusoids(torch.arange(50 + k), D)[:, i::2] for i in (0, 1))
    turn = k * 10000.0 ** (-torch.arange(0, D, 2) / D)
    moved = (
        sine[:50] * turn.cos() + cosine[:50] * turn.sin(),
        cosine[:50] * turn.cos() - sine[:50] * turn.sin(),
    )
    torch.testing.assert_close((sine[k:], cosine[k:]), moved, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sinusoids_of_low_precision_are_the_exact_ones_rounded(dtype):
    where = torch.arange(100_001, 100_004)
    placed = PositionalEmbedding(small())(torch.zeros(1, 3, D, dtype=dtype), where)
    assert torch.equal(placed[0], sinusoids(where, D).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cached_sinusoids_are_those_computed(dtype):
    """The cache grows, follows the dtype, can be used in training after search, and is no part of weights."""
    place = PositionalEmbedding(small())
    for end in (5, 3, MIN_CACHED + 1, 700):
        where = torch.tensor([[0, end - 1, end // 2]])
        embedded = torch.zeros(1, 3, D, dtype=dtype, requires_grad=True)
        with torch.inference_mode():
            place(embedded.detach(), where, end)
        placed = place(embedded, where, end)
        assert torch.equal(placed, place(embedded, where))
        placed.sum().backward()
    assert len(place.sinusoids) >= 700
    assert not place.state_dict()
    assert place(embedded.double(), where, 700).dtype == torch.float64
    assert torch.equal(place(embedded.double(), where, 700), place(embedded.double(), where))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
def test_embeddings_are_scaled_and_placed(positions):
    place, embedded = PositionalEmbedding(small(positions=positions)), torch.randn(B, T, D)
    rows = torch.stack([torch.arange(start, start + T) for start in (0, 7, 3)])
    moved = place(embedded, rows) - embedded * 4
    for row, start in zip(moved, (0, 7, 3), strict=True):
        if positions == "learned":
            expected = place.places.weight[start : start + T] * 4
        else:
            expected = sinusoids(torch.arange(start, start + T), D) * (positions == "sinusoidal")
        torch.testing.assert_close(row, expected, **EXACT)
    torch.testing.assert_close(place(embedded, torch.arange(T))[0], place(embedded, rows)[0], **EXACT)


def test_past_the_learned_positions_is_an_error():
    """512 vectors unless the config says otherwise; the values count, not what ``end`` allows for."""
    where = torch.tensor([510, 511, 512, 10**6])
    place, zeros = PositionalEmbedding(small(positions="learned")), torch.zeros(1, 4, D)
    for end in (None, 10**6 + 1):
        with pytest.raises(ValueError, match="longer than the 512 learned positions: raise max_positions"):
            place(zeros, where, end)
    assert place(zeros[:, :2], where[:2], 600).shape == (1, 2, D)
    for positions in ("learned", "concat-learned"):
        model, (src, mask, tgt) = make(positions=positions, max_positions=T), batch()
        with pytest.raises(ValueError, match=f"longer than the {T} learned positions"):
            model(src, mask, tgt)  # S > T
        model(src[:, :T], mask[:, :T], tgt)


def test_without_positions_a_shuffled_source_gives_the_same_translation():
    src, _, tgt = batch()
    everyone, order = torch.ones(B, S, dtype=torch.bool), torch.randperm(S)
    for positions in get_args(Positions):
        model = make(positions=positions)
        same = torch.allclose(model(src[:, order], everyone, tgt), model(src, everyone, tgt), atol=1e-10)
        assert same == (positions == "none")


# --- dropout


def test_dropout_acts_on_embeddings_sublayers_and_weights_in_training_alone():
    src, mask, tgt = batch()
    plain, dropped, thinned = (make(**c) for c in ({}, {"dropout": 0.4}, {"attention_dropout": 0.4}))
    for model in (dropped, thinned):
        model.load_state_dict(plain.state_dict())
        torch.testing.assert_close(model(src, mask, tgt), plain(src, mask, tgt), **EXACT)
        model.train()
        assert not torch.allclose(model(src, mask, tgt), model(src, mask, tgt))
    ones = torch.ones(40, 50, D)
    share = (dropped.encoder.place(ones, torch.arange(50)) == 0).double().mean().item()
    assert share == pytest.approx(0.4, abs=0.02)
    for norm in ("pre", "post"):
        residual = make(norm=norm, dropout=0.4).train().decoder.layers[0].around_cross
        residual.norm = nn.Identity()
        assert torch.equal(residual(ones, torch.zeros_like), ones)  # nothing of the residual path is dropped
        kept = residual(torch.zeros(40, 50, D), torch.ones_like)
        assert (kept == 0).double().mean().item() == pytest.approx(0.4, abs=0.02)
        assert kept.max().item() == pytest.approx(1 / 0.6, rel=1e-4)  # of 16 bits
    assert torch.equal(
        thinned.encoder.place(ones, torch.arange(50)), plain.encoder.place(ones, torch.arange(50))
    )


# --- replaced parts


class Bare(nn.Module):
    """f(x): no residual path, no norm."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()

    def forward(self, x: Tensor, sublayer: object) -> Tensor:
        return sublayer(x)


class Joined(nn.Module):
    """Sinusoids of width 6 that replace the last 6 numbers of an embedding."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()

    def forward(self, embedded: Tensor, positions: Tensor) -> Tensor:
        where = sinusoids(positions, 6).expand(*embedded.shape[:-1], 6)
        return torch.cat((embedded[..., :-6], where), dim=-1)


def unscaled(queries: Tensor, *rest: object) -> Tensor:
    return plain_attention(queries * math.sqrt(queries.size(-1)), *rest)[0]


def hard(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """The value of the best key alone."""
    _, weights = plain_attention(queries, keys, values, mask, causal, 0.0)
    return nn.functional.one_hot(weights.argmax(-1), keys.size(-2)).to(values) @ values


STUDIES = {
    "unscaled": (Parts(attend=unscaled), {}),
    "hard": (Parts(attend=hard), {}),
    "bare": (Parts(residual=Bare), {"norm": "post"}),
    "joined": (Parts(positional_embedding=Joined), {}),
}


@pytest.mark.parametrize("study", STUDIES)
def test_a_part_of_a_study_takes_its_place_in_training_and_in_decoding(study):
    parts, changes = STUDIES[study]
    src, mask, tgt = batch()
    model, standard = make(parts, **changes), make(**changes)
    shared = {key: value for key, value in standard.state_dict().items() if key in model.state_dict()}
    model.load_state_dict(shared)
    full = model(src, mask, tgt)
    assert not torch.allclose(full, standard(src, mask, tgt), atol=1e-3)
    memory = model.encode(src, mask)
    state = model.init_state(memory, 1, T)
    for t in range(T):
        logits, state = model.step(tgt[:, t : t + 1], state, memory)
        torch.testing.assert_close(logits[:, 0], full[:, t], rtol=1e-12, atol=1e-12)
    full.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    alone = make_language_model(parts, **changes)
    full, stepped = alone(tgt), alone.init_state(B, 1, T)
    for t in range(T):
        logits, stepped = alone.step(tgt[:, t : t + 1], stepped)
        torch.testing.assert_close(logits[:, 0], full[:, t], rtol=1e-12, atol=1e-12)


def test_a_bare_model_has_no_norm_and_an_unscaled_one_the_same_weights():
    bare = make(Parts(residual=Bare), norm="post")
    assert not any(isinstance(module, nn.LayerNorm) for module in bare.modules())
    assert make(Parts(attend=unscaled)).state_dict().keys() == make().state_dict().keys()
    assert any(isinstance(module, Residual) for module in make().modules())


def test_the_weights_of_hard_attention_are_one_hot():
    for name, weights in make(Parts(attend=hard)).attention(*batch()).items():
        assert torch.equal(weights.max(-1).values, torch.ones(weights.shape[:-1])), name
        assert torch.equal(weights.sum(-1), torch.ones(weights.shape[:-1])), name
