"""Small recurrent models with every mechanism, and a padded batch for them."""

from typing import Any

import torch
from torch import Tensor

from seq2seq import AttentionConfig, Seq2Seq, Seq2SeqConfig

V = 13  # vocabulary size, as of the contract
LENGTHS = torch.tensor([6, 2, 4, 1])
MASK = torch.arange(6) < LENGTHS.unsqueeze(1)
SRC = torch.randint(V, (4, 6), generator=torch.Generator().manual_seed(1))
TGT = torch.randint(V, (4, 5), generator=torch.Generator().manual_seed(2))


def before(score: str = "additive", **changes: Any) -> AttentionConfig:
    return AttentionConfig(score=score, placement="before", **changes)


def after(score: str = "general", **changes: Any) -> AttentionConfig:
    return AttentionConfig(score=score, placement="after", **changes)


def feeding(score: str = "general", **changes: Any) -> AttentionConfig:
    return after(score, input_feeding=True, **changes)


MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"attention": None},
    "lstm-summary": {"attention": None, "feed_summary": True, "direction": "forward", "readout": "maxout"},
    "rnn": {"attention": None, "cell": "rnn", "num_layers": 2},
    "gru-summary": {"attention": None, "feed_summary": True, "cell": "gru", "tie": "all", "num_layers": 2},
    "lstm-bridge": {"attention": None, "decoder_start": "bridge", "encoder_size": 10, "num_layers": 2},
    "deep-lstm": {"attention": None, "num_layers": 3, "direction": "backward"},
    "norm-lstm": {"attention": None, "cell": "layer-norm-lstm", "num_layers": 2},
    "own-decoder": {"attention": None, "self_attention": "decoder"},
    "bahdanau": {"attention": before()},
    "bahdanau-gru": {"attention": before(), "cell": "gru", "num_layers": 2, "tie": "all"},
    "bahdanau-maxout": {"attention": before(), "cell": "gru", "readout": "maxout", "tie": "output"},
    "bahdanau-zeros": {"attention": before(), "decoder_start": "zeros", "num_layers": 2},
    "deep-before": {"attention": before(), "num_layers": 4},
    "static-before": {"attention": before("static", max_source=4, max_target=3)},
    "coverage": {"attention": before("coverage"), "cell": "gru"},
    "location-aware": {"attention": before("location-aware", kernel_size=3)},
    "heads-before": {"attention": before("scaled-dot", num_heads=2, attention_size=6), "cell": "gru"},
    "values-before": {"attention": before(map_values=True, attention_size=6), "tie": "output"},
    "hard-monotonic": {"attention": before(normaliser="monotonic")},
    "reinforce-before": {"attention": before(normaliser="reinforce"), "cell": "gru"},
    "norm-lstm-before": {"attention": before(), "cell": "layer-norm-lstm", "num_layers": 3},
    "own-encoder": {"attention": before(), "self_attention": "encoder"},
    "own-both": {"attention": before(), "self_attention": "both", "num_layers": 3, "direction": "forward"},
    "min-gru-before": {"attention": before(), "cell": "min-gru", "num_layers": 2},
    "min-lstm-norm": {
        "attention": before(context_to="all"),
        "cell": "min-lstm",
        "num_layers": 2,
        "encoder_size": 6,
        "pre_norm": True,
        "self_attention": "both",
    },
    "middle-before": {"attention": before(query_layer=2), "cell": "gru", "num_layers": 4},
    "all-before": {
        "attention": before("coverage", context_to="all"),
        "num_layers": 3,
        "encoder_layers": 2,
        "direction": "both-bottom",
    },
    "gnmt": {
        "attention": before(query_layer=1, context_to="all", context_to_readout=False),
        "direction": "both-bottom",
        "decoder_start": "last",
        "readout": "none",
        "num_layers": 4,
    },
    "rnmt": {
        "attention": before(query_layer=1, context_to="all", num_heads=2),
        "cell": "layer-norm-lstm",
        "decoder_start": "zeros",
        "readout": "none",
        "encoder_layers": 3,
        "num_layers": 4,
    },
    "luong-general": {"attention": after(), "num_layers": 2},
    "rnn-feed": {"attention": feeding(), "cell": "rnn", "num_layers": 3},
    "luong-zeros": {"attention": after(), "decoder_start": "zeros", "encoder_size": 10},
    "static-factorised": {"attention": after("static-factorised", attention_size=3), "cell": "gru"},
    "coverage-local-p": {"attention": after("coverage", scope="local-p", window=2)},
    "hard-monotonic-after": {"attention": after("scaled-dot", num_heads=2, normaliser="monotonic")},
    "reinforce-after": {"attention": after(normaliser="reinforce")},
    "own-after": {"attention": after(), "self_attention": "decoder", "cell": "gru"},
    "bottom-after": {"attention": after(query_layer=1), "num_layers": 3, "cell": "gru"},
    "min-gru": {"attention": after(), "cell": "min-gru", "num_layers": 3},
    "min-gru-norm": {"attention": after(), "cell": "min-gru", "num_layers": 3, "pre_norm": True},
    "min-lstm": {"attention": after(query_layer=1), "cell": "min-lstm", "num_layers": 2},
    "luong-dot-feed": {"attention": feeding("dot"), "direction": "backward"},
    "luong-concat-feed": {"attention": feeding("concat"), "cell": "gru", "num_layers": 2, "tie": "output"},
    "luong-feed-last": {"attention": feeding(), "decoder_start": "last", "cell": "gru", "num_layers": 3},
    "coverage-feed": {"attention": feeding("coverage", attention_size=5, query_layer=1), "num_layers": 3},
    "local-p-feed": {"attention": feeding(scope="local-p", window=2)},
    "heads-feed": {"attention": feeding("scaled-dot", num_heads=4), "direction": "forward"},
    "values-feed": {"attention": feeding("general", map_values=True), "encoder_size": 10},
    "hard-monotonic-feed": {"attention": feeding("location-aware", normaliser="monotonic"), "cell": "gru"},
    "reinforce-feed": {"attention": feeding("scaled-dot", normaliser="reinforce", num_heads=2)},
    "norm-lstm-feed": {"attention": feeding(), "cell": "layer-norm-lstm", "direction": "forward"},
    "own-feed": {"attention": feeding(), "self_attention": "decoder"},
    "min-lstm-feed": {
        "attention": feeding(),
        "cell": "min-lstm",
        "direction": "both-bottom",
        "num_layers": 2,
    },
}
"""Settings of ``Seq2SeqConfig`` by name: every mechanism with LSTM and GRU, and its combinations."""
SMOOTH = [name for name in MODELS if not name.startswith(("hard", "reinforce"))]
"""Models without hard attention, whose selection has no gradient and may change by rounding."""


def make(name: str, **changes: Any) -> Seq2Seq:
    """Create a small float64 model with weights so large that every part of it has an effect."""
    settings = {"embedding_size": 6, "hidden_size": 8, **MODELS[name], **changes}
    torch.manual_seed(3)
    model = Seq2Seq(Seq2SeqConfig(**settings), V, V).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.8, 0.8)
    return model


def close(left: Tensor, right: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=atol)


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)
