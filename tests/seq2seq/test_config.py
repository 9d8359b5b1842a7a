"""Configurations of recurrent models: invalid ones raise a ValueError that names the rule."""

import dataclasses
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

ATTENTION: list[tuple[dict[str, Any], str]] = [
    ({"score": "addtive"}, "score must be one of additive, concat, dot, .* got 'addtive'"),
    ({"score": ["dot"]}, r"score must be one of .* got \['dot'\]"),
    ({"scope": "local"}, "scope must be one of global, local-m, local-p, got 'local'"),
    ({"normaliser": "hard"}, "normaliser must be one of softmax, sparsemax, .* got 'hard'"),
    ({"placement": "between"}, "placement must be one of before, after, got 'between'"),
    ({"context_to": "top"}, "context_to must be one of first, all, got 'top'"),
    ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
    ({"query_layer": 0}, "query_layer must be at least 1, got 0"),
    ({"scope": "local-m", "window": 0}, "window must be at least 1, got 0"),
    ({"score": "static", "max_target": -1}, "max_target must be at least 1, got -1"),
    ({"num_heads": 2, "score": "dot"}, 'with score "dot": it needs "additive" or "concat" or "general" or'),
    ({"num_heads": 2, "score": "coverage"}, 'num_heads above 1 has no effect with score "coverage"'),
    ({"kernel_size": 3}, 'kernel_size has no effect with score "additive"'),
    ({"score": "location-aware", "kernel_size": 4}, "kernel_size must be odd, got 4"),
    ({"score": "general", "attention_size": 4}, 'attention_size has no effect with score "general"'),
    ({"max_source": 50}, 'max_source has no effect with score "additive"'),
    ({"score": "location", "max_target": 9}, 'max_target has no effect with score "location"'),
    ({"window": 3}, 'window has no effect with scope "global": it sees all positions'),
    (
        {"reinforce": ReinforceConfig(entropy_weight=0.1)},
        'entropy_weight have no effect with normaliser "soft',
    ),
    ({"temperature": 0.0}, "temperature must be positive and finite, got 0.0"),
    ({"temperature": float("nan")}, "temperature must be positive and finite, got nan"),
    ({"input_feeding": True}, 'input_feeding needs placement "after": the cell reads the context'),
    ({"placement": "after", "context_to": "all"}, 'context_to "all" and .* need placement "before"'),
    ({"placement": "after", "context_to_readout": False}, 'context_to_readout false need placement "before"'),
    ({"normaliser": "reinforce", "scope": "local-p"}, '"reinforce" cannot choose by scope "local-p"'),
    ({"normaliser": "monotonic", "scope": "local-p"}, '"monotonic" cannot choose by scope "local-p"'),
]
MODEL: list[tuple[dict[str, Any], str]] = [
    ({"cell": "rnn"}, "cell must be one of lstm, gru, layer-norm-lstm, min-gru, min-lstm, got 'rnn'"),
    ({"direction": "left"}, "direction must be one of both, forward, backward, both-bottom, got 'left'"),
    ({"decoder_start": "mean"}, "decoder_start must be one of bridge, last, zeros, got 'mean'"),
    ({"readout": "linear"}, "readout must be one of tanh, maxout, none, got 'linear'"),
    ({"tie": "both"}, "tie must be one of none, output, all, got 'both'"),
    ({"hidden_size": -2}, "hidden_size must be at least 1, got -2"),
    ({"encoder_layers": 0}, "encoder_layers must be at least 1, got 0"),
    ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ({"dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
    ({"direction": "both-bottom"}, 'direction "both-bottom" needs more than one layer in the encoder'),
    (
        {"direction": "both-bottom", "num_layers": 2, "self_attention": "both"},
        'self_attention "both" needs direction "both", "forward" or "backward"',
    ),
    (
        {"encoder_layers": 2, "decoder_start": "last"},
        r'encoder_layers \(2\) must be num_layers \(1\) with decoder_start "last": .* "bridge" takes',
    ),
    (
        {"attention": None, "encoder_size": 256},
        r'encoder_size \(256\) must be hidden_size \(512\) with decoder_start "last": .* "bridge" takes',
    ),
    ({"attention": AttentionConfig(query_layer=2)}, r"query_layer must be at most num_layers \(1\), got 2"),
    (
        {"attention": AttentionConfig(query_layer=1), "num_layers": 2, "self_attention": "decoder"},
        r'query_layer 1 is below the top layer \(2\), whose outputs self_attention "decoder" combines',
    ),
    ({"attention": AttentionConfig(context_to="all")}, 'context_to "all" has no effect with num_layers 1'),
    (
        {"attention": AttentionConfig(placement="after", input_feeding=True), "readout": "none"},
        "input_feeding needs a readout, whose output is fed",
    ),
    ({"readout": "none", "tie": "output"}, 'tie "output" with readout "none" needs embeddings as wide as'),
    (
        {"attention": AttentionConfig(num_heads=3)},
        r"attention_size \(512\) must be a multiple of num_heads \(3",
    ),
    (
        {"attention": AttentionConfig(score="general", num_heads=4), "hidden_size": 510},
        r"hidden_size \(510\) must be a multiple of num_heads \(4\)",
    ),
    (
        {"attention": AttentionConfig(score="dot"), "encoder_size": 256},
        '"dot" needs decoder and encoder states of one size, got 512 and 256: use "general"',
    ),
    ({"hidden_size": 9}, r'hidden_size \(9\) must be even with direction "both"'),
    ({"encoder_size": 9}, r'encoder_size \(9\) must be even with direction "both"'),
    (
        {"hidden_size": 9, "direction": "forward", "readout": "maxout"},
        r"hidden_size \(9\) must be even with re",
    ),
    ({"feed_summary": True}, "feed_summary needs attention None: a context is fed"),
    (
        {"attention": None, "decoder_start": "zeros"},
        'decoder_start "zeros" needs an attention: .* or "bridge"',
    ),
    ({"attention": None, "self_attention": "both"}, 'self_attention "both" needs an attention: .* or "none"'),
    (
        {"dropout": 0.0, "regularisation": RegularisationConfig(variational=True)},
        "variational has no effect with dropout 0",
    ),
    (
        {"cell": "min-gru", "regularisation": RegularisationConfig(recurrent_dropout=0.1)},
        'recurrent_dropout has no effect with cell "min-gru"',
    ),
    ({"cell": "gru", "pre_norm": True}, 'pre_norm needs cell "min-gru" or "min-lstm", got "gru"'),
    (
        {"cell": "min-gru", "pre_norm": True, "num_layers": 2, "direction": "both-bottom"},
        "pre_norm needs layers of one width",
    ),
    (
        {"cell": "min-gru", "pre_norm": True, "num_layers": 2, "attention": AttentionConfig(query_layer=1)},
        "pre_norm needs the top layer to attend",
    ),
]
OTHERS: list[tuple[Any, dict[str, Any], str]] = [
    (ReinforceConfig, {"baseline": "mean"}, "baseline must be one of learned, moving-average, got 'mean'"),
    (ReinforceConfig, {"reward_weight": -1.0}, "reward_weight must be at least 0 and finite, got -1.0"),
    (
        ReinforceConfig,
        {"entropy_weight": float("nan")},
        "entropy_weight must be at least 0 and finite, got nan",
    ),
    (RegularisationConfig, {"recurrent_dropout": 1.0}, "recurrent_dropout must be .* below 1, got 1.0"),
    (RegularisationConfig, {"word_dropout": -0.1}, "word_dropout must be at least 0 .* got -0.1"),
    (RecurrentLanguageModelConfig, {"tie": "all"}, 'tie "all" shares a source embedding, .* use "output"'),
    (RecurrentLanguageModelConfig, {"hidden_size": 8}, "needs embeddings as wide as .*, got 256 and 8"),
    (RecurrentLanguageModelConfig, {"num_layers": 0}, "num_layers must be at least 1"),
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


def test_configs_are_frozen_and_know_their_fields() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        AttentionConfig().placement = "after"  # type: ignore[misc]
    with pytest.raises(TypeError, match="hidden_sise"):
        Seq2SeqConfig(hidden_sise=64)  # type: ignore[call-arg]
