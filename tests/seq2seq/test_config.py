"""Configurations of recurrent models: invalid ones raise a ValueError that names the rule."""

import dataclasses
import re
from typing import Any

import pytest

from seq2seq.attention import Attention
from seq2seq.config import AttentionConfig, RegularisationConfig, Seq2SeqConfig
from seq2seq.normalisers import NORMALISERS, ReinforceConfig
from seq2seq.scopes import SCOPES
from seq2seq.scores import SCORES
from tests.kits.attention import COMBINATIONS, configure, float64

_float64 = pytest.fixture(autouse=True)(float64)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score": "addtive"}, "score must be one of additive, concat, dot, .* got 'addtive'"),
        ({"scope": "local"}, "scope must be one of global, local-m, local-p, got 'local'"),
        (
            {"normaliser": "hard"},
            "normaliser must be one of softmax, sparsemax, .* got 'hard'",
        ),
        ({"placement": "between"}, "placement must be one of before, after, got 'between'"),
        ({"score": ["dot"]}, r"score must be one of .* got \['dot'\]"),
        ({"input_feeding": True}, 'input_feeding needs placement "after": with "before" the cell reads'),
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        (
            {"num_heads": 2, "score": "dot"},
            'num_heads above 1 needs score "additive" or "concat" or "general" or "scaled-dot": "dot"',
        ),
        ({"num_heads": 2, "score": "coverage"}, '"coverage" has one head'),
        ({"kernel_size": 3}, 'kernel_size has no effect with score "additive": it has no filters'),
        ({"score": "location-aware", "kernel_size": 4}, "kernel_size must be odd, got 4"),
        (
            {"reinforce": ReinforceConfig(entropy_weight=0.1)},
            'baseline, reward_weight and entropy_weight have no effect with normaliser "softmax"',
        ),
        ({"temperature": 0.0}, "temperature must be positive and finite, got 0.0"),
        ({"temperature": float("nan")}, "temperature must be positive and finite, got nan"),
        ({"query_layer": 0}, "query_layer must be at least 1, got 0"),
        ({"context_to": "top"}, "context_to must be one of first, all, got 'top'"),
        (
            {"placement": "after", "context_to": "all"},
            'context_to "all" and context_to_readout false need placement "before"',
        ),
        ({"placement": "after", "context_to_readout": False}, 'context_to_readout false need placement "bef'),
        ({"attention_size": 0}, "attention_size must be at least 1, got 0"),
        (
            {"score": "dot", "attention_size": 4},
            'attention_size has no effect with score "dot": it has no',
        ),
        ({"score": "general", "attention_size": 4}, 'attention_size has no effect with score "general"'),
        ({"score": "location", "attention_size": 4}, 'attention_size has no effect with score "location"'),
        ({"score": "static", "attention_size": 4}, 'attention_size has no effect with score "static"'),
        ({"window": 3}, 'window has no effect with scope "global": it sees all positions'),
        ({"scope": "local-m", "window": 0}, "window must be at least 1, got 0"),
        (
            {"max_source": 50},
            'max_source has no effect with score "additive": it takes sources',
        ),
        ({"score": "dynamic-factorised", "max_source": 50}, "max_source has no effect"),
        ({"score": "location", "max_source": 0}, "max_source must be at least 1, got 0"),
        (
            {"score": "location", "max_target": 9},
            'max_target has no effect with score "location"',
        ),
        ({"score": "static", "max_target": -1}, "max_target must be at least 1, got -1"),
        (
            {"normaliser": "straight-through", "scope": "local-p"},
            'normaliser "straight-through" cannot choose by scope "local-p", whose weights do not sum to 1',
        ),
        ({"normaliser": "reinforce", "scope": "local-p"}, '"reinforce" cannot choose by scope "local-p"'),
        ({"normaliser": "monotonic", "scope": "local-p"}, '"monotonic" cannot choose by scope "local-p"'),
    ],
)
def test_an_invalid_attention_config_raises(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttentionConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"baseline": "mean"}, "baseline must be one of learned, moving-average, got 'mean'"),
        ({"reward_weight": -1.0}, "reward_weight must be at least 0 and finite, got -1.0"),
        ({"entropy_weight": float("nan")}, "entropy_weight must be at least 0 and finite, got nan"),
    ],
)
def test_invalid_settings_of_reinforce_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReinforceConfig(**settings)


HEADS = AttentionConfig(score="scaled-dot", num_heads=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": "rnn"}, "cell must be one of lstm, gru, layer-norm-lstm, min-gru, min-lstm, got 'rnn'"),
        ({"direction": "left"}, "direction must be one of both, forward, backward, both-bottom, got 'left'"),
        ({"direction": "both-bottom"}, 'direction "both-bottom" needs more than one layer in the encoder'),
        (
            {"direction": "both-bottom", "num_layers": 2, "self_attention": "both"},
            'self_attention "both" needs layers of one direction or two, not direction "both-bottom"',
        ),
        ({"encoder_layers": 0}, "encoder_layers must be at least 1, got 0"),
        ({"encoder_layers": 1001}, "encoder_layers must be at most 1,000, got 1,001"),
        (
            {"encoder_layers": 2, "decoder_start": "last"},
            r'encoder_layers \(2\) must be num_layers \(1\) with decoder_start "last": .* "bridge" takes',
        ),
        (
            {"attention": AttentionConfig(query_layer=2)},
            r"query_layer must be at most num_layers \(1\), got 2",
        ),
        (
            {"attention": AttentionConfig(query_layer=1), "num_layers": 2, "self_attention": "decoder"},
            r'query_layer 1 is below the top layer \(2\), whose outputs self_attention "decoder" combines',
        ),
        (
            {"attention": AttentionConfig(context_to="all")},
            'context_to "all" has no effect with num_layers 1',
        ),
        (
            {"attention": AttentionConfig(placement="after", input_feeding=True), "readout": "none"},
            "input_feeding needs a readout, whose output is fed",
        ),
        (
            {"readout": "none", "tie": "output"},
            'tie "output" with readout "none" needs embeddings as wide as the input of the output layer',
        ),
        (
            {"attention": AttentionConfig(num_heads=3)},
            r"attention_size \(512\) must be a multiple of num_heads \(3\)",
        ),
        (
            {"attention": AttentionConfig(score="general", num_heads=4), "hidden_size": 510},
            r"hidden_size \(510\) must be a multiple of num_heads \(4\)",
        ),
        ({"self_attention": "all"}, "self_attention must be one of none, encoder, decoder, both, got 'all'"),
        ({"readout": "linear"}, "readout must be one of tanh, maxout, none, got 'linear'"),
        ({"tie": "both"}, "tie must be one of none, output, all, got 'both'"),
        ({"embedding_size": 0}, "embedding_size must be at least 1, got 0"),
        ({"hidden_size": -2}, "hidden_size must be at least 1, got -2"),
        ({"encoder_size": 0}, "encoder_size must be at least 1, got 0"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_layers": 1001}, "num_layers must be at most 1,000, got 1,001"),
        (
            {"dropout": 0.0, "regularisation": RegularisationConfig(variational=True)},
            "variational has no effect with dropout 0",
        ),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
        ({"hidden_size": 9}, r'hidden_size \(9\) must be even with direction "both"'),
        ({"encoder_size": 9}, r'encoder_size \(9\) must be even with direction "both"'),
        (
            {"hidden_size": 9, "direction": "forward", "readout": "maxout"},
            r'hidden_size \(9\) must be even with readout "maxout"',
        ),
        ({"feed_summary": True}, "feed_summary needs attention None: with attention a context is fed"),
        (
            {"attention": None, "encoder_size": 256},
            r'encoder_size \(256\) must be hidden_size \(512\) with decoder_start "last": .* "bridge" takes',
        ),
        (
            {"encoder_size": 256, "decoder_start": "last"},
            r'encoder_size \(256\) must be hidden_size \(512\) with decoder_start "last"',
        ),
        ({"decoder_start": "mean"}, "decoder_start must be one of bridge, last, zeros, got 'mean'"),
        ({"decoder_start": ""}, "decoder_start must be one of bridge, last, zeros, got ''"),
        (
            {"attention": None, "decoder_start": "zeros"},
            'decoder_start "zeros" needs an attention: .* use "last" or "bridge"',
        ),
        (
            {"attention": None, "self_attention": "both"},
            'self_attention "both" needs an attention: .* use "decoder" or "none"',
        ),
        (
            {"attention": AttentionConfig(score="dot"), "encoder_size": 256},
            '"dot" needs decoder and encoder states of one size, got 512 and 256: use "general"',
        ),
        ({"attention": HEADS}, r"attention_size \(512\) must be a multiple of num_heads \(3\)"),
    ],
)
def test_an_invalid_model_config_raises(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Seq2SeqConfig(**settings)


@pytest.mark.parametrize(
    ("config", "sizes", "message"),
    [
        (AttentionConfig(score="dot"), (8, 10), '"dot" needs .* got 8 and 10: use "general"'),
        (HEADS, (8, 9), r"attention_size \(8\) must be a multiple of num_heads \(3\)"),
    ],
)
def test_states_of_the_wrong_size_raise(
    config: AttentionConfig, sizes: tuple[int, int], message: str
) -> None:
    """If attention is created alone, or for the encoder of another package."""
    with pytest.raises(ValueError, match=message):
        Attention(config, *sizes)


def test_every_score_scope_and_normaliser_is_tested_and_cites_its_source() -> None:
    configs = [configure(*combination) for combination in COMBINATIONS]
    assert {config.score for config in configs} == set(SCORES)
    assert {config.scope for config in configs} == set(SCOPES)
    assert {config.normaliser for config in configs} == set(NORMALISERS)
    for kind in (*SCORES.values(), *SCOPES.values(), *NORMALISERS.values()):
        assert re.search(r"et al\. \d{4}", kind.__doc__ or ""), kind


def test_configs_are_frozen_and_small() -> None:
    for config in (AttentionConfig(), Seq2SeqConfig()):
        assert len(dataclasses.fields(config)) <= 16
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.placement = "after"  # type: ignore[misc, union-attr]
    with pytest.raises(TypeError, match="hidden_sise"):
        Seq2SeqConfig(hidden_sise=64)  # type: ignore[call-arg]
