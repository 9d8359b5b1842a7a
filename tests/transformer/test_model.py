"""Transformers as wholes: against ``transformer.formulas`` and torch's layers; a step is a position."""

import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compare.experiment.verify import CHECKS
from tests.kits.contract import seeded_float64, sources, targets
from tests.kits.transformers import (
    EXACT,
    HEADS,
    LENGTHS,
    SRC_V,
    TGT_V,
    B,
    D,
    S,
    T,
    batch,
    decoder_only_twin,
    decoder_twin,
    far,
    language_model_twin,
    make,
    make_language_model,
    make_only,
    small,
    small_only,
    stepped,
    transformer_twin,
)
from transformer import Decoder, DecoderOnly, LanguageModel, Transformer
from transformer.attention import fused_attention
from transformer.model import Layer
from transformer.positions import Relation

VARIANTS = pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post"},
        {"head_size": 3, "positions": "learned"},
        {"num_heads": 3, "head_size": 7, "activation": "gelu", "tie": "all"},
        {"positions": "none", "tie": "none", "num_heads": 1},
        {"positions": "rotary", "norm_kind": "rms", "activation": "swiglu", "bias": False},
        {"positions": "relative", "max_distance": 2, "value_size": 5},
        {"positions": "alibi", "num_heads": 3, "head_size": 6, "decoder_mask": "window:2"},
        {"positions": "concat", "position_size": 6, "attention_kind": "unscaled", "norm": "post"},
        {"positions": "concat-learned", "attention_kind": "hard", "max_positions": 14, "bias": False},
        {"positions": "network", "norm_kind": "rms", "norm": "post", "value_size": 2},
        {"encoder_mask": "window:2", "decoder_mask": "window:1", "cross_mask": "window:1"},
        {"positions": "alibi", "encoder_mask": "causal", "cross_mask": "causal"},
        {"num_kv_heads": 2, "positions": "rotary"},
        {"num_kv_heads": 1, "value_size": 3, "decoder_mask": "window:2", "cross_mask": "window:1"},
        {"num_kv_heads": 2, "positions": "t5", "max_distance": 20},
        {"positions": "t5", "encoder_mask": "causal", "attention_kind": "unscaled"},
        {"num_kv_heads": 2, "positions": "learned", "attention_kind": "hard"},
        {"attention_kind": "linear", "value_size": 3, "norm": "post"},
        {"projections": "shared-qk", "value_size": 3, "attention_kind": "unscaled"},
        {"projections": "shared-qk", "positions": "rotary", "bias": False, "num_heads": 2},
        {"projections": "none", "num_heads": 1, "cross_mask": "window:1", "norm": "post"},
        {"projections": "none", "num_heads": 1, "positions": "relative", "attention_kind": "unscaled"},
        {"qk_norm": True, "positions": "rotary", "num_kv_heads": 2, "norm": "post"},
        {"qk_norm": True, "positions": "alibi", "projections": "shared-qk", "attention_kind": "hard"},
        {"attention_kind": "linear", "num_heads": 8, "positions": "learned", "encoder_mask": "window:2"},
    ],
    ids=str,
)


_float64 = pytest.fixture(autouse=True)(seeded_float64)
KINDS = pytest.mark.parametrize("make", [make, make_only])
Make = Callable[..., Any]


def twin_of(model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
    """Compute the logits of a batch, one sentence without padding after the other."""
    if isinstance(model, LanguageModel):
        return torch.stack([language_model_twin(model, row) for row in tgt])
    twin = decoder_only_twin if isinstance(model, DecoderOnly) else transformer_twin
    return torch.stack([twin(model, src[b, :n], tgt[b]) for b, n in enumerate(LENGTHS)])


@pytest.mark.parametrize("make", [make, make_only, make_language_model])
@VARIANTS
def test_a_model_is_its_formulas_and_so_are_its_gradients(make: Make, changes: dict[str, Any]):
    """Decoders alone number target positions from the real end of the source."""
    model, (src, mask, tgt) = make(**changes), batch()
    logits = model(tgt) if isinstance(model, LanguageModel) else model(src, mask, tgt)
    twin = twin_of(model, src, tgt)
    torch.testing.assert_close(logits, twin, rtol=1e-11, atol=1e-11)
    names, parameters = zip(*model.named_parameters(), strict=True)
    ours, theirs = (torch.autograd.grad(out.sin().sum(), parameters) for out in (logits, twin))
    for name, one, two in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10, msg=name)
        assert one.abs().sum() > 0, name


def test_without_norm_there_is_none_and_the_residual_path_remains():
    model = Transformer(small(norm="none"), SRC_V, TGT_V).eval()
    assert not any(isinstance(module, nn.LayerNorm | nn.RMSNorm) for module in model.modules())
    src, mask, tgt = batch()
    torch.testing.assert_close(model(src, mask, tgt), twin_of(model, src, tgt), rtol=1e-10, atol=1e-10)


QUERIES = {f"encoder.{n}": f"encoder.layers.{n}.attention.project_in" for n in range(2)}
QUERIES |= {f"decoder.{n}": f"decoder.layers.{n}.attention.project_in" for n in range(3)}
QUERIES |= {f"cross.{n}": f"decoder.layers.{n}.cross.project_query" for n in range(3)}


@torch.no_grad()
@pytest.mark.parametrize("changed", QUERIES)
def test_attention_gives_the_weights_of_each_layer_under_its_name(changed: str):
    """A layer whose queries are 0 has uniform weights where its mask allows any; the others have not."""
    model, (src, mask, tgt) = make(), batch()
    for parameter in model.get_submodule(QUERIES[changed]).parameters():
        parameter[:D] = 0
    recorded, past = model.attention(src, mask, tgt), torch.ones(T, T, dtype=torch.bool).tril()
    assert recorded.keys() == QUERIES.keys()
    assert (
        model.get_submodule(QUERIES[changed].rpartition(".")[0]).attend is fused_attention
    )  # it was put back
    for name, weights in recorded.items():
        allowed = (past if name.startswith("decoder") else mask[:, None, None, :]).expand_as(weights)
        assert torch.equal(weights > 0, allowed)
        uniform = allowed / allowed.sum(-1, keepdim=True)
        assert torch.allclose(weights, uniform) == (name == changed)


def test_attention_of_a_decoder_alone_is_one_distribution_over_source_and_past():
    model, (src, mask, tgt) = make_only(), batch()
    weights = model.attention(src, mask, tgt)
    assert set(weights) == {f"{kind}.{n}" for kind in ("cross", "decoder") for n in range(3)}
    for n in range(3):
        source, target = weights[f"cross.{n}"], weights[f"decoder.{n}"]
        torch.testing.assert_close(source.sum(-1) + target.sum(-1), torch.ones(B, HEADS, T), **EXACT)
        assert torch.equal(source > 0, mask[:, None, None, :].expand_as(source))
        assert torch.equal(target > 0, torch.ones(T, T).tril().bool().expand_as(target))


def test_a_decoder_reads_states_of_any_width_unless_nothing_projects_them():
    (_, mask, tgt), states = batch(), torch.randn(B, S, 7)
    decoder = far(Decoder(small(), nn.Embedding(TGT_V, D), memory_size=7))
    hidden = decoder(tgt, decoder.remember(states, mask))
    for row, length in enumerate(LENGTHS):
        twin = decoder_twin(decoder, states[row, :length], tgt[row], small())
        torch.testing.assert_close(hidden[row], twin, **EXACT)
    bare = small(projections="none", num_heads=1)
    with pytest.raises(ValueError, match=r"none\" need encoder states of d_model \(16\), got 7"):
        Decoder(bare, nn.Embedding(TGT_V, D), memory_size=7)


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    merged = [ours.project_in] if hasattr(ours, "project_in") else [ours.project_query, ours.project_memory]
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in merged]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in merged]))
    theirs.out_proj.load_state_dict(ours.project_out.state_dict())


@torch.no_grad()
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_layer_is_torchs(norm: str, activation: str):
    ours = far(Layer(small(norm=norm, activation=activation), causal=True, memory_size=D))
    settings = {"batch_first": True, "norm_first": norm == "pre"}
    theirs = nn.TransformerDecoderLayer(D, HEADS, 32, 0.0, activation, **settings).eval()
    copy_attention(ours.attention, theirs.self_attn)
    copy_attention(ours.cross, theirs.multihead_attn)
    residuals = (ours.around_attention, ours.around_cross, ours.around_feed_forward)
    for n, residual in enumerate(residuals, start=1):
        getattr(theirs, f"norm{n}").load_state_dict(residual.norm.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.widen.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.narrow.state_dict())
    (_, mask, _), x, states = batch(), torch.randn(B, T, D), torch.randn(B, S, D)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected = theirs(x, states, tgt_mask=future, memory_key_padding_mask=~mask)
    attend = partial(ours.attention, relation=Relation())
    output = ours(x, attend, ours.cross.remember(states), mask[:, None, None, :])
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


# --- decoding


@KINDS
@VARIANTS
@torch.no_grad()
def test_steps_of_beams_give_the_logits_of_the_full_pass(make: Make, changes: dict[str, object]):
    CHECKS["step equals forward"](make(**changes), *sources(), targets())


def test_a_state_holds_no_more_tokens_than_it_was_made_for():
    model, (src, mask, tgt) = make(), batch()
    state = model.init_state(memory := model.encode(src, mask), beam=1, capacity=1)
    model.step(tgt[:, :1], state, memory)
    with pytest.raises(ValueError, match="holds 1 tokens at most"):
        model.step(tgt[:, :1], state, memory)


@VARIANTS
def test_a_language_model_steps_as_it_runs(changes: dict[str, object]):
    model, (_, _, tgt) = make_language_model(**changes), batch()
    state = model.init_state(B, 1, T)
    logits = [model.step(tgt[:, t : t + 1], state)[0] for t in range(T)]
    torch.testing.assert_close(torch.cat(logits, dim=1), model(tgt), **EXACT)


@KINDS
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative", "alibi"])
def test_bf16_autocast_trains_and_steps(make: Make, positions: str):
    torch.set_default_dtype(torch.float32)
    model, (src, mask, tgt) = make(positions=positions).float(), batch()
    exact = model(src, mask, tgt)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.train().features(src, mask, tgt).hidden
    hidden.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        logits = stepped(model.eval(), src, mask, tgt)
    assert (logits.float() - exact).abs().mean() / exact.std() < 0.1
    with torch.inference_mode():
        assert stepped(model.bfloat16(), src, mask, tgt).isfinite().all()


# --- weights


@pytest.mark.parametrize("tie", ["none", "output", "all"])
@KINDS
def test_the_matrices_that_are_tied_are_one(make: Make, tie: str):
    model = make(tie=tie)
    target = (model.decoder if isinstance(model, Transformer) else model).table.weight
    source = model.encoder.table if isinstance(model, Transformer) else model.src_table
    assert (model.output.weight is target, source.weight is target) == (tie != "none", tie == "all")


def test_two_vocabularies_cannot_share_a_matrix():
    for model, config in ((Transformer, small(tie="all")), (DecoderOnly, small_only(tie="all"))):
        with pytest.raises(ValueError, match="11 source and 13 target"):
            model(config, 11, 13)


@pytest.mark.parametrize(
    "changes", [{}, {"num_kv_heads": 2, "encoder_mask": "causal"}, {"encoder_mask": "window:2"}]
)
def test_a_model_can_be_pickled(changes: dict[str, Any]):
    model, inputs = make(**changes).eval(), batch()
    assert torch.equal(pickle.loads(pickle.dumps(model))(*inputs), model(*inputs))


@pytest.mark.parametrize("tie", ["none", "all"])
def test_fresh_embeddings_and_learned_positions_have_unit_size_once_scaled(tie: str):
    """The first g of qk_norm is that of its paper, log2(L^2 - L) for L = 32 words, rounded."""
    model = Transformer(small(d_model=64, tie=tie, positions="learned", qk_norm=True), 3000, 3000)
    scales = [value for name, value in model.named_parameters() if name.endswith("qk_scale")]
    assert [scale.item() for scale in scales] == [round(math.log2(32**2 - 32))] * len(scales) != []
    for weight in (model.encoder.table.weight, model.decoder.place.places.weight, model.output.weight):
        assert weight.std().item() * 8 == pytest.approx(1, abs=0.02)
