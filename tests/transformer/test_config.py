"""Config of the Transformer: checks, number of weights, and multiply-adds."""

import dataclasses
import itertools
from collections.abc import Callable

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.kits.transformer import SRC_V, TGT_V, B, D, S, T, float64, make, small, small_only
from transformer import (
    Decoder,
    DecoderOnly,
    DecoderOnlyConfig,
    LanguageModel,
    Transformer,
    TransformerConfig,
)
from transformer.flops import decoder_multiply_adds, encoder_multiply_adds, multiply_adds

_float64 = pytest.fixture(autouse=True)(float64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"encoder_layers": 0}, "encoder_layers must be at least 1, got 0"),
        ({"ffn_size": -3}, "ffn_size must be at least 1, got -3"),
        ({"head_size": 0}, "head_size must be at least 1, got 0"),
        ({"num_heads": 3}, r"d_model \(16\) must be a multiple of num_heads \(3\), unless head_size says"),
        ({"d_model": 15, "num_heads": 5}, "d_model must be even.*got 15"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"attention_dropout": -0.1}, "attention_dropout must be .* got -0.1"),
        ({"norm": "batch"}, "norm must be one of pre, post, none, got 'batch'"),
        ({"norm_kind": "batch"}, "norm_kind must be one of layer, rms, got 'batch'"),
        ({"norm": "none", "norm_kind": "rms"}, 'norm_kind "rms" has no effect with norm "none"'),
        ({"activation": "tanh"}, "activation must be one of relu, gelu, swiglu, got 'tanh'"),
        ({"positions": "rope"}, "positions must be one of sinusoidal, learned, network, .*, got 'rope'"),
        ({"positions": "rotary", "head_size": 3}, "the size of a head must be even, got 3"),
        ({"positions": "network", "d_model": 15, "num_heads": 5}, "d_model must be even.*got 15"),
        ({"positions": "concat", "position_size": 5}, "position_size must be below .* even .* got 5"),
        ({"positions": "concat-learned", "position_size": 16}, r"below d_model \(16\), .* got 16"),
        ({"position_size": 4}, 'position_size has no effect with positions "sinusoidal": it needs "concat"'),
        ({"max_positions": 4}, 'max_positions has no effect .* needs "learned" or "concat-learned"'),
        ({"positions": "rotary", "max_distance": 4}, 'max_distance has no effect .* needs "relative"'),
        ({"value_size": 0}, "value_size must be at least 1, got 0"),
        ({"activation_dropout": 1.0}, "activation_dropout must be at least 0 and below 1, got 1.0"),
        ({"word_dropout": -1.0}, "word_dropout must be .* got -1.0"),
        ({"embedding_dropout": 2.0}, "embedding_dropout must be .* got 2.0"),
        (
            {"attention_kind": "soft"},
            "attention_kind must be one of scaled, unscaled, hard, linear, got 'soft'",
        ),
        ({"encoder_mask": "window"}, 'encoder_mask must be "full", "causal", "window:W".* got \'window\''),
        ({"cross_mask": "window:-1"}, "cross_mask must be .* got 'window:-1'"),
        ({"cross_mask": "window:" + 30 * "9"}, r"window:W\" with W from 0 to 1000000.* got 'window:999"),
        ({"decoder_mask": "causal"}, 'decoder_mask "causal" has no effect: a decoder is causal'),
        ({"tie": "both"}, "tie must be one of none, output, all, got 'both'"),
    ],
)
def test_an_impossible_config_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        small(**change)


def test_the_decoder_only_config_has_checks_of_its_own_and_the_shared_ones():
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        small_only(num_layers=0)
    with pytest.raises(ValueError, match="dropout must be at least 0"):
        small_only(dropout=-1)
    for name in ("encoder_layers", "decoder_layers"):
        assert name not in {field.name for field in dataclasses.fields(DecoderOnlyConfig)}


def test_an_odd_width_is_for_whom_has_no_waves():
    for positions in ("learned", "none"):
        model = Transformer(small(d_model=15, num_heads=4, head_size=3, positions=positions), SRC_V, TGT_V)
        mask = torch.ones(B, S, dtype=torch.bool)
        logits = model(torch.zeros(B, S, dtype=torch.long), mask, torch.zeros(B, T, dtype=torch.long))
        assert logits.shape == (B, T, TGT_V)


def test_no_class_of_a_config_declares_more_than_twelve_fields():
    for config in (TransformerConfig, DecoderOnlyConfig):
        for part in config.__mro__:
            assert len(vars(part).get("__annotations__", ())) <= 12


# --- weights


def test_tied_matrices_are_one_parameter():
    models = {tie: make(tie=tie) for tie in ("none", "output", "all")}
    counts = {tie: sum(p.numel() for p in model.parameters()) for tie, model in models.items()}
    assert counts["none"] - counts["output"] == TGT_V * D
    assert counts["output"] - counts["all"] == SRC_V * D
    for tie, model in models.items():
        source, target = model.encoder.table.weight, model.decoder.table.weight
        assert (model.output.weight is target) == (tie != "none")
        assert (source is target) == (tie == "all")
    with pytest.raises(ValueError, match="11 source and 13 target"):
        Transformer(small(tie="all"), 11, 13)


@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_fresh_embeddings_and_learned_positions_have_unit_size_once_scaled(tie):
    model = Transformer(small(d_model=64, tie=tie, positions="learned"), 3000, 3000)
    for half in (model.encoder, model.decoder):
        for embedding in (half.table, half.place.places):
            assert embedding.weight.std().item() * 8 == pytest.approx(1, abs=0.02)
    assert model.output.weight.std().item() * 8 == pytest.approx(1, abs=0.02)


# --- work

WIDTHS = [
    {"num_heads": heads, "head_size": size, "ffn_size": ffn}
    for heads, size, ffn in itertools.product((1, 4), (None, 5), (9, 32))
] + [
    {"value_size": 3, "activation": "swiglu", "bias": False, "norm_kind": "rms"},
    {"positions": "relative", "max_distance": 3, "value_size": 7},
    {"positions": "rotary", "decoder_mask": "window:1"},
    {"positions": "alibi", "attention_kind": "hard"},
    {"attention_kind": "linear", "value_size": 2},
    {"attention_kind": "linear", "num_heads": 8, "head_size": 2, "decoder_mask": "window:2"},
]


def counted(run: Callable[..., object], *inputs: torch.Tensor) -> float:
    """Count multiply-adds per sentence by torch, whose counter ignores fused kernels."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run(*inputs)
    return counter.get_total_flops() / 2 / B


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_multiply_adds_are_those_torch_counts(widths):
    src, tgt = torch.zeros(B, S, dtype=torch.long), torch.zeros(B, T, dtype=torch.long)
    mask, output = torch.ones(B, S, dtype=torch.bool), T * D * TGT_V

    config = small(**widths)
    model = Transformer(config, SRC_V, TGT_V)
    assert multiply_adds(config, S, T) + output == counted(model, src, mask, tgt)
    assert encoder_multiply_adds(config, S) == counted(model.encoder, src, mask)
    decoder, states = Decoder(config, torch.nn.Embedding(TGT_V, D), memory_size=7), torch.zeros(B, S, 7)
    work = counted(lambda: decoder(tgt, decoder.remember(states, mask)))
    assert decoder_multiply_adds(config, S, T, memory_size=7) == work

    only = small_only(**widths)
    assert multiply_adds(only, S, T) + output == counted(DecoderOnly(only, SRC_V, TGT_V), src, mask, tgt)
    assert multiply_adds(only, 0, T) + output == counted(LanguageModel(only, TGT_V), tgt)
    assert multiply_adds(only, 0.5, 2.25) > multiply_adds(only, 0.5, 2) > 0  # means will do


def test_the_papers_base_model_by_hand():
    """With S = T = 1 each weight of a layer is used once, and each of 18 attentions has one pair."""
    config = TransformerConfig(d_model=512, num_heads=8, encoder_layers=6, decoder_layers=6, ffn_size=2048)
    weights = 6 * (4 * 512**2 + 2 * 512 * 2048) + 6 * (8 * 512**2 + 2 * 512 * 2048)
    assert multiply_adds(config, 1, 1) == weights + 18 * 2 * 512
