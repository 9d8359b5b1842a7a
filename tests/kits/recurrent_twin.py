"""A recurrent model composed of ``seq2seq.formulas``, one sentence at a time, without padding.

It takes the weights of a ``Seq2Seq`` and none of its code. Gradients flow through it to these weights.

Shapes: S source and T target tokens, D directions, E encoder state, V vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from seq2seq import Attention, AttentionConfig, Seq2Seq, formulas
from seq2seq.cells import LayerNormLSTMCell, MinCell
from seq2seq.stack import RecurrentStack

READS_BACKWARD = {"both": [False, True], "forward": [False], "backward": [True], "both-bottom": [False]}
"""By direction: for each direction of a layer above the bottom one, whether it reads from the right."""


class TwinEncoding(NamedTuple):
    """Output of the encoder for one sentence: (S, E), the last states layer by layer, and (D, S, S)."""

    states: Tensor
    summary: list[Tensor]
    self_attention: Tensor | None


class TwinDecoding(NamedTuple):
    """Logits (T, V) and weights by name, as ``Seq2Seq.attention`` returns them, of one sentence."""

    logits: Tensor
    attention: dict[str, Tensor | None]


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
                partial(formulas.gru_cell, **dict(zip(names, each, strict=True)))
                for each in module.all_weights
            ]
    return cells


def zeros(size: int, parts: int) -> formulas.State:
    return (torch.zeros(size, dtype=torch.float64),) * parts


def encode(model: Seq2Seq, tokens: Tensor) -> TwinEncoding:
    """Encode one sentence (S,)."""
    encoder, config = model.encoder, model.config
    cells, gains, parts = iter(cells_of(encoder.rnn)), encoder.rnn.gain, 2 if config.has_cell_state else 1
    xs, summary, directions = list(encoder.embedding.weight[tokens]), [], READS_BACKWARD[config.direction]
    size = config.states_size // len(directions)
    for layer in range(config.encoder_layers or config.num_layers):
        at_bottom = config.direction == "both-bottom" and layer == 0
        inputs = [formulas.rms_norm(x, gains[layer - 1]) if gains is not None and layer else x for x in xs]
        runs = [
            formulas.read(inputs, next(cells), zeros(size, parts), backward)
            for backward in ([False, True] if at_bottom else directions)
        ]
        outputs = [torch.cat(halves) for halves in zip(*(run[0] for run in runs), strict=True)]
        first = 2 if gains is None else 1
        xs = [formulas.residual(layer, x, out, first) for x, out in zip(xs, outputs, strict=True)]
        finals = [state for _, state in runs][-1 if at_bottom else 0 :]
        summary += [torch.cat(of_part) for of_part in zip(*finals, strict=True)]
    if gains is not None:
        xs = [formulas.rms_norm(x, gains[-1]) for x in xs]
    if encoder.self_attention is None:
        return TwinEncoding(torch.stack(xs), summary, None)
    combined, weights = [], []
    for part, (own, backward) in enumerate(zip(encoder.self_attention.parts, directions, strict=True)):
        halves = [x.chunk(len(directions))[part] for x in xs]
        outputs, rows = self_attend_all(halves[::-1] if backward else halves, own.join.weight)
        combined.append(outputs.flip(0) if backward else outputs)
        weights.append(rows.flip(0, 1) if backward else rows)
    return TwinEncoding(torch.cat(combined, dim=1), summary, torch.stack(weights))


def self_attend_all(states: list[Tensor], w: Tensor) -> tuple[Tensor, Tensor]:
    """Let each state attend to those before it; returns (S, E) and the weights (S, S)."""
    results = [formulas.self_attention(state, states[:t], w) for t, state in enumerate(states)]
    rows = [torch.cat((a, a.new_zeros(len(states) - len(a)))) for _, a in results]
    return torch.stack([combined for combined, _ in results]), torch.stack(rows)


def first_states(model: Seq2Seq, encoded: TwinEncoding) -> list[formulas.State]:
    """Return the first state of each layer of the decoder."""
    config, decoder, start = model.config, model.decoder, torch.cat(encoded.summary)
    kind = config.decoder_start or ("bridge" if config.attention is not None else "last")
    parts = 2 if config.has_cell_state else 1
    if kind == "zeros":
        return [zeros(config.hidden_size, parts)] * config.num_layers
    if kind == "bridge":
        start = formulas.bridge(start, decoder.bridge.weight, decoder.bridge.bias)
    return [tuple(layer.split(config.hidden_size)) for layer in start.chunk(config.num_layers)]


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


class TwinAttention:
    """The attention to one sentence h (S, E), step by step."""

    def __init__(self, model: Seq2Seq, h: Tensor) -> None:
        self.module, self.config, self.h = model.decoder.attention, model.config.attention, h
        self.total = torch.zeros(self.config.num_heads, len(h), dtype=torch.float64)
        self.last, self.context = torch.zeros_like(self.total), torch.empty(0)
        if self.config.normaliser == "monotonic":
            self.last[:, 0] = 1
        self.rows: list[Tensor] = []

    def __call__(self, s: Tensor) -> Tensor:
        """Return the context of one step, which is remembered, as the weights are."""
        state = len(self.rows), self.last, self.total
        self.last, self.context = attend(self.module, self.config, s, self.h, *state)
        self.total = self.total + self.last
        self.rows.append(self.last)
        return self.context

    def weights(self) -> Tensor:
        """Return the weights of all steps, (heads, T, S)."""
        return torch.stack(self.rows, dim=1)


def decode(model: Seq2Seq, source: Tensor, target: Tensor) -> TwinDecoding:
    """Encode ``source`` (S,) and predict the next token after each token of ``target`` (T,)."""
    decoder, config, settings = model.decoder, model.config, model.config.attention
    cells, encoded = cells_of(decoder.rnn), encode(model, source)
    attend = None if settings is None else TwinAttention(model, encoded.states)
    layers = first_states(model, encoded)
    query_layer = ((settings and settings.query_layer) or config.num_layers) - 1
    summary, fed = layers[-1][0], torch.zeros(config.output_size, dtype=torch.float64)
    to_all, before = settings is not None and settings.context_to == "all", decoder.attends_before
    stack_step = formulas.stack_step
    if decoder.rnn.gain is not None:
        stack_step = partial(formulas.pre_norm_stack_step, gains=decoder.rnn.gain)
    reads_context = settings is None or settings.context_to_readout
    is_standard = query_layer == config.num_layers - 1 and config.readout != "none" and reads_context
    logits, tops, past, own_rows = [], [], [], []

    def cell(x: Tensor, state: Any) -> Any:
        """Run all layers; the state is that which attends, and those of the layers."""
        outputs, after = stack_step(x, state[1], cells, context=attend.context if to_all else None)
        query = outputs[query_layer]
        tops.append(outputs[-1])
        if decoder.self_attention is not None:
            query, weights = formulas.self_attention(outputs[-1], past, decoder.self_attention.join.weight)
            past.append(outputs[-1])
            tops.append(query)
            own_rows.append(torch.cat((weights, weights.new_zeros(len(target) - len(weights)))))
        return query, after

    state: Any = (layers[query_layer][0], layers)
    for token in target:
        y = decoder.embedding.weight[token]
        y = torch.cat((y, summary)) if config.feed_summary else y
        if attend is None:
            x, state = formulas.lstm_step(y, state, cell)
        elif (
            before
            and to_all
            and query_layer == 0
            and decoder.self_attention is None
            and decoder.rnn.gain is None
        ):
            top, c, after = formulas.gnmt_step(y, state[1], cells, attend)
            x, state = torch.cat((top, c, y)), (None, after)
            tops.append(top)
        elif before:
            x, state = formulas.bahdanau_step(y, state, cell, attend)
        else:
            x, state = formulas.luong_step(y, fed if settings.input_feeding else fed[:0], state, cell, attend)
        if not is_standard:  # the layer that attends is not the top one, or the readout reads less
            context = () if settings is None or not settings.context_to_readout else (attend.context,)
            inputs = () if config.readout == "none" or decoder.attends_after else (y,)
            x = torch.cat((tops[-1], *context, *inputs))
        if config.readout != "none":
            readout = formulas.maxout_readout if config.readout == "maxout" else formulas.tanh_readout
            x = readout(x, decoder.readout.weight, decoder.readout.bias)
        fed = x
        logits.append(model.output.weight @ x + model.output.bias)
    return TwinDecoding(
        torch.stack(logits),
        {
            "cross": None if attend is None else attend.weights(),
            "encoder": encoded.self_attention,
            "decoder": torch.stack(own_rows).unsqueeze(0) if own_rows else None,
        },
    )
