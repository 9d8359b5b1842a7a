"""Configurations of recurrent models: invalid ones raise a ValueError that names the rule."""

from typing import Any

import pytest

from seq2seq.attention import Attention
from seq2seq.config import (
    AttentionConfig,
    RecurrentLanguageModelConfig,
    RegularisationConfig,
    ReinforceConfig,
    Seq2SeqConfig,
)
from transformer.config import TransformerConfig

AFTER = {"placement": "after"}
BOTTOM = AttentionConfig(query_layer=1)
ATTENTION: list[tuple[dict[str, Any], str]] = [
    ({"score": "addtive"}, 'score "addtive" must be one of additive, concat, dot'),
    ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
    ({"scope": "local-m", "window": 0}, "window must be at least 1, got 0"),
    ({"num_heads": 2, "score": "dot"}, 'needs score additive or concat or general or scaled-dot, got "dot"'),
    ({"map_values": True, "num_heads": 2}, "map_values true has no effect with several heads, whose values"),
    ({"map_values": True, "score": "scaled-dot"}, 'needs score additive or concat or general, got "scaled-'),
    ({"kernel_size": 3}, 'kernel_size 3 needs score location-aware, got "additive"'),
    ({"score": "location-aware", "kernel_size": 4}, "kernel_size 4 must be odd"),
    ({"score": "location", "max_target": 9}, "max_target 9 needs score static or static-factorised"),
    ({"window": 3}, 'window 3 needs a local scope: "global" sees all positions'),
    ({"reinforce": ReinforceConfig(entropy_weight=0.1)}, 'entropy_weight 0.1 needs normaliser "reinforce"'),
    ({"temperature": 0.0}, "temperature 0.0 must be positive and finite"),
    ({"input_feeding": True}, 'input_feeding true needs placement "after": the cell reads the context'),
    (AFTER | {"context_to": "all"}, 'context_to "all" needs placement "before"'),
    (AFTER | {"context_to_readout": False}, 'context_to_readout false needs placement "before"'),
    ({"normaliser": "reinforce", "scope": "local-p"}, '"reinforce" cannot choose by scope "local-p"'),
    ({"normaliser": "monotonic", "scope": "local-p"}, '"monotonic" cannot choose by scope "local-p"'),
    ({"normaliser": "monotonic", "attention_warmup": 9}, "attention_warmup 9 needs a normaliser that makes"),
    ({"attention_warmup": -1}, "attention_warmup must be at least 0, got -1"),
]
MODEL: list[tuple[dict[str, Any], str]] = [
    ({"hidden_size": -2}, "hidden_size must be at least 1, got -2"),
    ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ({"direction": "both-bottom"}, 'direction "both-bottom" needs more than one encoder layer'),
    (
        {"direction": "both-bottom", "num_layers": 2, "self_attention": "both"},
        'self_attention "both" needs direction "both", "forward" or "backward"',
    ),
    ({"encoder_layers": 2, "decoder_start": "last"}, "encoder_layers 2 must be that of the decoder"),
    ({"attention": None, "encoder_size": 256}, 'encoder_size 256 must be .* decoder_start "last": "bridge"'),
    ({"attention": AttentionConfig(query_layer=2)}, "query_layer 2 must be at most num_layers, 1"),
    (
        {"attention": BOTTOM, "num_layers": 2, "self_attention": "decoder"},
        'query_layer 1 needs self_attention "none"',
    ),
    ({"attention": AttentionConfig(context_to="all")}, 'context_to "all" needs more than one layer'),
    (
        {"attention": AttentionConfig(placement="after", input_feeding=True), "readout": "none"},
        "input_feeding true needs a readout",
    ),
    ({"readout": "none", "tie": "output"}, 'tie "output" with readout "none" needs embedding_size 1024'),
    ({"attention": AttentionConfig(num_heads=3)}, r"attention_size \(512\) must be a multiple of num_heads"),
    (
        {"attention": AttentionConfig(score="general", num_heads=4), "hidden_size": 510},
        r"hidden_size \(510\) must be a multiple of num_heads \(4\)",
    ),
    (
        {"attention": AttentionConfig(score="dot"), "encoder_size": 256},
        '"dot" needs decoder and encoder states of one size, got 512 and 256: use "general"',
    ),
    ({"hidden_size": 9}, 'hidden_size 9 must be even with direction "both"'),
    ({"encoder_size": 9}, 'encoder_size 9 must be even with direction "both"'),
    ({"hidden_size": 9, "direction": "forward", "readout": "maxout"}, 'must be even with readout "maxout"'),
    ({"feed_summary": True}, "feed_summary true needs attention None"),
    ({"attention": None, "decoder_start": "zeros"}, 'decoder_start "zeros" needs an attention'),
    ({"attention": None, "self_attention": "both"}, 'self_attention "both" needs an attention'),
    (
        {"dropout": 0.0, "regularisation": RegularisationConfig(variational=True)},
        "variational true has no effect with dropout 0",
    ),
    (
        {"cell": "min-gru", "regularisation": RegularisationConfig(recurrent_dropout=0.1)},
        'recurrent_dropout 0.1 has no effect with cell "min-gru"',
    ),
    ({"cell": "gru", "pre_norm": True}, 'pre_norm true needs cell "min-gru" or "min-lstm"'),
    (
        {"cell": "min-gru", "pre_norm": True, "num_layers": 2, "direction": "both-bottom"},
        "pre_norm true needs layers of one width",
    ),
    (
        {"cell": "min-gru", "pre_norm": True, "num_layers": 2, "attention": BOTTOM},
        "query_layer 1 needs pre_norm false",
    ),
]
OTHERS: list[tuple[Any, dict[str, Any], str]] = [
    (ReinforceConfig, {"reward_weight": -1.0}, "reward_weight -1.0 must be at least 0 and finite"),
    (RegularisationConfig, {"recurrent_dropout": 1.0}, "recurrent_dropout must be .* below 1, got 1.0"),
    (RecurrentLanguageModelConfig, {"tie": "all"}, 'tie "all" shares a source embedding, .* use "output"'),
    (RecurrentLanguageModelConfig, {"hidden_size": 8}, 'tie "output" with readout "none" needs .* 8'),
]


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [(AttentionConfig, *case) for case in ATTENTION] + [(Seq2SeqConfig, *case) for case in MODEL] + OTHERS,
)
def test_an_invalid_config_raises_one_line(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        kind(**settings)
    assert "\n" not in str(refused.value)


def test_states_of_the_wrong_size_raise() -> None:
    """If attention is created alone, or for the encoder of another package."""
    with pytest.raises(ValueError, match=r'"dot" needs .* got 8 and 10: use "general"'):
        Attention(AttentionConfig(score="dot"), 8, 10)
    with pytest.raises(ValueError, match=r"attention_size \(8\) must be a multiple of num_heads \(3\)"):
        Attention(AttentionConfig(score="scaled-dot", num_heads=3), 8, 9)


@pytest.mark.parametrize("kind", [Seq2SeqConfig, TransformerConfig])
def test_an_unknown_setting_lists_those_that_exist(kind: Any) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__} has no setting 'hidden'; it has .*dropout"):
        kind(hidden=3)
