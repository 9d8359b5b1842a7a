"""The recurrent decoder: Bahdanau's, Luong's, and the one without attention.

Shapes: B sentences, K hypotheses each (1 in training), N = B * K rows, S source and T target positions,
L layers, H decoder state, E encoder state, A key, D readout size.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from .attention import SCORES, attend
from .cells import Product, Stepwise, build_rnn
from .config import Seq2SeqConfig
from .encoder import Encoded


class Memory(NamedTuple):
    """What the decoder keeps of the sources, one row a sentence; without attention S is 0 in it."""

    values: Tensor
    """Encoder states, (B, S, E)."""
    keys: Tensor
    """The same, projected for the score, (B, S, A)."""
    mask: Tensor
    """True where attention is allowed, (B, S)."""
    start: Tensor
    """First state of every layer, h and (LSTM) c, (B, L, H or 2 H)."""


class State(NamedTuple):
    """Where each hypothesis stands; a part that a model does without has width 0."""

    h: Tensor
    """Hidden states, (B, K, L, H)."""
    c: Tensor
    """Cell states of an LSTM, (B, K, L, H or 0)."""
    feed: Tensor
    """The last attentional vector, for input feeding, (B, K, D or 0)."""


class Decoder(nn.Module):
    """An LSTM or GRU that may attend to the source, before or after the cell.

    placement "before" (Bahdanau et al. 2015, eq. 4-6 and appendix A.2.2): the context c(t) is computed from
    s(t-1), then s(t) = cell([y(t-1); c(t)], s(t-1)); the readout is tanh(W [s(t); c(t); y(t-1)]), with tanh
    in the place of the paper's maxout. With attention "none" the same, less c(t).
    placement "after" (Luong et al. 2015, eq. 5 and section 3.3): h(t) = cell([y(t-1); feed], h(t-1)), then
    c(t) is computed from h(t); the readout is the attentional vector a(t) = tanh(W [h(t); c(t)]); with input
    feeding feed is a(t-1), at first 0, and without it there is none.
    y(t-1) is the embedding of the token before. The last layer's state is the one that attends.
    The first states are tanh(W [final states of the encoder]) with attention (Bahdanau, appendix A.2.2), and
    without it those final states themselves, layer by layer (Sutskever et al. 2014): a map in between that
    learns the language first saturates, and then lets little of the source through.
    """

    def __init__(self, config: Seq2SeqConfig, vocabulary: int, value_size: int, summary_size: int) -> None:
        super().__init__()
        self.config, size = config, config.hidden_size
        self.attends = config.attention != "none"
        self.before = self.attends and config.placement == "before"
        self.after = self.attends and config.placement == "after"
        self.feed_size = config.output_size if config.input_feeding else 0
        self.fed_size = value_size if self.before else self.feed_size
        self.embedding = nn.Embedding(vocabulary, config.embedding_size)
        start_size = config.num_layers * size * (2 if config.cell == "lstm" else 1)
        self.bridge = nn.Linear(summary_size, start_size) if self.attends else None
        self.rnn = build_rnn(config, config.embedding_size + self.fed_size, size)
        if self.attends:
            self.scorer = SCORES[config.attention](size, value_size, config.attention_size or size)
        found = size + (value_size if self.attends else 0)
        self.readout = nn.Linear(found + (0 if self.after else config.embedding_size), config.output_size)

    def remember(self, encoded: Encoded) -> Memory:
        """Prepare what an encoder read: the keys and the first states, once a sentence."""
        states, mask, summary = encoded
        start = summary if self.bridge is None else self.bridge(summary).tanh()
        # The parameters' type, not autocast's: a cell state is a running sum, which bfloat16 would round.
        start = start.to(self.readout.weight.dtype)
        start = start.view(start.size(0), self.config.num_layers, -1)
        if not self.attends:
            return Memory(states[:, :0], states[:, :0], mask[:, :0], start)
        return Memory(states, self.scorer.project(states), mask, start)

    def init_state(self, memory: Memory, beam: int) -> State:
        """Make the state of ``beam`` hypotheses a sentence before their first token."""
        start = memory.start.unsqueeze(1).expand(-1, beam, -1, -1)
        h, c = start[..., : self.config.hidden_size], start[..., self.config.hidden_size :]
        return State(h, c, start.new_zeros(start.size(0), beam, self.feed_size))

    def forward(self, tgt_in: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Run the whole target tgt_in (B, T): the readout (B, T, D) and the weights (B, T, S)."""
        embedded = self._embed(tgt_in.t())
        state = self.init_state(memory, beam=1)
        if self.fed_size:
            readout, weights, _ = self._loop(embedded, state, memory)
        else:
            readout, weights = self._fused(embedded, state, memory)
        return readout.transpose(0, 1), weights.transpose(0, 1)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed one token a hypothesis, (B, K): the readout (B, K, D) and the next state."""
        readout, _, state = self._loop(self._embed(tokens.reshape(1, -1)), state, memory)
        return readout.view(*tokens.shape, -1), state

    def _embed(self, tokens: Tensor) -> Tensor:
        return dropout(self.embedding(tokens), self.config.dropout, self.training)

    def _fused(self, embedded: Tensor, state: State, memory: Memory) -> tuple[Tensor, Tensor]:
        """Run embeddings (T, B, X) by one call of the RNN and one of attention, since nothing is fed back."""
        h, c = (part.squeeze(1).transpose(0, 1).contiguous() for part in (state.h, state.c))
        top, _ = self.rnn(embedded, (h, c) if isinstance(self.rnn, nn.LSTM) else h)
        context, weights = (part.transpose(0, 1) for part in self._look(top.transpose(0, 1), memory))
        return self._read(torch.cat((top, context), dim=-1), embedded), weights

    def _loop(self, embedded: Tensor, state: State, memory: Memory) -> tuple[Tensor, Tensor, State]:
        """Run embeddings (T, N, X) step by step: the context, or what was read, is part of the next input."""
        steps, rows, _ = embedded.shape
        beams = state.h.shape[:2]
        cells = Stepwise(self.rnn, embedded)
        h, c = (list(part.flatten(0, 1).unbind(1)) for part in (state.h, state.c))
        feed = state.feed.flatten(0, 1)
        if self.feed_size:
            read = Product(self.readout.weight, self.readout.bias.expand(steps, rows, -1))
            biases = read.offsets.unbind()
        trace = []
        for t in range(steps):
            if self.before:
                context, weights = self._look_back(h[-1], beams, memory)
            cells(t, context if self.before else feed, h, c)
            if not self.before:
                context, weights = self._look_back(h[-1], beams, memory)
            vector = torch.cat((h[-1], context), dim=-1)
            if self.feed_size:
                vector = feed = read(biases[t], vector).tanh()
            trace.append((vector, weights))
        vectors, weights = (torch.stack(part) for part in zip(*trace, strict=True))
        after = State(_layers(h, beams), _layers(c, beams), feed.view(*beams, -1))
        return vectors if self.feed_size else self._read(vectors, embedded), weights, after

    def _look(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Attend from query (B, Q, H): context (B, Q, E) and weights (B, Q, S), both of width 0 without."""
        if not self.attends:
            return query[..., :0], query[..., :0]
        return attend(self.scorer.score(query, memory.keys), memory.values, memory.mask)

    def _look_back(self, h: Tensor, beams: torch.Size, memory: Memory) -> tuple[Tensor, Tensor]:
        """Attend from h (N, H), which is (B, K, H): a sentence's hypotheses share its memory."""
        context, weights = self._look(h.view(*beams, -1), memory)
        return context.flatten(0, 1), weights.flatten(0, 1)

    def _read(self, vectors: Tensor, embedded: Tensor) -> Tensor:
        """Readout (T, N, D) of [h; c] (T, N, H + E) and, but for placement "after", embeddings (T, N, X)."""
        read = self.readout(vectors if self.after else torch.cat((vectors, embedded), dim=-1))
        return torch.tanh(read)


def _layers(parts: list[Tensor], beams: torch.Size) -> Tensor:
    """Join the states of the layers, (N, H) each, to (B, K, L, H)."""
    return torch.stack(parts, dim=1).view(*beams, len(parts), -1)
