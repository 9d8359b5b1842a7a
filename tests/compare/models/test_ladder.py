"""The ladder from an RNN to the Transformer: its top is the Transformer, and each rung is its twin."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seq2seq.formulas
import transformer.formulas
from compare.config.parse import load_experiment
from compare.config.resolve import resolve_model
from compare.config.sections import ModelConfig
from compare.models.hybrid import Ladder, LadderConfig
from compare.models.presets import PRESETS
from compare.models.registry import build
from tests.kits.common import ROOT
from tests.kits.contract import seeded_float64
from tests.kits.recurrent import cells_of, zeros
from tests.kits.transformers import (
    LENGTHS,
    TGT_V,
    T,
    across,
    affine,
    allow,
    attend,
    batch,
    embed,
    far,
    feed_forward,
    layer_norm,
    visible,
)
from transformer import Transformer, TransformerConfig

SIZES = {"d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "ffn_size": 12, "dropout": 0.0}
TABLES = load_experiment(ROOT / "configs" / "ladder.toml").models
RUNGS = {
    table.label: resolve_model(
        ModelConfig(preset="ladder", label=table.label, overrides={**table.overrides, **SIZES})
    ).architecture
    for table in TABLES
}
GRU = {"encoder_mixer": "gru", "decoder_mixer": "gru", "norm": "post", "positions": "none", "residual": False}
RUNGS["gru"] = LadderConfig(**SIZES, **GRU, num_heads=2, bias=False)
WIDE = {"num_heads": 2, "head_size": 3, "value_size": 5, "bias": False}
RUNGS["gated-wide"] = LadderConfig(
    **SIZES, **WIDE, encoder_mixer="gated-linear", decoder_mixer="gated-linear", norm="post"
)
for decay in ("scalar", "fixed"):
    RUNGS[f"gated-{decay}"] = replace(RUNGS["gated-wide"], state_decay=decay, num_heads=4)
RUNGS["last-cross"] = LadderConfig(**SIZES, cross_layers="last")
RUNGS["lstm-decoder"] = LadderConfig(
    **SIZES, decoder_mixer="lstm", positions="relative", encoder_mask="window:2"
)
RUNGS["lstm-encoder"] = LadderConfig(**SIZES, encoder_mixer="lstm", positions="alibi", cross_mask="window:1")


_float64 = pytest.fixture(autouse=True)(seeded_float64)


def mix(layer: nn.Module, allowed: Tensor, config: LadderConfig, side: str) -> Callable[[Tensor], Tensor]:
    """Return what connects the positions of one sentence: (linear) self-attention, or one or two cells."""
    if getattr(config, f"{side}_mixer") == "self-attention":
        return lambda x: attend(layer.attention, x, x, allowed, config)
    if getattr(config, f"{side}_mixer") == "gated-linear":
        return partial(gated_linear, layer.attention, heads=config.num_heads, both_ways=side == "encoder")
    rnn = layer.attention.rnn
    start = zeros(rnn.size, 2 if rnn.is_lstm else 1)

    def run(x: Tensor) -> Tensor:
        runs = zip(cells_of(rnn), (False, True), strict=False)
        states = [seq2seq.formulas.read(list(x), cell, start, backward)[0] for cell, backward in runs]
        return torch.cat([torch.stack(direction) for direction in states], dim=1)

    return run


def gated_linear(module: nn.Module, x: Tensor, heads: int, both_ways: bool) -> Tensor:
    """The formulas of Yang et al. 2024, the second half of the heads reading backwards if ``both_ways``."""
    q, k, v, r = affine(module.project_in, x).split(module.sizes, dim=1)
    if isinstance(module.decay, nn.Sequential):
        first, second = module.decay
        a = transformer.formulas.decays(x, first.weight, second.weight, second.bias)
    else:
        count = heads // 2 if both_ways else heads
        of_heads = [torch.full((len(x),), transformer.formulas.fixed_decay(h % count)) for h in range(heads)]
        if module.decay is not None:
            weights = zip(module.decay.weight, module.decay.bias, module.log_rate, strict=True)
            of_heads = [transformer.formulas.scalar_decays(x, *of_head) for of_head in weights]
        a = torch.stack(of_heads, dim=1).repeat_interleave(q.size(1) // heads, dim=1)
    contexts = []
    for head, parts in enumerate(zip(*(part.chunk(heads, dim=1) for part in (q, k, v, a)), strict=True)):
        turn = partial(torch.flip, dims=[0] if both_ways and head >= heads // 2 else [])
        contexts.append(turn(transformer.formulas.gated_linear_attention(*map(turn, parts))))
    norm, out = partial(layer_norm, module.norm), module.project_out
    y = transformer.formulas.gated_heads(contexts, r, out.weight, norm)
    return y if out.bias is None else y + out.bias


def around(module: nn.Module, x: Tensor, f: Callable[[Tensor], Tensor], norm: str, residual: bool) -> Tensor:
    inner = f(layer_norm(module.norm, x)) if norm == "pre" else f(x)
    inner = x + inner if residual else inner
    return layer_norm(module.norm, inner) if norm == "post" else inner


def twin(model: Ladder, src: Tensor, tgt: Tensor) -> Tensor:
    """Compute the logits (T, V) of one pair without padding."""
    config, n, t = model.config, len(src), len(tgt)
    norm, residual = config.norm, config.residual
    allowed = allow(n, n, lambda i, j: visible(config.encoder_mask, i, j))
    x = embed(model.encoder, model.encoder.table, src, 0, config)
    for layer in model.encoder.layers:
        x = around(layer.around_attention, x, mix(layer, allowed, config, "encoder"), norm, residual)
        if config.feed_forward:
            x = around(layer.around_feed_forward, x, feed_forward(layer, config), norm, residual)
    states = layer_norm(model.encoder.norm, x)
    allowed = allow(t, t, lambda i, j: j <= i)
    x = embed(model.decoder, model.decoder.table, tgt, 0, config)
    for number, layer in enumerate(model.decoder.layers):
        x = around(layer.around_attention, x, mix(layer, allowed, config, "decoder"), norm, residual)
        if config.cross_layers == "all" or number == config.decoder_layers - 1:
            f = partial(attend, layer.cross, memory=states, allowed=across(t, n, config), config=config)
            x = around(layer.around_cross, x, f, norm, True)
        if config.feed_forward:
            x = around(layer.around_feed_forward, x, feed_forward(layer, config), norm, residual)
    return layer_norm(model.decoder.norm, x) @ model.output.weight.t()


@pytest.mark.parametrize("rung", RUNGS)
def test_each_rung_is_its_twin_in_values_gradients_and_steps(rung: str):
    model, (src, mask, tgt) = far(build(RUNGS[rung], TGT_V, TGT_V)), batch()
    logits = model(src, mask, tgt)
    expected = torch.stack([twin(model, src[b, :n], tgt[b]) for b, n in enumerate(LENGTHS)])
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    names, parameters = zip(*model.named_parameters(), strict=True)
    ours, theirs = (torch.autograd.grad(out.sin().sum(), parameters) for out in (logits, expected))
    for name, one, two in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10, msg=name)
        assert one.abs().sum() > 0, name
    memory = model.encode(src, mask)
    state = model.init_state(memory, 1, T)
    for t in range(T):
        step, state = model.step(tgt[:, t : t + 1], state, memory)
        torch.testing.assert_close(step[:, 0], logits[:, t], rtol=0, atol=1e-11)
    weights = model.attention(src, mask, tgt)
    config = model.config
    has = {"encoder": config.encoder_mixer, "decoder": config.decoder_mixer}
    kinds = {kind for kind, mixer in has.items() if mixer == "self-attention"} | {"cross"}
    assert {name.split(".")[0] for name in weights} == kinds
    assert ("cross.0" in weights) == (config.cross_layers == "all")


def test_the_top_is_the_transformer():
    """The same weights from the same random numbers, and the defaults of its config."""
    sizes = {**SIZES, "num_heads": 2}
    assert RUNGS["decoder-self-attention"] == LadderConfig(**{**SIZES, "num_heads": 4})
    torch.manual_seed(1)
    top = build(LadderConfig(**sizes), TGT_V, TGT_V)
    torch.manual_seed(1)
    plain = Transformer(TransformerConfig(**sizes), TGT_V, TGT_V)
    torch.testing.assert_close(top.state_dict(), plain.state_dict(), rtol=0, atol=0)


def test_each_rung_changes_one_thing_and_the_first_is_the_preset():
    settings = [table.overrides for table in TABLES]
    for lower, upper in pairwise(settings):
        assert lower.keys() <= upper.keys()
        # A connection and its norm; self-attention and positions; gated linear attention on both sides.
        assert 1 <= len(upper.items() - lower.items()) <= 2
    assert settings[0].keys() <= PRESETS["transformer"].model.settings().keys()


RECURRENT = {"encoder_mixer": "lstm", "decoder_mixer": "gated-linear"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_mixer": "rnn"}, "encoder_mixer must be one of self-attention, lstm, .*, got 'rnn'"),
        ({"decoder_mixer": "gru", "decoder_mask": "window:1"}, '"window:1" has no effect with .* "gru"'),
        (RECURRENT | {"positions": "rotary"}, 'positions "rotary" needs self-attention'),
        (RECURRENT | {"projections": "shared-qk"}, 'projections "shared-qk" needs self-attention'),
        ({"feed_forward": False, "activation": "gelu"}, '"gelu" has no effect with feed_forward false'),
        (RECURRENT | {"d_model": 9, "num_heads": 3, "positions": "none"}, "d_model 9 must be even"),
        ({"encoder_mixer": "gated-linear", "num_heads": 1}, "num_heads 1 must be even"),
        ({"encoder_mixer": "gated-linear", "encoder_mask": "causal"}, 'encoder_mask "causal" has no effect'),
        ({"encoder_mixer": "lstm", "state_decay": "fixed"}, 'state_decay "fixed" has no effect without'),
    ],
)
def test_an_impossible_ladder_is_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        LadderConfig(**{**SIZES, **changes})
