"""Config of the Transformer: checks, and multiply-adds."""

import dataclasses
import itertools
from collections.abc import Callable

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.kits.contract import seeded_float64
from tests.kits.transformer import (
    SRC_V,
    TGT_V,
    B,
    D,
    S,
    T,
    small,
    small_only,
)
from transformer import (
    Decoder,
    DecoderOnly,
    DecoderOnlyConfig,
    LanguageModel,
    LanguageModelConfig,
    Transformer,
)
from transformer.flops import decoder_multiply_adds, encoder_multiply_adds, multiply_adds

_float64 = pytest.fixture(autouse=True)(seeded_float64)


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
        ({"decoder_mask": "causal"}, 'decoder_mask "causal" has no effect: a decoder is causal'),
        ({"attention_kind": "linear", "positions": "rotary"}, 'positions "rotary" change softmax scores'),
        ({"attention_kind": "linear", "positions": "alibi"}, 'positions "alibi" change softmax scores'),
        ({"attention_kind": "linear", "attention_dropout": 0.1}, "attention_dropout .0.1. drops weights"),
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tie": "all"}, 'tie "all" shares a source embedding'),
        ({"encoder_mask": "causal"}, "encoder_mask has no effect in a language model"),
        ({"cross_mask": "window:2"}, "cross_mask has no effect in a language model"),
    ],
)
def test_options_of_a_source_are_refused_in_a_language_model(changes, message):
    with pytest.raises(ValueError, match=message):
        LanguageModelConfig(**changes)


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


def test_the_network_of_positions_is_counted_as_a_sentence_of_its_own():
    for config, kind in (
        (small(positions="network"), Transformer),
        (small_only(positions="network"), DecoderOnly),
    ):
        model = kind(config, SRC_V, TGT_V)
        src, tgt = torch.zeros(1, S, dtype=torch.long), torch.zeros(1, T, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            model(src, None, tgt)
        assert 2 * (multiply_adds(config, S, T) + T * D * TGT_V) == counter.get_total_flops()
