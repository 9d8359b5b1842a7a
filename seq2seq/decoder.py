"""The recurrent decoder: attention before the cell (Bahdanau), after it (Luong), or no attention.

Shapes: B sentences, K hypotheses per sentence (1 in training), N = B * K batch rows, S source and T target
positions, Q queries per sentence, L layers, H size of a decoder state, D size of the readout, X features of
the input that does not depend on attention (embedding and summary).
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

from .attention import Attention, AttentionOutput, Source, join_gradients
from .cells import Cell
from .config import AttentionConfig, Seq2SeqConfig
from .scores import Past, Queries
from .stack import RecurrentStack, StepwiseLinear, StepwiseStack, embed_tokens


def join_gates(cells: Sequence[Cell]) -> Any:
    """Join the weights of the cells for a search; None, as here, if they are not joined."""


class Readout(nn.Linear):
    """f(W x + b), f being tanh (Luong et al. 2015, eq. 5) or maxout (Bahdanau et al. 2015, appendix A.2.2).

    Maxout returns the larger of each two neighbouring units (Goodfellow et al. 2013, section 2).
    """

    def __init__(self, input_size: int, output_size: int, maxout: bool) -> None:
        super().__init__(input_size, output_size * (2 if maxout else 1))
        self.maxout = maxout

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., input_size) to (..., output_size)."""
        return self.activate(super().forward(x))

    def activate(self, x: Tensor) -> Tensor:
        """Apply f to W x + b, (..., output_size or twice that)."""
        return torch.maximum(x[..., ::2], x[..., 1::2]) if self.maxout else x.tanh()


class SelfAttention(nn.Module):
    """h'(t) = tanh(W [h(t); c(t)]), c(t) = sum over i < t of a(i, t) h(i), a(t) = softmax of h(i) . h(t).

    c(1) is 0. The recurrence itself continues with h, not with h', so that all states are known before any of
    them attends; in the LSTMN of Cheng et al. 2016 (section 3), c replaces h(t - 1) in the recurrence.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.join = nn.Linear(2 * size, size, bias=False)

    def forward(self, states: Tensor, earlier: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Combine states (..., Q, H) with those of earlier (..., P, H) that are visible (..., Q, P).

        Returns the combined states (..., Q, H) and the weights (..., Q, P), all 0 for a state that sees none.
        """
        scores = states @ earlier.transpose(-1, -2)
        # Not -inf: the softmax of a state that may attend to nothing would be NaN.
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).masked_fill(~visible, 0)
        context = weights.to(earlier.dtype) @ earlier
        combined: Tensor = self.join(torch.cat((states, context), dim=-1))
        return combined.tanh(), weights


class EncoderOutput(NamedTuple):
    """Output of an encoder, which a decoder starts from."""

    states: Tensor
    """Encoder states h, one per source position, in source order, (B, S, E)."""
    mask: Tensor
    summary: Tensor
    """One vector per sentence, from which the decoder computes its initial state, (B, summary size)."""
    self_attention: Tensor | None = None
    """Weights of each position on those read before it, (B, D, S, S); None without self-attention."""


class Memory(NamedTuple):
    """Everything that the decoder reads of the source, one row per sentence."""

    source: Source
    start: Tensor
    """Initial state of every layer, h and (LSTM) c concatenated, (B, L, H or 2 H)."""


class State(NamedTuple):
    """State of each hypothesis between two steps; parts that a model does not need have width 0."""

    h: Tensor
    c: Tensor
    """Cell states of an LSTM, (B, K, L, H or 0), float32 with 16-bit weights too."""
    feedback: Tensor
    """Output of the previous step that the next step reads: with placement "before" the decoder state that
    attends, (B, K, H); with input feeding the attentional vector, (B, K, D)."""
    position: Tensor
    past: Tensor
    """Outputs of the RNN at all previous steps, for self-attention, (B, K, steps or 0, H)."""
    attended: Past | tuple[()] = ()


class DecoderOutput(NamedTuple):
    """The input of the output layer (B, T, D), and attention weights, None where nothing attends."""

    readout: Tensor
    attention: AttentionOutput | None
    self_attention: Tensor | None


def concatenate_steps(steps: Sequence[Any]) -> Any:
    """Concatenate the outputs of single steps, nested tuples, along their queries: dimension 2 of weights."""
    first = steps[0]
    if len(steps) == 1 or first is None:
        return first
    if isinstance(first, Tensor):
        return torch.cat(list(steps), dim=2 if first.dim() == 4 else 1)
    return type(first)(*(concatenate_steps(parts) for parts in zip(*steps, strict=True)))


class Decoder(nn.Module):
    """A recurrence over the target that may attend to the source and to its own earlier states.

    y(t-1) is the embedding of the previous token, s and h are the output of the top layer, c is the context
    and f is tanh or maxout.

    Placement "before" (Bahdanau et al. 2015, eq. 4-6 and appendix A.2.2): c(t) is computed from s(t-1), then
    s(t) = cell([y(t-1); c(t)], s(t-1)). The readout is f(W [s(t); c(t); y(t-1)]); it reads s(t), as in eq. 4,
    where the appendix has s(t-1).

    Placement "after" (Luong et al. 2015, eq. 5 and section 3.3): h(t) = cell([y(t-1); a(t-1)], h(t-1)), then
    c(t) is computed from h(t). The readout is the attentional vector a(t) = f(W [h(t); c(t)]). Without input
    feeding a(t-1) is left out; with it a(0) = 0.

    Without attention: as "before", but without c(t), which ``feed_summary`` replaces by the initial h of the
    top layer (Cho et al. 2014, section 2.2).

    Initial states, by ``decoder_start``, from the final states f of all layers and directions of the encoder:

    - "bridge": tanh(W f + b). In Bahdanau et al. 2015, appendix A.2.2, f is the state of the backward
      direction alone. The default with attention.
    - "last": f itself, layer by layer (Sutskever et al. 2014). The default without attention, where all
      information passes through these states, and a trained tanh layer saturates early.
    - "zeros": 0, so that the decoder sees the source through attention alone.

    With placement "before", layers above the one that attends feed nothing back: in training one call
    computes all their time steps (Wu et al. 2016).
    """

    def __init__(self, config: Seq2SeqConfig, vocabulary: int, value_size: int, summary_size: int) -> None:
        """Create a decoder of source states (..., value_size); a ValueError if the attention rejects them."""
        super().__init__()
        self.config, size, settings = config, config.hidden_size, config.attention or AttentionConfig()
        self.attends_before = config.attention is not None and settings.placement == "before"
        self.attends_after = settings.placement == "after"
        self.input_feeding, self.context_to_readout = settings.input_feeding, settings.context_to_readout
        self.query_depth = settings.query_layer or config.num_layers
        self.starts_at_zero = config.start == "zeros"
        self.embedding = nn.Embedding(vocabulary, config.embedding_size)
        self.bridge = nn.Linear(summary_size, config.start_size) if config.start == "bridge" else None
        attention = None if config.attention is None else Attention(settings, size, value_size)
        context_size = 0 if attention is None else attention.context_size
        input_size = config.embedding_size + (size if config.feed_summary else 0)
        self.fed_size = config.output_size if self.input_feeding else 0
        feedback_size = context_size if self.attends_before else self.fed_size
        read_by_all = context_size if settings.context_to == "all" else 0
        self.rnn = RecurrentStack(config, input_size + feedback_size, size, context_size=read_by_all)
        self.joined_gates: Any = None
        self.attention = attention
        self.needs_past = attention is not None and attention.needs_past
        self.self_attention = SelfAttention(size) if config.self_attention in ("decoder", "both") else None
        readout_size = size + (0 if self.attends_after else input_size)
        readout_size += context_size if self.context_to_readout else 0
        self.readout = None
        if config.readout != "none":
            self.readout = Readout(readout_size, config.output_size, maxout=config.readout == "maxout")

    def prepare_decoding(self) -> None:
        """Let ``step`` compute the gates of an LSTM by one product per layer; its weights must not change."""
        self.joined_gates = join_gates(self.rnn.cells)

    def remember(self, encoded: EncoderOutput) -> Memory:
        """Compute keys, values and initial states, once for all steps and hypotheses."""
        states, mask, summary, _ = encoded
        start = summary if self.bridge is None else self.bridge(summary).tanh()
        if self.starts_at_zero:
            start = summary.new_zeros(summary.size(0), self.config.start_size)
        # In the dtype of the parameters, not of autocast: bfloat16 would round the sum in a cell state.
        start = start.to(self.embedding.weight.dtype).view(start.size(0), self.config.num_layers, -1)
        if self.attention is None:
            return Memory(Source(states[:, :0], states[:, :0], mask[:, :0]), start)
        return Memory(self.attention.remember(states, mask), start)

    def init_state(self, memory: Memory, beam: int) -> State:
        """Return the state before the first token of K = ``beam`` hypotheses per sentence."""
        start, size = memory.start.unsqueeze(1).expand(-1, beam, -1, -1), self.config.hidden_size
        h, c, rows = start[..., :size], start[..., size:], start.shape[:2]
        c = c.to(torch.promote_types(c.dtype, torch.float32))
        feedback = h[:, :, self.query_depth - 1] if self.attends_before else h.new_zeros(*rows, self.fed_size)
        position = torch.zeros(rows, dtype=torch.long, device=h.device)
        needing = self.attention if self.needs_past else None
        attended = () if needing is None else needing.first_past(memory.source, beam)
        return State(h, c, feedback, position, h.new_zeros(*rows, 0, size), attended)

    def forward(self, tgt_in: Tensor, memory: Memory) -> DecoderOutput:
        """Run a whole target tgt_in (B, T) with teacher forcing."""
        inputs, state = self._inputs(tgt_in.t(), memory), self.init_state(memory, beam=1)
        is_fed_back = self.attends_before or self.input_feeding or self.needs_past
        if is_fed_back or self.query_depth < len(self.rnn.layers):
            output = self._run_stepwise(inputs, state, memory)[0]
        else:
            output = self._run_fused(inputs, state, memory)
        return output._replace(readout=dropout(output.readout, self.config.dropout, self.training))

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed tokens (B, K), one per hypothesis; returns the readout (B, K, D) and the next state."""
        output, state = self._run_stepwise(self._inputs(tokens.reshape(1, -1), memory), state, memory)
        return dropout(output.readout, self.config.dropout, self.training), state

    def _inputs(self, tokens: Tensor, memory: Memory) -> Tensor:
        embedded = embed_tokens(self.embedding, tokens, self.config, self.training, time_dim=0)
        if not self.config.feed_summary:
            return embedded
        summary = memory.start[:, -1, : self.config.hidden_size]
        summary = summary.repeat_interleave(tokens.size(1) // summary.size(0), dim=0)
        return torch.cat((embedded, summary.expand(tokens.size(0), -1, -1)), dim=-1)

    def _run_fused(self, inputs: Tensor, state: State, memory: Memory) -> DecoderOutput:
        """Run inputs (T, B, X) in one call of the RNN and one of attention; possible without feedback."""
        h, c = (part.squeeze(1).transpose(0, 1).contiguous() for part in (state.h, state.c))
        top = self.rnn(inputs, (h, c.to(h.dtype)))[0].transpose(0, 1)  # (B, T, H)
        position, weights, attention = torch.arange(inputs.size(0), device=inputs.device), None, None
        if self.self_attention is not None:
            top, weights = self.self_attention(top, top, visible=position < position.unsqueeze(1))
            weights = weights.unsqueeze(1)
        if self.attention is not None and self.attends_after:
            attention = self.attention(Queries(top, position.expand(top.shape[:2])), memory.source)
        return DecoderOutput(
            self._compute_readout(top, attention, inputs.transpose(0, 1)), attention, weights
        )

    def _run_stepwise(self, inputs: Tensor, state: State, memory: Memory) -> tuple[DecoderOutput, State]:
        """Run inputs (T, N, X) step by step, feeding back context or attentional vector; T or K is 1."""
        steps, (rows, beam), depth = inputs.size(0), state.position.shape, self.query_depth
        source, attention = memory.source, None
        attend, self_attend, layer = self.attention, self.self_attention, self.readout  # looked up once
        if attend is not None and steps > 1:
            source = join_gradients(attend, source, steps)
        has_upper = self.attends_before and steps > 1 and depth < len(self.rnn.layers)
        is_search = steps == 1 and not self.training and not torch.is_grad_enabled()
        joined_gates = self.joined_gates if is_search else None
        cells = StepwiseStack(self.rnn, inputs, depth if has_upper else None, joined_gates)
        if self.input_feeding:
            assert layer is not None
            product = StepwiseLinear(layer.bias.expand(steps, rows * beam, -1), layer.weight)
        h, c = (list(part.flatten(0, 1).unbind(1)) for part in (state.h, state.c))  # per layer: (N, H)
        _, _, feedback, position, past, attended = state
        outputs = []
        for t in range(steps):
            seen, fed = attended if isinstance(attended, Past) else None, feedback
            if attend is not None and self.attends_before:
                attention = attend(Queries(feedback, position, seen), source)
                fed = attention.context
            tops = cells(fed.flatten(0, 1), h, c)  # by layer
            top, weights = tops[-1].view(rows, beam, -1), None
            if self_attend is not None:
                now, visible = top.unsqueeze(2), past.new_ones(1, past.size(2), dtype=torch.bool)
                combined, weights = self_attend(now, past, visible)  # (B, K, 1, H) and (B, K, 1, t)
                top, past = combined.squeeze(2), torch.cat((past, now), dim=2)
                weights = pad(weights.transpose(1, 2), (0, steps - t))
            query = top if depth == len(tops) else tops[depth - 1].view(rows, beam, -1)
            if attend is not None and self.attends_after:
                attention = attend(Queries(query, position, seen), source)
            if seen is not None and attention is not None:
                attended = seen.add(attention.weights)
            if self.input_feeding:
                assert layer is not None
                assert attention is not None
                concatenated = torch.cat((top, attention.context), dim=-1).flatten(0, 1)
                top = feedback = layer.activate(product(concatenated)).view(rows, beam, -1)
            elif self.attends_before:
                feedback = query
            outputs.append(DecoderOutput(top, attention, weights))
            position = position + 1
        output: DecoderOutput = concatenate_steps(outputs)
        if has_upper:
            output = output._replace(readout=self._run_upper(output, h, c))
        if not self.input_feeding:
            inputs = inputs.view(steps, rows, beam, -1).transpose(0, 1).flatten(1, 2)  # (B, Q, X)
            output = output._replace(readout=self._compute_readout(output.readout, output.attention, inputs))
        next_h = torch.stack(h, dim=1).view(state.h.shape)
        next_c = torch.stack(c, dim=1).view(state.c.shape)
        return output, State(next_h, next_c, feedback, position, past, attended)

    def _run_upper(self, output: DecoderOutput, h: list[Tensor], c: list[Tensor]) -> Tensor:
        """Run the layers above the one that attends, with the outputs of that one as readout: (B, T, H).

        ``h`` and ``c`` are the states of all layers, (B, H) each; those of the upper layers are still the
        first ones.
        """
        assert output.attention is not None
        context = output.attention.context.transpose(0, 1) if self.rnn.context_size else None
        start = tuple(torch.stack(part[self.query_depth :]).to(h[0].dtype) for part in (h, c))
        top: Tensor = self.rnn(output.readout.transpose(0, 1), start, self.query_depth, context)[0]
        return top.transpose(0, 1)

    def _compute_readout(self, top: Tensor, attention: AttentionOutput | None, inputs: Tensor) -> Tensor:
        """Compute the readout (B, Q, D) of [top; c; inputs], without inputs (B, Q, X) if placed "after"."""
        parts = (top, attention.context) if attention is not None and self.context_to_readout else (top,)
        if self.readout is None:
            return torch.cat(parts, dim=-1)
        readout: Tensor = self.readout(torch.cat(parts if self.attends_after else (*parts, inputs), dim=-1))
        return readout


with suppress(ModuleNotFoundError):  # fast.py may be deleted
    from .fast import join_gates
