"""A recurrent model written again from the papers: torch's cells, one sentence and one vector at a time.

It takes the weights of a ``Seq2Seq`` but none of its code, except for the attention of a single query to a
sentence, which has its own tests.

Shapes: S source and T target tokens, L layers, D directions, E encoder state, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq import Past, Queries, SelfAttention, Seq2Seq
from seq2seq.cells import LayerNormLSTMCell
from seq2seq.min_rnn import MinCell
from seq2seq.stack import RecurrentStack

FORWARD = {"both": [True, False], "forward": [True], "backward": [False]}
FIRST_RESIDUAL_LAYER = {False: 2, True: 1}  # by pre_norm


class TwinEncoding(NamedTuple):
    """Output of the encoder for one sentence."""

    states: Tensor
    """(S, E)"""
    summary: list[Tensor]
    """Final h, and c of an LSTM, layer by layer from the bottom up."""
    self_attention: Tensor | None
    """(D, S, S)"""


class TwinDecoding(NamedTuple):
    """Output of the decoder for one target."""

    logits: Tensor
    """(T, V)"""
    attention: dict[str, Tensor | None]
    """Weights by name, as ``Seq2Seq.attention`` returns them, without the batch dimension."""


class TwinLayerNormCell(nn.Module):
    """Ba et al. 2016, eq. 20 to 22, the statistics of each gate apart, for vectors."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.w, self.hidden_size = weights, len(weights["gain_c"])

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        (h, c), w = state, self.w
        gates = []
        for k in range(4):
            rows = slice(k * self.hidden_size, (k + 1) * self.hidden_size)
            from_x = w["gain_ih"][k] * standardise(w["weight_ih"][rows].mv(x))
            from_h = w["gain_hh"][k] * standardise(w["weight_hh"][rows].mv(h))
            gates.append(from_x + from_h + w["bias_ih"][rows])
        i, f, g, o = gates
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(w["gain_c"] * standardise(c) + w["bias_c"]), c


class TwinMinCell(nn.Module):
    """Feng et al. 2024, minGRU and minLSTM, for vectors."""

    def __init__(self, weights: dict[str, Tensor], size: int) -> None:
        super().__init__()
        self.w, self.hidden_size = weights, size

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = state
        gates = (self.w["weight_ih"].mv(x) + self.w["bias_ih"]).split(self.hidden_size)
        if len(gates) == 2:
            z = 1 / (1 + torch.exp(-gates[0]))
            return (1 - z) * h + z * gates[1], c
        i, f = (1 / (1 + torch.exp(-gate)) for gate in gates[:2])
        return f / (f + i) * h + i / (f + i) * gates[2], c


def standardise(x: Tensor) -> Tensor:
    mean = sum(x) / len(x)
    return (x - mean) / (sum((x - mean) ** 2) / len(x) + 1e-5) ** 0.5


def cells_of(stack: RecurrentStack) -> list[nn.Module]:
    """Create one of torch's cells per layer and direction, with the weights of ``stack``."""
    cells: list[nn.Module] = []
    for module in stack.modules():
        if isinstance(module, LayerNormLSTMCell):
            cells.append(TwinLayerNormCell(dict(module.named_parameters())))
        elif isinstance(module, MinCell):
            cells.append(TwinMinCell(dict(module.named_parameters()), module.size))
    for weights in stack.layers:
        size = weights[1].size(1)
        cell_class = nn.LSTMCell if weights[1].size(0) == 4 * size else nn.GRUCell
        cell = cell_class(weights[0].size(1), size).double()
        for parameter, weight in zip(cell.parameters(), weights, strict=True):
            parameter.data.copy_(weight)
        cells.append(cell)
    return cells


def normalise(stack: RecurrentStack, layer: int, x: Tensor) -> Tensor:
    """Return RMSNorm of the output x of layer ``layer``, counted from 1, if it has one."""
    if not stack.config.pre_norm or not layer:
        return x
    return stack.gain[layer - 1] * x / (sum(x**2) / len(x) + 1e-6) ** 0.5


def advance(cell: nn.Module, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return (cell(x, h), c) if isinstance(cell, nn.GRUCell) else cell(x, (h, c))


def self_attend(module: SelfAttention, h: Tensor, earlier: list[Tensor]) -> tuple[Tensor, list[float]]:
    """Return tanh(W [h; c]), where c averages ``earlier`` by the softmax of h . h_i, and the weights."""
    c, weights = torch.zeros_like(h), []
    if earlier:
        total = sum(h.dot(other).exp() for other in earlier)
        weights = [float(h.dot(other).exp() / total) for other in earlier]
        c = sum(weight * other for weight, other in zip(weights, earlier, strict=True))
    return torch.tanh(module.join.weight.mv(torch.cat((h, c)))), weights


@torch.no_grad()
def encode(model: Seq2Seq, tokens: Tensor) -> TwinEncoding:
    """Encode one sentence (S,) without padding."""
    encoder, config = model.encoder, model.config
    cells = iter(cells_of(encoder.rnn))
    xs, summary = [encoder.embedding.weight[token] for token in tokens], []
    for layer in range(config.encoder_layers or config.num_layers):
        forward = FORWARD["forward" if layer else "both"]
        if config.direction != "both-bottom":
            forward = FORWARD[config.direction]
        outputs, finals, below = [], [], xs
        xs = [normalise(encoder.rnn, layer, x) for x in xs]
        for left_to_right in forward:
            cell, hs = next(cells), []
            h = c = torch.zeros(cell.hidden_size, dtype=torch.float64)
            for x in xs if left_to_right else xs[::-1]:
                h, c = advance(cell, x, h, c)
                hs.append(h)
            outputs.append(hs if left_to_right else hs[::-1])
            finals.append((h, c))
        xs = [torch.cat(parts) for parts in zip(*outputs, strict=True)]
        if layer >= FIRST_RESIDUAL_LAYER[config.pre_norm]:
            xs = [x + lower for x, lower in zip(xs, below, strict=True)]
        if config.direction == "both-bottom":
            finals = finals[-1:]
        for part in range(2 if config.has_cell_state else 1):
            summary.append(torch.cat([final[part] for final in finals]))
    xs = [normalise(encoder.rnn, layer + 1, x) for x in xs]
    if encoder.own is None:
        return TwinEncoding(torch.stack(xs), summary, None)
    states, weights = encoder_self_attention(model, xs)
    return TwinEncoding(states, summary, weights)


def encoder_self_attention(model: Seq2Seq, xs: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return combined states (S, E) and weights (D, S, S) for the outputs xs of the encoder's RNN."""
    forward, length = FORWARD[model.config.direction], len(xs)
    weights = torch.zeros(len(forward), length, length, dtype=torch.float64)
    combined_of_directions = []
    for direction, left_to_right in enumerate(forward):
        order = list(range(length)) if left_to_right else list(range(length))[::-1]
        halves = [x.chunk(len(forward))[direction] for x in xs]
        combined: list[Tensor] = [torch.empty(0)] * length
        for step, position in enumerate(order):
            combined[position], row = self_attend(
                model.encoder.own.parts[direction], halves[position], [halves[i] for i in order[:step]]
            )
            weights[direction, position, order[:step]] = torch.tensor(row, dtype=torch.float64)
        combined_of_directions.append(torch.stack(combined))
    return torch.cat(combined_of_directions, dim=1), weights


def initial_states(model: Seq2Seq, encoded: TwinEncoding) -> tuple[list[Tensor], list[Tensor]]:
    """Return the initial h and c of each layer of the decoder; a GRU ignores c."""
    config, decoder, start = model.config, model.decoder, torch.cat(encoded.summary)
    kind = config.decoder_start or ("bridge" if config.attention is not None else "last")
    if kind == "bridge":
        start = torch.tanh(decoder.bridge.weight.mv(start) + decoder.bridge.bias)
    elif kind == "zeros":
        per_layer = config.hidden_size * (2 if config.has_cell_state else 1)
        start = torch.zeros(config.num_layers * per_layer, dtype=torch.float64)
    parts = start.view(model.config.num_layers, -1).split(model.config.hidden_size, dim=1)
    return list(parts[0]), list(parts[-1])


def compute_readout(model: Seq2Seq, x: Tensor) -> Tensor:
    """Return tanh(W x + b), the larger of each two neighbours of W x + b with maxout, or x itself."""
    if model.config.readout == "none":
        return x
    readout = model.decoder.readout.weight.mv(x) + model.decoder.readout.bias
    if model.config.readout == "maxout":
        return torch.stack([torch.max(readout[i], readout[i + 1]) for i in range(0, len(readout), 2)])
    return torch.tanh(readout)


@torch.no_grad()
def decode(model: Seq2Seq, source: Tensor, target: Tensor) -> TwinDecoding:
    """Encode ``source`` (S,) and predict the next token after each token of ``target`` (T,)."""
    decoder, config, attention = model.decoder, model.config, model.config.attention
    cells, encoded = cells_of(decoder.rnn), encode(model, source)
    if attention is not None:
        mask = torch.ones(1, len(source), dtype=torch.bool)
        memory = decoder.attention.remember(encoded.states[None], mask)
        last = torch.zeros(1, config.attention.num_heads, 1, len(source), dtype=torch.float64)
        if config.attention.normaliser == "monotonic":
            last[..., 0] = 1
        earlier = [last]
    h, c = initial_states(model, encoded)
    query_layer = (config.num_layers if attention is None else attention.query_layer or config.num_layers) - 1
    query, summary = h[query_layer], h[-1]
    readout = torch.zeros(config.output_size, dtype=torch.float64)
    logits, cross_weights, past = [], [], []
    own_weights = torch.zeros(1, len(target), len(target), dtype=torch.float64)
    for t, token in enumerate(target):

        def attend(query: Tensor, t: int = t) -> Tensor:
            total = torch.stack([torch.zeros_like(last), *earlier[1:]]).sum(0)
            queries = Queries(query[None, None], torch.tensor([[t]]), Past(earlier[-1], total))
            output = decoder.attention(queries, memory)
            earlier.append(output.weights)
            cross_weights.append(output.weights[0, :, 0])
            return output.context[0, 0]

        inputs = [decoder.embedding.weight[token]]
        if attention is not None and attention.placement == "before":
            context = attend(query)
            inputs.append(context)
        if attention is not None and attention.input_feeding:
            inputs.append(readout)
        if config.feed_summary:
            inputs.append(summary)
        x = torch.cat(inputs)
        for layer, cell in enumerate(cells):
            below, x = x, normalise(decoder.rnn, layer, x)
            if layer and attention is not None and attention.context_to == "all":
                x = torch.cat((x, context))
            h[layer], c[layer] = advance(cell, x, h[layer], c[layer])
            x = h[layer] + below if layer >= FIRST_RESIDUAL_LAYER[config.pre_norm] else h[layer]
            x = normalise(decoder.rnn, layer + 1, x) if layer + 1 == len(cells) else x
            query = x if layer == query_layer else query
        top = x
        if decoder.own is not None:
            top, weights = self_attend(decoder.own, x, past)
            own_weights[0, t, :t] = torch.tensor(weights, dtype=torch.float64)
            past.append(x)
            query = top
        if attention is None:
            readout_inputs = [top, *inputs]
        elif attention.placement == "before":
            readout_inputs = [top, context, inputs[0]] if attention.context_to_readout else [top, inputs[0]]
        else:
            readout_inputs = [top, attend(query)]
        if config.readout == "none":
            readout_inputs = [part for part in readout_inputs if not any(part is each for each in inputs[:1])]
        readout = compute_readout(model, torch.cat(readout_inputs))
        logits.append(model.output.weight.mv(readout) + model.output.bias)
    return TwinDecoding(
        torch.stack(logits),
        {
            "cross": torch.stack(cross_weights, dim=1) if cross_weights else None,
            "encoder": encoded.self_attention,
            "decoder": None if decoder.own is None else own_weights,
        },
    )
