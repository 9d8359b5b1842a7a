"""A recurrent model composed of ``seq2seq.formulas``, one sentence at a time, without padding.

It takes the weights of a ``Seq2Seq`` and none of its code. Gradients flow through it to these weights.

Shapes: S source and T target tokens, D directions, E encoder state, V vocabulary.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq import Seq2Seq, formulas
from seq2seq.cells import LayerNormLSTMCell, MinCell
from seq2seq.stack import RecurrentStack

READS_BACKWARD = {"both": [False, True], "forward": [False], "backward": [True]}


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
    for w, u, b_x, b_h in stack.layers:
        if stack.config.cell == "lstm":
            cells.append(partial(formulas.lstm_cell, w=w, u=u, b=b_x + b_h))
        else:
            cells.append(partial(formulas.gru_cell, w=w, u=u, b_x=b_x, b_h=b_h))
    return cells


def zeros(size: int, parts: int) -> formulas.State:
    return (torch.zeros(size, dtype=torch.float64),) * parts


def encode(model: Seq2Seq, tokens: Tensor) -> TwinEncoding:
    """Encode one sentence (S,)."""
    encoder, config = model.encoder, model.config
    cells, gains, parts = iter(cells_of(encoder.rnn)), encoder.rnn.gain, 2 if config.has_cell_state else 1
    xs, summary = list(encoder.embedding.weight[tokens]), []
    for layer in range(config.encoder_layers or config.num_layers):
        of_direction = READS_BACKWARD["forward" if layer else "both"]
        if config.direction != "both-bottom":
            of_direction = READS_BACKWARD[config.direction]
        size = config.states_size // (len(of_direction) if config.direction != "both-bottom" else 1)
        inputs = [formulas.rms_norm(x, gains[layer - 1]) if gains is not None and layer else x for x in xs]
        runs = [formulas.read(inputs, next(cells), zeros(size, parts), back) for back in of_direction]
        outputs = [torch.cat(halves) for halves in zip(*(run[0] for run in runs), strict=True)]
        first = 2 if gains is None else 1
        xs = [formulas.residual(layer, x, out, first) for x, out in zip(xs, outputs, strict=True)]
        finals = (
            [run[1] for run in runs][-1:] if config.direction == "both-bottom" else [run[1] for run in runs]
        )
        summary += [torch.cat(of_part) for of_part in zip(*finals, strict=True)]
    if gains is not None:
        xs = [formulas.rms_norm(x, gains[-1]) for x in xs]
    if encoder.own is None:
        return TwinEncoding(torch.stack(xs), summary, None)
    combined, weights = [], []
    for part, back in enumerate(
        READS_BACKWARD[config.direction] if config.direction != "both-bottom" else [False]
    ):
        halves = [x.chunk(len(encoder.own.parts))[part] for x in xs]
        own = self_attend_all(halves[::-1] if back else halves, encoder.own.parts[part].join.weight)
        combined.append(own[0].flip(0) if back else own[0])
        weights.append(own[1].flip(0, 1) if back else own[1])
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


def score(scorer: Any, name: str, s: Tensor, h: Tensor, t: int, past: list[Tensor], part: slice) -> Tensor:
    """Return the scores (S or fewer,) of the head with the rows ``part`` of the matrices."""
    weights = {key: module.weight for key, module in scorer.named_children() if hasattr(module, "weight")}
    if name in ("additive", "concat", "coverage", "location-aware"):
        w_s, w_h = weights["query"][part], weights["key"][part]
        v = weights["energy"][0, part]
    match name:
        case "additive" | "concat":
            return formulas.additive_score(s, h, w_s, w_h, v)
        case "dot":
            return formulas.dot_score(s, h)
        case "general":
            return formulas.general_score(s[part], h, weights["key"][part])
        case "scaled-dot":
            return formulas.scaled_dot_score(s, h, weights["query"][part], weights["key"][part])
        case "location":
            return formulas.location_score(s, weights["query"])
        case "static":
            return formulas.static_score(t, scorer.table)
        case "static-factorised":
            return formulas.static_factorised_score(t, scorer.table, weights["expand"].T)
        case "dynamic-factorised":
            return formulas.dynamic_factorised_score(s, h, network(scorer.query), network(scorer.key))
        case "location-aware":
            located = weights["location"], weights["filters"][:, 0]
            return formulas.location_aware_score(s, h, past[-1], w_s, w_h, *located, v)
    covered = weights["coverage"][:, 0], weights["fertility"][0]
    return formulas.coverage_score(s, h, torch.stack(past).sum(0), w_s, w_h, *covered, v)


def network(module: Any) -> Any:
    """Return f(x) = W_2 tanh(W_1 x + b_1) + b_2 of rows x."""
    one, _, two = module
    return lambda x: torch.tanh(x @ one.weight.T + one.bias) @ two.weight.T + two.bias


class TwinAttention:
    """The attention to one sentence h (S, E), step by step."""

    def __init__(self, model: Seq2Seq, h: Tensor) -> None:
        self.module, self.config, self.h = model.decoder.attention, model.config.attention, h
        heads, first = self.config.num_heads, torch.zeros(len(h), dtype=torch.float64)
        if self.config.normaliser == "monotonic":
            first = torch.nn.functional.one_hot(torch.tensor(0), len(h)).double()
        self.past = [[first] for _ in range(heads)]
        self.context = torch.empty(0)

    def __call__(self, s: Tensor) -> Tensor:
        """Return the context of one step, which is remembered, as the weights are."""
        scorer, contexts = self.module.scorer, []
        values = self.h if not hasattr(scorer.value, "weight") else self.h @ scorer.value.weight.T
        for head, value in enumerate(values.chunk(self.config.num_heads, dim=1)):
            a = self.weigh(head, s)
            self.past[head].append(a)
            contexts.append(formulas.weighted_sum(a, value))
        self.context = torch.cat(contexts)
        return self.context

    def weigh(self, head: int, s: Tensor) -> Tensor:
        config, scorer, past, length = self.config, self.module.scorer, self.past[head], len(self.h)
        t, sums = len(past) - 1, past[1:] or [torch.zeros_like(past[0])]
        wide = len(scorer.key.weight) if hasattr(scorer.key, "weight") else 0
        part = slice(wide * head // config.num_heads, wide * (head + 1) // config.num_heads)
        seen = sums if config.score == "coverage" else past
        e = score(scorer, config.score, s, self.h, t, seen, part)[:length] / config.temperature
        e = torch.cat((e, e.new_full((length - len(e),), float("-inf"))))
        visible, factor = torch.ones(length, dtype=torch.bool), torch.ones(())
        if config.scope == "local-m":
            visible = formulas.local_m(t, length, config.window)
        elif config.scope == "local-p":
            w, v = self.module.scope.hidden.weight, self.module.scope.energy.weight[0]
            visible, factor = formulas.local_p(s, length, config.window, w, v)
        e = torch.where(visible, e, float("-inf"))
        match config.normaliser:
            case "sparsemax":
                a = formulas.sparsemax(e)
            case "entmax-1.5":
                a = formulas.entmax15(e)
            case "straight-through":
                a = formulas.straight_through(e)
            case "reinforce":
                a = formulas.hard(e)
            case "monotonic":  # in evaluation p is 0 or 1
                r = self.module.normaliser.bias
                a = formulas.monotonic(
                    torch.where(e + r > 0, torch.inf, -torch.inf), past[-1], torch.zeros(1)
                )
            case _:
                a = formulas.softmax(e)
        return a * factor

    def weights(self) -> Tensor:
        """Return the weights of all steps, (heads, T, S)."""
        return torch.stack([torch.stack(rows[1:]) for rows in self.past])


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
        if decoder.own is not None:
            query, weights = formulas.self_attention(outputs[-1], past, decoder.own.join.weight)
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
        elif before and to_all and query_layer == 0 and decoder.own is None and decoder.rnn.gain is None:
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
