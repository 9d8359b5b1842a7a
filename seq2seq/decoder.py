"""The recurrent decoder: Bahdanau's, Luong's, and the one without attention.

Shapes: B sentences, K hypotheses each (1 in training), N = B * K rows, S source and T target positions,
L layers, H decoder state, X known inputs, D readout size.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

from .attention import Attention, AttentionOutput, Queries, Source
from .config import Seq2SeqConfig
from .encoder import EncoderOutput
from .readout import Readout
from .self_attention import SelfAttention
from .stack import RecurrentStack, StepwiseStack
from .state import DecoderOutput, Memory, State, join


class Decoder(nn.Module):
    """An LSTM or GRU that may attend to the source, before or after the cell, and to its own past.

    placement "before" (Bahdanau et al. 2015, eq. 4-6 and appendix A.2.2): the context c(t) is computed from
    s(t-1), then s(t) = cell([y(t-1); c(t)], s(t-1)); the readout is f(W [s(t); c(t); y(t-1)]), with s(t) as
    in eq. 4, where the appendix has s(t-1). Without attention the same, less c(t); feed_summary puts the last
    h of the encoder's top layer in its place, the same at every step (Cho et al. 2014, section 2.2).
    placement "after" (Luong et al. 2015, eq. 5 and section 3.3): h(t) = cell([y(t-1); feed], h(t-1)), then
    c(t) is computed from h(t); the readout is the attentional vector a(t) = f(W [h(t); c(t)]); with input
    feeding feed is a(t-1), at first 0, and without it there is none.
    y(t-1) is the embedding of the token before, f tanh or maxout. s and h stand for the output of the last
    layer, joined to what it finds in its past (``SelfAttention``) if told to; s(0) is that layer's first h.
    The first states are tanh(W [final states of the encoder]) with attention (Bahdanau, appendix A.2.2), and
    without it those final states themselves, layer by layer (Sutskever et al. 2014): a map in between that
    learns the language first saturates, and then lets little of the source through.
    """

    def __init__(self, config: Seq2SeqConfig, vocabulary: int, value_size: int, summary_size: int) -> None:
        """Read states (B, S, value_size) and a summary (B, summary_size), of whatever encoder."""
        super().__init__()
        self.config, size, attention = config, config.hidden_size, config.attention
        self.before = attention is not None and attention.placement == "before"
        self.after = attention is not None and attention.placement == "after"
        self.feeds = attention is not None and attention.input_feeding
        self.embedding = nn.Embedding(vocabulary, config.embedding_size)
        self.bridge = _bridge(config, summary_size)
        attend = None if attention is None else Attention(attention, size, value_size)
        context_size = 0 if attend is None else attend.context_size
        known_size = config.embedding_size + (size if config.feed_summary else 0)
        fed_size = context_size if self.before else config.output_size if self.feeds else 0
        self.rnn = RecurrentStack(config, known_size + fed_size, size)
        self.attention = attend
        self.own = SelfAttention(size) if config.self_attention in ("decoder", "both") else None
        read_size = size + context_size + (0 if self.after else known_size)
        self.readout = Readout(read_size, config.output_size, maxout=config.readout == "maxout")

    def remember(self, encoded: EncoderOutput) -> Memory:
        """Prepare what an encoder found, once for all steps and hypotheses."""
        states, mask, summary, _ = encoded
        start = summary if self.bridge is None else self.bridge(summary).tanh()
        # The parameters' type, not autocast's: a cell state is a running sum, which bfloat16 would round.
        start = start.to(self.readout.weight.dtype).view(len(start), self.config.num_layers, -1)
        if self.attention is None:
            return Memory(Source(states[:, :0], states[:, :0], mask[:, :0]), start)
        return Memory(self.attention.remember(states, mask), start)

    def init_state(self, memory: Memory, beam: int) -> State:
        """Make the state of ``beam`` hypotheses a sentence before their first token."""
        start, size = memory.start.unsqueeze(1).expand(-1, beam, -1, -1), self.config.hidden_size
        h, c, rows = start[..., :size], start[..., size:], start.shape[:2]
        last = h[:, :, -1] if self.before else h.new_zeros(*rows, self.config.output_size * self.feeds)
        position = torch.zeros(rows, dtype=torch.long, device=h.device)
        return State(h, c, last, position, h.new_zeros(*rows, 0, size))

    def forward(self, tgt_in: Tensor, memory: Memory) -> DecoderOutput:
        """Run the whole target tgt_in (B, T)."""
        known, state = self._known(tgt_in.t(), memory), self.init_state(memory, beam=1)
        if self.before or self.feeds:
            return self._loop(known, state, memory)[0]
        return self._fused(known, state, memory)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed one token a hypothesis, (B, K): the readout (B, K, D) and the next state."""
        decoded, state = self._loop(self._known(tokens.reshape(1, -1), memory), state, memory)
        return decoded.readout, state

    def _known(self, tokens: Tensor, memory: Memory) -> Tensor:
        """What is known beforehand of the cell's input, for tokens (T, N): (T, N, X)."""
        embedded = dropout(self.embedding(tokens), self.config.dropout, self.training)
        if not self.config.feed_summary:
            return embedded
        summary = memory.start[:, -1, : self.config.hidden_size]
        summary = summary.repeat_interleave(tokens.size(1) // summary.size(0), dim=0)
        return torch.cat((embedded, summary.expand(len(tokens), -1, -1)), dim=-1)

    def _fused(self, known: Tensor, state: State, memory: Memory) -> DecoderOutput:
        """Run known inputs (T, B, X) by one call of the RNN and one of attention: nothing is fed back."""
        h, c = (part.squeeze(1).transpose(0, 1).contiguous() for part in (state.h, state.c))
        top = self.rnn(known, (h, c))[0].transpose(0, 1)
        place, own = torch.arange(len(known), device=known.device), None
        if self.own is not None:
            top, own = self.own(top, top, seen=place < place.unsqueeze(1))
            own = own.unsqueeze(1)
        attended = self._attend(top, place.expand(top.shape[:2]), memory) if self.after else None
        return DecoderOutput(self._read(top, attended, known.transpose(0, 1)), attended, own)

    def _loop(self, known: Tensor, state: State, memory: Memory) -> tuple[DecoderOutput, State]:
        """Run known inputs (T, N, X) step by step: the context, or what was read, is part of the next input.

        T or K is 1, and the other one the Q of all (B, Q, ...) that are handed on.
        """
        steps, (rows, beam) = len(known), state.position.shape
        cells = StepwiseStack(self.rnn, known)
        read = self.readout.stepwise(steps, rows * beam) if self.feeds else None
        h, c = (list(part.flatten(0, 1).unbind(1)) for part in (state.h, state.c))
        _, _, last, position, past = state
        trace = []
        for t in range(steps):
            attended = self._attend(last, position, memory) if self.before else None
            fed = last if attended is None else attended.context
            top = cells(t, fed.flatten(0, 1), h, c).view(rows, beam, -1)
            top, past, own = self._look_back(top, past)
            if self.after:
                attended = self._attend(top, position, memory)
            if read is not None and attended is not None:
                found = torch.cat((top, attended.context), dim=-1)
                top = read(t, found.flatten(0, 1)).view(rows, beam, -1)
            if self.before or self.feeds:
                last = top
            trace.append(DecoderOutput(top, attended, None if own is None else pad(own, (0, steps - t))))
            position = position + 1
        run = join(trace)
        if not self.feeds:
            known = known.view(steps, rows, beam, -1).transpose(0, 1).flatten(1, 2)
            run = run._replace(readout=self._read(run.readout, run.attended, known))
        h_after, c_after = (
            torch.stack(h, dim=1).view(state.h.shape),
            torch.stack(c, dim=1).view(state.c.shape),
        )
        return run, State(h_after, c_after, last, position, past)

    def _attend(self, query: Tensor, position: Tensor, memory: Memory) -> AttentionOutput:
        """Look for query (B, Q, H), at target position (B, Q), in the source."""
        assert self.attention is not None
        found: AttentionOutput = self.attention(Queries(query, position), memory.source)
        return found

    def _look_back(self, top: Tensor, past: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Join top (B, K, H) to past (B, K, t, H); returns it, the past after it and weights (B, 1, K, t)."""
        if self.own is None:
            return top, past, None
        top = top.unsqueeze(2)
        joined, weights = self.own(top, past, seen=past.new_ones(1, past.size(2), dtype=torch.bool))
        return joined.squeeze(2), torch.cat((past, top), dim=2), weights.transpose(1, 2)

    def _read(self, top: Tensor, attended: AttentionOutput | None, known: Tensor) -> Tensor:
        """Readout (B, Q, D) of [h; c] and, but for placement "after", what was known, (B, Q, X)."""
        found = (top,) if attended is None else (top, attended.context)
        readout: Tensor = self.readout(torch.cat(found if self.after else (*found, known), dim=-1))
        return readout


def _bridge(config: Seq2SeqConfig, summary_size: int) -> nn.Linear | None:
    """From an encoder's summary to the first states; None without attention, where it is them."""
    size = config.num_layers * config.hidden_size * (2 if config.cell == "lstm" else 1)
    if config.attention is not None:
        return nn.Linear(summary_size, size)
    if summary_size != size:
        raise ValueError(
            f"without attention the decoder starts from the encoder's summary as it is: it must be "
            f"{size} wide (the states of {config.num_layers} layers), got {summary_size}"
        )
    return None
