"""Config of the Transformer: what is refused."""

import pytest

from tests.kits.transformers import small, small_only
from transformer import LanguageModelConfig


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"num_heads": 3}, r"d_model \(16\) must be a multiple of num_heads \(3\), unless head_size says"),
        ({"d_model": 15, "num_heads": 5}, "d_model must be even.*got 15"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"norm": "batch"}, "norm must be one of pre, post, none, got 'batch'"),
        ({"norm": "none", "norm_kind": "rms"}, 'norm_kind "rms" has no effect with norm "none"'),
        ({"positions": "rope"}, "positions must be one of sinusoidal, learned, network, .*, got 'rope'"),
        ({"positions": "rotary", "head_size": 3}, "the size of a head must be even, got 3"),
        ({"positions": "concat", "position_size": 5}, "position_size must be below .* even .* got 5"),
        ({"position_size": 4}, 'position_size has no effect with positions "sinusoidal": it needs "concat"'),
        ({"max_positions": 4}, 'max_positions has no effect .* needs "learned" or "concat-learned"'),
        ({"positions": "rotary", "max_distance": 4}, 'max_distance has no effect .* needs "relative"'),
        ({"positions": "t5", "max_distance": 16}, 'max_distance must be above 16 with positions "t5"'),
        ({"encoder_mask": "window"}, 'encoder_mask must be "full", "causal", "window:W".* got \'window\''),
        ({"decoder_mask": "causal"}, 'decoder_mask "causal" has no effect: a decoder is causal'),
        ({"attention_kind": "linear", "positions": "rotary"}, 'positions "rotary" change softmax scores'),
        ({"projections": "none"}, 'projections "none" need num_heads 1: all heads would be alike'),
        ({"projections": "none", "num_heads": 1, "value_size": 4}, "value_size has no effect .* d_model"),
        ({"projections": "shared-qk", "num_kv_heads": 2}, "num_kv_heads must be num_heads with projections"),
        ({"qk_norm": True, "attention_kind": "unscaled"}, 'qk_norm needs attention_kind "scaled" or "hard"'),
        ({"qk_norm": True, "positions": "relative"}, 'qk_norm needs .* other than "relative"'),
        ({"attention_kind": "linear", "attention_dropout": 0.1}, "attention_dropout .0.1. drops weights"),
    ],
)
def test_an_impossible_config_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        small(**change)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (small_only, {"num_layers": 0}, "num_layers must be at least 1, got 0"),
        (LanguageModelConfig, {"tie": "all"}, 'tie "all" shares a source embedding'),
        (LanguageModelConfig, {"encoder_mask": "causal"}, "encoder_mask has no effect in a language model"),
        (LanguageModelConfig, {"cross_mask": "window:2"}, "cross_mask has no effect in a language model"),
    ],
)
def test_a_model_of_one_stack_has_rules_of_its_own(kind, change, message):
    with pytest.raises(ValueError, match=message):
        kind(**change)
