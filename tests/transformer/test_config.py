"""Config of the Transformer: what is refused."""

from typing import Any

import pytest

from tests.kits.transformers import small, small_only
from transformer import LanguageModelConfig

NO_SOURCE = "has no effect in a language model"
INVALID: list[tuple[Any, dict[str, Any], str]] = [
    (small, {"num_heads": 0}, "num_heads must be at least 1, got 0"),
    (small, {"num_heads": 3}, r"num_heads 3 does not fit: d_model \(16\) must be a multiple of num_heads"),
    (small, {"d_model": 15, "num_heads": 4}, r"d_model 15 does not fit: .* multiple of num_heads \(4\)"),
    (small, {"d_model": 15, "num_heads": 5}, "d_model 15 must be even"),
    (small, {"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    (small, {"norm": "batch"}, "norm must be one of pre, post, none, got 'batch'"),
    (small, {"norm": "none", "norm_kind": "rms"}, 'norm_kind "rms" has no effect with norm "none"'),
    (small, {"positions": "rope"}, "positions must be one of sinusoidal, learned, network, .*, got 'rope'"),
    (small, {"positions": "rotary", "head_size": 3}, "the size of a head must be even, not 3"),
    (small, {"positions": "concat", "position_size": 5}, "position_size 5 must be below .* even"),
    (small, {"positions": "concat-learned", "position_size": 16}, "position_size 16 must be below d_model"),
    (small, {"position_size": 4}, 'position_size 4 needs positions "concat" or "concat-learned"'),
    (small, {"max_positions": 4}, 'max_positions 4 needs positions "learned" or "concat-learned"'),
    (small, {"positions": "rotary", "max_distance": 4}, 'max_distance 4 needs positions "relative" or "t5"'),
    (small, {"positions": "t5", "max_distance": 16}, "max_distance 16 must be above 16"),
    (small, {"encoder_mask": "window"}, 'encoder_mask "window" must be "full", "causal", "window:W"'),
    (small, {"decoder_mask": "causal"}, 'decoder_mask "causal" has no effect: a decoder is causal'),
    (small, {"attention_kind": "linear", "positions": "rotary"}, 'positions "rotary" needs a softmax'),
    (small, {"attention_kind": "linear", "attention_dropout": 0.1}, "attention_dropout 0.1 needs a softmax"),
    (small, {"attention_kind": "linear", "num_kv_heads": 2}, "num_kv_heads 2 needs a softmax"),
    (small, {"positions": "relative", "num_kv_heads": 2}, "num_kv_heads 2 needs positions other than"),
    (small, {"num_kv_heads": 3}, r"num_kv_heads 3 must divide num_heads \(4\)"),
    (small, {"projections": "none"}, 'projections "none" needs num_heads 1: all would be alike'),
    (
        small,
        {"projections": "none", "num_heads": 1, "value_size": 4},
        "value_size 4 has no effect .* d_model",
    ),
    (small, {"projections": "shared-qk", "num_kv_heads": 2}, "num_kv_heads 2 must be num_heads with proj"),
    (small, {"qk_norm": True, "attention_kind": "unscaled"}, 'qk_norm true needs attention_kind "scaled" or'),
    (small, {"qk_norm": True, "positions": "relative"}, 'qk_norm true needs positions other than "relative"'),
    (small_only, {"num_layers": 0}, "num_layers must be at least 1, got 0"),
    (LanguageModelConfig, {"tie": "all"}, 'tie "all" shares a source embedding'),
    (LanguageModelConfig, {"encoder_mask": "causal"}, f'encoder_mask "causal" {NO_SOURCE}'),
    (LanguageModelConfig, {"cross_mask": "window:2"}, f'cross_mask "window:2" {NO_SOURCE}'),
]


@pytest.mark.parametrize(("kind", "changes", "message"), INVALID)
def test_an_impossible_config_is_refused(kind: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**changes)
