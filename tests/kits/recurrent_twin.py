"""A recurrent model written again from the papers: torch's cells, one sentence and one vector at a time.

It takes the weights of a ``Seq2Seq`` and none of its code, but for one query's attention to a sentence, which
has tests of its own.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq import Queries, SelfAttention, Seq2Seq
from seq2seq.stack import RecurrentStack

FORWARD = {"both": [True, False], "forward": [True], "backward": [False]}


class Read(NamedTuple):
    """What the encoder makes of a sentence."""

    states: Tensor
    summary: list[Tensor]
    """h, and c of an LSTM, of the lowest layer, then of the next."""
    own: Tensor | None


class Written(NamedTuple):
    """What the decoder makes of a target."""

    logits: Tensor
    attention: dict[str, Tensor | None]


def cells_of(stack: RecurrentStack) -> list[nn.Module]:
    """One of torch's cells for every layer and direction."""
    cells = []
    for weights in stack.layers:
        size = weights[1].size(1)
        kind = nn.LSTMCell if weights[1].size(0) == 4 * size else nn.GRUCell
        cell = kind(weights[0].size(1), size).double()
        for own, given in zip(cell.parameters(), weights, strict=True):
            own.data.copy_(given)
        cells.append(cell)
    return cells


def advance(cell: nn.Module, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return cell(x, (h, c)) if isinstance(cell, nn.LSTMCell) else (cell(x, h), c)


def join(own: SelfAttention, h: Tensor, earlier: list[Tensor]) -> tuple[Tensor, list[float]]:
    """tanh(W [h; c]), c being the average of ``earlier`` by the softmax of h . h_i, and its weights."""
    c, weights = torch.zeros_like(h), []
    if earlier:
        total = sum(h.dot(other).exp() for other in earlier)
        weights = [float(h.dot(other).exp() / total) for other in earlier]
        c = sum(weight * other for weight, other in zip(weights, earlier, strict=True))
    return torch.tanh(own.join.weight.mv(torch.cat((h, c)))), weights


@torch.no_grad()
def read(model: Seq2Seq, tokens: Tensor) -> Read:
    """Read one sentence (S,) without padding."""
    encoder, config = model.encoder, model.config
    forward, cells = FORWARD[config.direction], cells_of(encoder.rnn)
    xs, summary = [encoder.embedding.weight[token] for token in tokens], []
    for layer in range(config.num_layers):
        halves, lasts = [], []
        for way, onward in enumerate(forward):
            cell, outs = cells[layer * len(forward) + way], []
            h = c = torch.zeros(cell.hidden_size, dtype=torch.float64)
            for x in xs if onward else xs[::-1]:
                h, c = advance(cell, x, h, c)
                outs.append(h)
            halves.append(outs if onward else outs[::-1])
            lasts.append((h, c))
        below, xs = xs, [torch.cat(parts) for parts in zip(*halves, strict=True)]
        if layer >= 2:
            xs = [x + under for x, under in zip(xs, below, strict=True)]
        for part in range(2 if config.cell == "lstm" else 1):
            summary.append(torch.cat([last[part] for last in lasts]))
    if encoder.own is None:
        return Read(torch.stack(xs), summary, None)
    joined, own = [], torch.zeros(len(forward), len(xs), len(xs), dtype=torch.float64)
    for way, onward in enumerate(forward):
        order = list(range(len(xs))) if onward else list(range(len(xs)))[::-1]
        half = {place: xs[place].chunk(len(forward))[way] for place in order}
        for step, place in enumerate(order):
            half_joined, weights = join(encoder.own.parts[way], half[place], [half[i] for i in order[:step]])
            joined.append(half_joined)
            own[way, place, order[:step]] = torch.tensor(weights, dtype=torch.float64)
        joined[way * len(xs) :] = joined[way * len(xs) :] if onward else joined[way * len(xs) :][::-1]
    sides = [torch.stack(joined[way * len(xs) : (way + 1) * len(xs)]) for way in range(len(forward))]
    return Read(torch.cat(sides, dim=1), summary, own)


@torch.no_grad()
def write(model: Seq2Seq, source: Tensor, target: Tensor) -> Written:
    """Read ``source`` (S,) and predict after each token of ``target`` (T,)."""
    decoder, config, attention = model.decoder, model.config, model.config.attention
    cells, encoded = cells_of(decoder.rnn), read(model, source)
    start = torch.cat(encoded.summary)
    if attention is not None:
        start = torch.tanh(decoder.bridge.weight.mv(start) + decoder.bridge.bias)
        memory = decoder.attention.remember(
            encoded.states[None], torch.ones(1, len(source), dtype=torch.bool)
        )
    parts = start.view(config.num_layers, -1).split(config.hidden_size, dim=1)
    h, c = list(parts[0]), list(parts[-1])
    top, summary = h[-1], h[-1]
    feed = torch.zeros(config.output_size, dtype=torch.float64)
    logits, seen, past = [], [], []
    own = torch.zeros(1, len(target), len(target), dtype=torch.float64)
    for t, token in enumerate(target):

        def look(query: Tensor, t: int = t) -> Tensor:
            found = decoder.attention(Queries(query[None, None], torch.tensor([[t]])), memory)
            seen.append(found.weights[0, :, 0])
            return found.context[0, 0]

        inputs = [decoder.embedding.weight[token]]
        if attention is not None and attention.placement == "before":
            context = look(top)
            inputs.append(context)
        if attention is not None and attention.input_feeding:
            inputs.append(feed)
        if config.feed_summary:
            inputs.append(summary)
        x = torch.cat(inputs)
        for layer, cell in enumerate(cells):
            h[layer], c[layer] = advance(cell, x, h[layer], c[layer])
            x = h[layer] + x if layer >= 2 else h[layer]
        top = x
        if decoder.own is not None:
            top, weights = join(decoder.own, x, past)
            own[0, t, :t] = torch.tensor(weights, dtype=torch.float64)
            past.append(x)
        if attention is None:
            found = [top, *inputs]
        elif attention.placement == "before":
            found = [top, context, inputs[0]]
        else:
            found = [top, look(top)]
        feed = decoder.readout.weight.mv(torch.cat(found)) + decoder.readout.bias
        if config.readout == "maxout":
            feed = torch.stack([torch.max(feed[i], feed[i + 1]) for i in range(0, len(feed), 2)])
        else:
            feed = torch.tanh(feed)
        logits.append(model.output.weight.mv(feed) + model.output.bias)
    return Written(
        torch.stack(logits),
        {
            "cross": torch.stack(seen, dim=1) if seen else None,
            "encoder": encoded.own,
            "decoder": None if decoder.own is None else own,
        },
    )
