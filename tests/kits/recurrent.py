"""Small recurrent models and a twin made of ``seq2seq.formulas``."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from seq2seq import Attention, AttentionConfig, Seq2Seq, Seq2SeqConfig, formulas
from seq2seq.cells import LayerNormLSTMCell, MinCell
from seq2seq.stack import RecurrentStack

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


def cells_of(stack: RecurrentStack) -> list[formulas.Cell]:
    """Return the formula of each layer and direction, with its weights."""
    cells: list[formulas.Cell] = []
    for module in stack.modules():
        if isinstance(module, LayerNormLSTMCell):
            cells.append(partial(formulas.layer_norm_lstm_cell, p=dict(module.named_parameters())))
        elif isinstance(module, MinCell):
            formula = formulas.min_gru_cell if stack.config.cell == "min-gru" else formulas.min_lstm_cell
            cells.append(partial(formula, w=module.weight_ih, b=module.bias_ih))
        elif isinstance(module, torch.nn.LSTM | torch.nn.RNN):
            formula = formulas.lstm_cell if isinstance(module, torch.nn.LSTM) else formulas.rnn_cell
            cells += [partial(formula, w=w, u=u, b=b + b_h) for w, u, b, b_h in module.all_weights]
        elif isinstance(module, torch.nn.GRU):
            names = ("w", "u", "b_x", "b_h")
            cells += [
                partial(formulas.gru_cell, **dict(zip(names, weights, strict=True)))
                for weights in module.all_weights
            ]
    return cells


def zeros(size: int, parts: int) -> formulas.State:
    return (torch.zeros(size, dtype=torch.float64),) * parts


class ScoreCall(NamedTuple):
    """One query and one head of a score, with all that a formula may read."""

    scorer: Any
    s: Tensor
    h: Tensor
    t: int
    last: Tensor
    total: Tensor
    part: slice
    """The rows of the matrices that belong to the head."""

    def rows(self, *names: str) -> list[Tensor]:
        """Return those of some matrices that belong to the head."""
        return [self.scorer.get_submodule(name).weight[self.part] for name in names]

    def weights(self, *names: str) -> list[Tensor]:
        """Return whole matrices."""
        return [self.scorer.get_submodule(name).weight for name in names]

    @property
    def v(self) -> Tensor:
        """The vector of an additive score."""
        v: Tensor = self.scorer.energy.weight[0, self.part]
        return v


def location_aware(call: ScoreCall) -> Tensor:
    w_f, filters = call.weights("location", "filters")
    return formulas.location_aware_score(
        call.s, call.h, call.last, *call.weights("query", "key"), w_f, filters[:, 0], call.v
    )


def coverage(call: ScoreCall) -> Tensor:
    w_c, fertility = call.weights("coverage", "fertility")
    matrices = call.weights("query", "key")
    return formulas.coverage_score(call.s, call.h, call.total, *matrices, w_c[:, 0], fertility[0], call.v)


SCORES: dict[str, Callable[[ScoreCall], Tensor]] = {
    "additive": lambda call: formulas.additive_score(call.s, call.h, *call.rows("query", "key"), call.v),
    "dot": lambda call: formulas.dot_score(call.s, call.h),
    "general": lambda call: formulas.general_score(call.s[call.part], call.h, *call.rows("key")),
    "scaled-dot": lambda call: formulas.scaled_dot_score(call.s, call.h, *call.rows("query", "key")),
    "location": lambda call: formulas.location_score(call.s, *call.weights("query")),
    "static": lambda call: formulas.static_score(call.t, call.scorer.table),
    "static-factorised": lambda call: formulas.static_factorised_score(
        call.t, call.scorer.table, call.scorer.expand.weight.T
    ),
    "dynamic-factorised": lambda call: formulas.dynamic_factorised_score(
        call.s, call.h, network(call.scorer.query), network(call.scorer.key)
    ),
    "location-aware": location_aware,
    "coverage": coverage,
}
SCORES["concat"] = SCORES["additive"]
"""From the call of a score to the scores (S or fewer,) of its head."""


def network(module: Any) -> Any:
    """Return f(x) = W_2 tanh(W_1 x + b_1) + b_2 of rows x."""
    one, _, two = module
    return lambda x: torch.tanh(x @ one.weight.T + one.bias) @ two.weight.T + two.bias


def attend(
    attention: Attention, config: AttentionConfig, s: Tensor, h: Tensor, t: int, last: Tensor, total: Tensor
) -> tuple[Tensor, Tensor]:
    """Let s (H,) at position t attend to one sentence h (S, E); returns weights (heads, S) and context (C,).

    The weights of the step before, and of all steps before together, are (heads, S).
    """
    scorer, scope, length, rows = attention.scorer, attention.scope, len(h), []
    wide = len(scorer.key.weight) if hasattr(scorer.key, "weight") else 0
    for head in range(config.num_heads):
        part = slice(wide * head // config.num_heads, wide * (head + 1) // config.num_heads)
        call = ScoreCall(scorer, s, h, t, last[head], total[head], part)
        e = SCORES[config.score](call)[:length] / config.temperature
        visible, factor = torch.ones(len(e), dtype=torch.bool), torch.ones(len(e))
        if config.scope == "local-m":
            visible = formulas.local_m(t, len(e), config.window)
        elif config.scope == "local-p":
            w, v = scope.hidden.weight, scope.energy.weight[0]
            visible, factor = formulas.local_p(s, len(e), config.window, w, v)
        e, missing = torch.where(visible, e, float("-inf")), length - len(e)  # words that the score ignores
        e, factor = pad(e, (0, missing), value=float("-inf")), pad(factor, (0, missing))
        if config.normaliser == "monotonic":  # in evaluation p is 0 or 1
            stops = torch.where(e + attention.normaliser.bias > 0, torch.inf, -torch.inf)
            rows.append(formulas.monotonic(stops, last[head], torch.zeros(1)) * factor)
        else:
            rows.append(NORMALISERS[config.normaliser](e) * factor)
    is_mapped = config.map_values or config.num_heads > 1 or config.score == "scaled-dot"
    values = formulas.mapped_values(h, scorer.value.weight) if is_mapped else h
    parts = zip(rows, values.chunk(config.num_heads, dim=1), strict=True)
    return torch.stack(rows), torch.cat([formulas.weighted_sum(a, value) for a, value in parts])


NORMALISERS = {
    "softmax": formulas.softmax,
    "sparsemax": formulas.sparsemax,
    "entmax-1.5": formulas.entmax15,
    "straight-through": formulas.straight_through,
    "reinforce": formulas.hard,
}
