"""Recurrent cells, and stacks of their layers: all time steps in one call, or step by step.

Shapes: B sentences, T time steps, N batch rows, L layers, D directions (1 or 2), H hidden size of a layer in
one direction, X inputs known for all steps, F inputs fed back from the step before, C size of a context
vector, G gates (LSTM: 4 H, GRU: 3 H, plain RNN: H).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, layer_norm, linear, rms_norm
from torch.nn.utils.rnn import PackedSequence

from .config import Seq2SeqConfig
from .fast import StepwiseLinear, prefers_rectangle, run_cudnn_layer, run_padded_lstm, to_device
from .min_rnn import MIN_CELLS, MinCell, MinRNN, PaddedSteps

State = tuple[Tensor, ...]
"""h and, of an LSTM, c."""
Step = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""The next step of a layer: from its input (N, F), h and c (N, H) to the next h and c."""

FIRST_RESIDUAL, FIRST_RESIDUAL_PRE_NORM = 2, 1
"""The lowest layer with a residual connection, counted from 0, without and with ``pre_norm``."""
RMS_EPSILON = 1e-6
"""Added to the mean square in RMSNorm; torch's default depends on the dtype."""


def lstm_step(
    gates: Tensor, h: Tensor, c: Tensor, normalise: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Compute one step of an LSTM (Hochreiter and Schmidhuber 1997, forget gate of Gers et al. 2000).

    c' = sigmoid(f) * c + sigmoid(i) * tanh(g) and h' = sigmoid(o) * tanh(c').

    Args:
        gates: sums of the gates before their activation, in torch's order i, f, g, o, (N, 4 H).
        h: previous hidden state, (N, H), of which only the type is read.
        c: previous cell state, (N, H); float32 with 16-bit weights too, as a sum over all steps.
        normalise: applied to c' inside the second tanh; None: nothing is.

    Returns:
        The next hidden state h' and the next cell state c', (N, H) each, of the types of h and c.
    """
    if h.dtype != c.dtype:
        gates = gates.to(c.dtype)
    i, f, g, o = gates.chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return (o.sigmoid() * (c if normalise is None else normalise(c)).tanh()).to(h.dtype), c


def activate(gates: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Compute one step of an LSTM, or of a plain RNN, h' = tanh(gates) (Elman 1990), as G tells.

    Args:
        gates: W_x x + W_h h + b, (N, G).
        h: previous hidden state, (N, H).
        c: previous cell state, (N, H); of a plain RNN it is returned as it is.
    """
    return (gates.tanh(), c) if gates.size(-1) == h.size(-1) else lstm_step(gates, h, c)


def gru_step(inputs: Tensor, recurrent: Tensor, h: Tensor) -> Tensor:
    """Compute one step of a GRU (Cho et al. 2014, section 2.3) in the variant of ``torch.nn.GRU``.

    r = sigmoid(r_x + r_h), z = sigmoid(z_x + z_h), n = tanh(n_x + r * n_h) and h' = (1 - z) * n + z * h.
    The paper applies r to h before the matrix product; torch, like cuDNN, applies it after.

    Args:
        inputs: the input's share of the gates, r_x, z_x, n_x, (N, 3 H).
        recurrent: the state's share of the gates, r_h, z_h, n_h, (N, 3 H).
        h: previous hidden state, (N, H).

    Returns:
        The next hidden state h', (N, H).
    """
    r_x, z_x, n_x = inputs.chunk(3, dim=-1)
    r_h, z_h, n_h = recurrent.chunk(3, dim=-1)
    n = (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
    return n + (z_x + z_h).sigmoid() * (h - n)


# Cells: the weights of one direction of a layer.


class TorchCell(NamedTuple):
    """Of ``nn.LSTM``, ``nn.GRU`` or ``nn.RNN``."""

    weight_ih: Tensor
    """Weight of the inputs, (G, X)."""
    weight_hh: Tensor
    """Weight of the state, (G, H)."""
    input_bias: Tensor
    """Bias of the gates, of a GRU that of the inputs' product alone, (G,)."""
    recurrent_bias: Tensor | None
    """Bias of the state's product of a GRU, (G,); None in others, whose gates are sums of both products."""

    def advance(self, inputs: Tensor, recurrent: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step.

        Args:
            inputs: W_x x + b, (N, G).
            recurrent: W_h h (GRU: + b_h), (N, G).
            h: previous hidden state, (N, H).
            c: previous cell state, (N, H); of a GRU it is returned as it is.

        Returns:
            The next h and the next c, (N, H) each, of the types of h and c.
        """
        if self.recurrent_bias is None:
            return activate(inputs + recurrent, h, c)
        return gru_step(inputs, recurrent, h), c


class LayerNormLSTMCell(nn.Module):
    """i, f, g, o = LN(W_x x) + LN(W_h h) + b, c' = f * c + i * g, h' = o * tanh(LN(c')): Ba et al. 2016.

    The activations are those of an LSTM (``lstm_step``). LN subtracts the mean, divides by the standard
    deviation and multiplies by a gain. It normalises each gate on its own (Chen et al. 2018), where eq. 20
    of Ba et al. 2016 takes the four of them together. LN(c') has a bias of its own.
    """

    input_bias = recurrent_bias = None

    def __init__(self, input_size: int, size: int) -> None:
        """Create weights for inputs (..., input_size) and states (..., size)."""
        super().__init__()
        self.weight_ih = nn.Parameter(nn.init.xavier_uniform_(torch.empty(4 * size, input_size)))
        self.weight_hh = nn.Parameter(nn.init.xavier_uniform_(torch.empty(4 * size, size)))
        self.bias_ih = nn.Parameter(torch.zeros(4 * size))
        self.gain_ih = nn.Parameter(torch.ones(4, size))
        self.gain_hh = nn.Parameter(torch.ones(4, size))
        self.gain_c = nn.Parameter(torch.ones(size))
        self.bias_c = nn.Parameter(torch.zeros(size))

    def normalise_inputs(self, product: Tensor) -> Tensor:
        """Return LN(W_x x) + b for W_x x, (..., 4 H)."""
        return _normalise_gates(product, self.gain_ih) + self.bias_ih.to(product.dtype)

    def advance(self, inputs: Tensor, recurrent: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step; as of ``TorchCell``, but ``inputs`` are the output of ``normalise_inputs``."""
        gates = (inputs + _normalise_gates(recurrent, self.gain_hh)).to(c.dtype)
        return lstm_step(gates, h, c, self._normalise_cell)

    def _normalise_cell(self, c: Tensor) -> Tensor:
        return layer_norm(c, c.shape[-1:], self.gain_c.to(c.dtype)) + self.bias_c.to(c.dtype)


class LayerNormLSTM(nn.Module):
    """One layer of ``LayerNormLSTMCell`` in one or both directions, for ``run_step_by_step``."""

    def __init__(self, input_size: int, size: int, bidirectional: bool = False) -> None:
        """Create one cell per direction; ``size`` is H, that of one direction."""
        super().__init__()
        directions = 2 if bidirectional else 1
        self.cells = nn.ModuleList(LayerNormLSTMCell(input_size, size) for _ in range(directions))


def _normalise_gates(product: Tensor, gain: Tensor) -> Tensor:
    """Normalise each gate of (..., 4 H) on its own; the gains are (4, H)."""
    gates = product.view(*product.shape[:-1], 4, -1)
    return (layer_norm(gates, gates.shape[-1:]) * gain.to(gates.dtype)).flatten(-2)


Cell = TorchCell | LayerNormLSTMCell | MinCell


def cells_of(layers: nn.Module) -> Sequence[Cell]:
    """Return the cells of an RNN of torch, a ``LayerNormLSTM`` or ``MinRNN``, by layer and direction."""
    if not isinstance(layers, nn.RNNBase):
        return list(layers.cells)  # type: ignore[arg-type]
    if isinstance(layers, nn.GRU):
        return [TorchCell(*weights) for weights in layers.all_weights]
    return [TorchCell(w_x, w_h, b_x + b_h, None) for w_x, w_h, b_x, b_h in layers.all_weights]


# Stacks of layers.


def draw_mask(like: Tensor, probability: float) -> Tensor:
    """Draw a mask in the shape of ``like``: 0 with this probability, else 1 / (1 - probability)."""
    return dropout(torch.ones_like(like), probability, training=True)


def drop_units(
    x: Tensor, config: Seq2SeqConfig, training: bool, *, time_dim: int = 0, sizes: Tensor | None = None
) -> Tensor:
    """Drop units of embeddings, or of the input of a layer, in training.

    Args:
        x: (T, N, F), (N, T, F), or the entries of a packed sequence, (tokens, F).
        config: ``dropout``, and whether all steps of a sentence share a mask.
        training: nothing is dropped outside training.
        time_dim: dimension of T.
        sizes: the ``batch_sizes`` of a packed sequence.
    """
    if not (training and config.regularisation.variational):
        return dropout(x, config.dropout, training)
    if sizes is None:
        return x * draw_mask(x.narrow(time_dim, 0, 1), config.dropout)
    is_real = torch.arange(int(sizes[0])) < sizes.unsqueeze(1)  # (T, B)
    rows = to_device(is_real.nonzero()[:, 1], x.device)
    return x * draw_mask(x[: int(sizes[0])], config.dropout).index_select(0, rows)


def embed_tokens(
    module: nn.Embedding, tokens: Tensor, config: Seq2SeqConfig, training: bool, time_dim: int
) -> Tensor:
    """Look up the embeddings (B, T, F) or (T, B, F) of tokens, and drop units and words of them in training.

    Args:
        module: the embeddings.
        tokens: token ids, (B, T) or (T, B).
        config: the probabilities.
        training: nothing is dropped outside training.
        time_dim: dimension of T.
    """
    embedded = drop_units(module(tokens), config, training, time_dim=time_dim)
    if training and config.regularisation.word_dropout:
        embedded = embedded * draw_mask(embedded[..., :1], config.regularisation.word_dropout)
    return embedded


StackSteps = TypeVar("StackSteps", Tensor, PackedSequence, PaddedSteps)


class RecurrentStack(nn.Module):
    """Stacked layers of one kind of cell, with residual connections from the third layer on.

    x(i) = x(i-1) + layer(i)(dropout(x(i-1))) for i >= 3 (Wu et al. 2016, section 3.1); the first two layers
    have no residual connection. Dropout is applied to the input of a layer, not to the residual branch.

    With ``pre_norm`` x(i) = x(i-1) + layer(i)(dropout(RMSNorm(x(i-1)))) for i >= 2, and the output is
    RMSNorm(x(L)) (RMSNorm: Zhang and Sennrich 2019). Input and output of the bottom layer differ in size, so
    that it has no residual connection.
    """

    def __init__(
        self,
        config: Seq2SeqConfig,
        input_size: int,
        size: int,
        bidirectional: bool = False,
        *,
        num_layers: int | None = None,
        both_at_bottom: bool = False,
        context_size: int = 0,
    ) -> None:
        """Create the layers.

        Args:
            config: cell, number of layers and dropout.
            input_size: number of input features, of the bottom layer with those fed back to it.
            size: H, the hidden size of a layer in one direction.
            bidirectional: read in both directions and concatenate their outputs.
            num_layers: L if not that of ``config``.
            both_at_bottom: the bottom layer alone reads in both directions; of its final states, only those
                of the direction from the right are returned, as in Luong et al. 2017 (code).
            context_size: C, the size of a vector that all layers but the bottom one read too.
        """
        super().__init__()
        self.is_lstm, self.config, self.size = config.has_cell_state, config, size
        self.both_at_bottom, self.context_size = both_at_bottom, context_size
        layers, width = num_layers or config.num_layers, (2 if bidirectional else 1) * size
        widths = [input_size] + [width + context_size] * (layers - 1)
        if both_at_bottom:
            widths[1] += size
        both = [bidirectional or (both_at_bottom and layer == 0) for layer in range(layers)]
        built = [_build_layer(config.cell, *each, size) for each in zip(widths, both, strict=True)]
        self.layers = nn.ModuleList(built)
        self.gain = nn.Parameter(torch.ones(layers, width)) if config.pre_norm else None
        """Gain of the norm above each layer."""
        self.first_residual = FIRST_RESIDUAL_PRE_NORM if config.pre_norm else FIRST_RESIDUAL

    @property
    def cells(self) -> list[Cell]:
        """The cells, from the bottom up, each layer's by direction."""
        return [cell for layer in self.layers for cell in cells_of(layer)]

    def forward(
        self, x: StackSteps, start: State | None = None, first: int = 0, context: Tensor | None = None
    ) -> tuple[StackSteps, State]:
        """Run all layers, or the upper ones, over all time steps.

        Args:
            x: inputs (T, N, input_size), packed, with all steps real, or with padding; of the layer ``first``
                before its dropout.
            start: initial h and (LSTM) c of these layers, (layers * D, N, H) each; None: 0, as it must be if
                packed.
            first: the lowest layer to run, counted from 0.
            context: what layers above the bottom one read too, (T, N, C).

        Returns:
            The outputs (T, N, D * H), in the form of ``x``, and the final states, shaped as ``start``.
        """
        entries, layers, finals = x if isinstance(x, Tensor) else x.data, self.layers[first:], []
        starts: list[State | None] = [None] * len(layers)
        if start is not None:
            starts = list(zip(*(part.chunk(len(layers)) for part in start), strict=True))
        for i, layer in enumerate(layers, start=first):
            below = entries
            if i:
                sizes = x.batch_sizes if isinstance(x, PackedSequence) else None
                drop = partial(drop_units, config=self.config, training=self.training, sizes=sizes)
                below = self.prepare_input(i, below, drop, context)
            steps, final = self._run(layer, _as(x, below), starts[i - first])
            entries = self.add_residual(i, entries, steps if isinstance(steps, Tensor) else steps.data)
            finals.append(tuple(part[-1:] for part in final) if self.both_at_bottom and i == 0 else final)
        if self.gain is not None:  # and so all layers are run: none below the top one attends
            entries = self.normalise(len(self.gain), entries)
        return _as(x, entries), tuple(torch.cat(parts) for parts in zip(*finals, strict=True))

    def prepare_input(
        self, layer: int, x: Tensor, drop: Callable[[Tensor], Tensor], context: Tensor | None
    ) -> Tensor:
        """Return what a layer above the bottom one reads of the output x of those below and the context."""
        x = drop(x if self.gain is None else self.normalise(layer, x))
        return x if context is None else torch.cat((x, context.to(x.dtype)), dim=-1)

    def add_residual(self, layer: int, x: Tensor, output: Tensor) -> Tensor:
        """Return the output of a layer over x, from the first residual one on with x added."""
        return output if layer < self.first_residual else x + output

    def normalise(self, layer: int, x: Tensor) -> Tensor:
        """Apply the RMSNorm above the lowest layers.

        Args:
            layer: the number of these layers, at least 1.
            x: their output, (..., D * H); of lower precision than the gain under autocast.
        """
        assert self.gain is not None
        return rms_norm(x.to(self.gain.dtype), x.shape[-1:], self.gain[layer - 1], RMS_EPSILON)

    def _run(self, layer: nn.Module, x: StackSteps, state: State | None) -> tuple[StackSteps, State]:
        """Call one of the layers; a state h alone is a bare tensor in torch, a tuple of one here."""
        recurrent_dropout = self.config.regularisation.recurrent_dropout if self.training else 0.0
        if not isinstance(layer, MinRNN) and not isinstance(x, PaddedSteps):
            packed_gru = isinstance(layer, nn.GRU) and isinstance(x, PackedSequence)
            slow = packed_gru and torch.is_grad_enabled() and not x.data.is_cuda
            if recurrent_dropout or isinstance(layer, LayerNormLSTM) or slow:
                return run_step_by_step(layer, x, state, recurrent_dropout)
            if x.data.is_cuda:
                return run_cudnn_layer(layer, x, state)  # type: ignore[arg-type]
            if isinstance(layer, nn.LSTM) and isinstance(x, PackedSequence) and prefers_rectangle(x):
                return run_padded_lstm(layer, x)
            state = state if state is None or self.is_lstm else state[0]  # type: ignore[assignment]
        output, final = layer(x, state)
        return output, final if isinstance(final, tuple) else (final,)


def _build_layer(cell: str, input_size: int, bidirectional: bool, size: int) -> nn.Module:
    """Build one layer; ``size`` is of one direction."""
    if cell in MIN_CELLS:
        return MinRNN(input_size, size, MIN_CELLS[cell], bidirectional)
    if cell == "layer-norm-lstm":
        return LayerNormLSTM(input_size, size, bidirectional)
    kind: Callable[..., nn.Module] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[cell]
    return kind(input_size, size, bidirectional=bidirectional)


def _as(x: StackSteps, entries: Tensor) -> StackSteps:
    """Pack ``entries`` as ``x`` is packed; return them unchanged if ``x`` is not."""
    return entries if isinstance(x, Tensor) else x._replace(data=entries)


# Loops over time steps.


Steps = TypeVar("Steps", Tensor, PackedSequence)


def run_step_by_step(
    rnn: nn.Module, x: Steps, state: State | None, recurrent_dropout: float
) -> tuple[Steps, State]:
    """Run one layer in all its directions, for what torch's own layers cannot do.

    That is layer normalisation inside the cell, dropout of the recurrent state, and gradients of a GRU over
    packed steps on a processor in a time that grows linearly with the length (see fast.py on LSTMs).

    Args:
        rnn: one layer of torch, or ``LayerNormLSTM``.
        x: inputs, packed or (T, N, X).
        state: initial h and (LSTM) c, (D, N, H) each; None: 0. Only for inputs that are not packed.
        recurrent_dropout: probability to drop a unit of h in the recurrent product, at all steps alike (Gal
            and Ghahramani 2016); 0 outside training.

    Returns:
        The outputs, packed as ``x`` is or (T, N, D * H), and the final states, shaped as ``state``.
    """
    packed = x if isinstance(x, PackedSequence) else None
    entries = x.data if isinstance(x, PackedSequence) else x.flatten(0, 1)
    assert packed is None or state is None
    sizes = [x.size(1)] * x.size(0) if isinstance(x, Tensor) else x.batch_sizes.tolist()
    outputs, finals = [], []
    for direction, cell in enumerate(cells_of(rnn)):
        assert not isinstance(cell, MinCell)
        product = linear(entries, cell.weight_ih, cell.input_bias)
        if isinstance(cell, LayerNormLSTMCell):
            product = cell.normalise_inputs(product)
        inputs = torch.split(product, sizes)
        h = product.new_zeros(sizes[0], cell.weight_hh.size(1))
        if state is not None:
            h = state[0][direction].to(h.dtype)
        c = h if state is None or len(state) == 1 else state[1][direction]
        c = c.to(torch.promote_types(c.dtype, torch.float32))
        mask = draw_mask(h, recurrent_dropout) if recurrent_dropout else None
        steps: list[Tensor] = [h] * len(sizes)
        for t in range(len(sizes)) if direction == 0 else reversed(range(len(sizes))):
            n = sizes[t]
            kept = h[:n] if mask is None else h[:n] * mask[:n]
            recurrent = linear(kept, cell.weight_hh, cell.recurrent_bias)
            steps[t], next_c = cell.advance(inputs[t], recurrent, h[:n], c[:n])
            # Sentences that have ended, or, from the right, have not begun, keep their state.
            h = steps[t] if n == len(h) else torch.cat((steps[t], h[n:]))
            c = next_c if n == len(c) else torch.cat((next_c, c[n:]))
        outputs.append(torch.cat(steps))
        finals.append((h,) if isinstance(rnn, nn.GRU | nn.RNN) else (h, c.to(h.dtype)))
    final = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
    joined = torch.cat(outputs, dim=-1)
    if packed is None:
        return joined.view(len(sizes), sizes[0], -1), final
    if packed.unsorted_indices is not None:
        final = tuple(part.index_select(1, packed.unsorted_indices) for part in final)
    return packed._replace(data=joined), final


def join_gates(stack: RecurrentStack) -> nn.ModuleList | None:
    """Join the weights of each layer of an LSTM or plain RNN to one, W [x; h] + b, for the steps of a search.

    They are copies, as large as the weights, which later changes of the stack's weights do not reach. Other
    cells have none.
    """
    layers = []
    for cell in stack.cells:
        if not isinstance(cell, TorchCell) or cell.recurrent_bias is not None:
            return None
        weight = torch.cat((cell.weight_ih, cell.weight_hh), dim=1).detach()
        joined = nn.Linear(weight.size(1), weight.size(0), device="meta")
        joined.weight = nn.Parameter(weight, requires_grad=False)
        joined.bias = nn.Parameter(cell.input_bias.detach(), requires_grad=False)
        layers.append(joined)
    return nn.ModuleList(layers)


def _join_layer(joined: nn.Module, known: tuple[Tensor, ...]) -> Step:
    """Return a step of a search by ``join_gates``; ``known`` are the inputs (N, X) that are not fed back."""
    return lambda x, h, c: activate(joined(torch.cat((*known, x, h), dim=-1)), h, c)


def _prepare_layer(cell: Cell, offsets: Tensor, input_weight: Tensor, mask: Tensor | None) -> Step:
    """Return the next step of a layer in a run over T steps.

    Args:
        cell: the cell.
        offsets: share of the inputs' product that is known for all steps, (T, N, G).
        input_weight: weight of the inputs that are known step by step only, (G, F).
        mask: dropout of h in the recurrent product, (N, H).
    """
    if isinstance(cell, TorchCell) and cell.recurrent_bias is None:  # its gates are plain sums
        gates = StepwiseLinear(offsets, input_weight, cell.weight_hh)
        return lambda x, h, c: activate(gates(x, h if mask is None else h * mask), h, c)
    inputs = StepwiseLinear(offsets, input_weight)
    if isinstance(cell, MinCell):
        return lambda x, h, c: (cell.advance(inputs(x), h), c)
    recurrent = StepwiseLinear(_known_offsets(cell.recurrent_bias, offsets), cell.weight_hh)

    def step(x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        product = inputs(x)
        if isinstance(cell, LayerNormLSTMCell):
            product = cell.normalise_inputs(product)
        return cell.advance(product, recurrent(h if mask is None else h * mask), h, c)

    return step


class StepwiseStack:
    """A ``RecurrentStack`` of one direction, run step by step so that outputs can be fed back as inputs.

    The first X input features are known for all steps, and their share of the gates is computed in one matrix
    product. The last F features are fed back step by step.
    """

    def __init__(
        self,
        stack: RecurrentStack,
        inputs: Tensor,
        depth: int | None = None,
        joined: nn.ModuleList | None = None,
    ) -> None:
        """Prepare one run.

        Args:
            stack: the layers.
            inputs: inputs known for all steps, (T, N, X).
            depth: number of the lowest layers to run; None: all.
            joined: output of ``join_gates``, for one step without gradients and dropout.
        """
        self.stack = stack
        each_step = partial(dropout, p=stack.config.dropout, training=stack.training)
        self.drops: list[Callable[[Tensor], Tensor]] = [each_step] * len(stack.layers)
        """Dropout of the input of each layer, (N, H)."""
        if joined is not None:
            self.layers = [_join_layer(layer, () if i else (inputs[0],)) for i, layer in enumerate(joined)]
            return
        cells, size, settings = stack.cells[:depth], inputs.size(-1), stack.config.regularisation
        weight = cells[0].weight_ih
        offsets = linear(inputs, weight[:, :size], cells[0].input_bias)
        recurrent_masks: list[Tensor | None] = [None] * len(cells)
        if stack.training and (settings.recurrent_dropout or settings.variational):
            units = offsets.new_ones(inputs.size(1), stack.size)
            if settings.recurrent_dropout:
                recurrent_masks = [draw_mask(units, settings.recurrent_dropout) for _ in cells]
            if settings.variational:
                self.drops = [partial(torch.mul, draw_mask(units, stack.config.dropout)) for _ in cells]
        self.layers = [_prepare_layer(cells[0], offsets, weight[:, size:], recurrent_masks[0])]
        for cell, mask in zip(cells[1:], recurrent_masks[1:], strict=True):
            known = _known_offsets(cell.input_bias, offsets)
            self.layers.append(_prepare_layer(cell, known, cell.weight_ih, mask))

    def __call__(self, feedback: Tensor, h: list[Tensor], c: list[Tensor]) -> list[Tensor]:
        """Compute the next step.

        Args:
            feedback: inputs that were computed in the loop, (N, F); all layers read them if the stack has a
                ``context_size``.
            h: hidden states of the layers, (N, H) each; replaced in place.
            c: cell states of the layers, (N, H) each; replaced in place by an LSTM, ignored by others.

        Returns:
            The outputs of the layers, (N, H) each.
        """
        stack, x, outputs = self.stack, feedback, []
        context = feedback if stack.context_size else None
        for i, layer in enumerate(self.layers):
            below = stack.prepare_input(i, x, self.drops[i], context) if i else x
            h[i], c[i] = layer(below, h[i], c[i])
            x = stack.add_residual(i, x, h[i])
            outputs.append(x)
        if stack.gain is not None:
            outputs[-1] = stack.normalise(len(outputs), x)
        return outputs


def _known_offsets(bias: Tensor | None, like: Tensor) -> Tensor:
    """Return a bias (G,), or 0, for all steps and rows, in the shape and type of ``like``, (T, N, G)."""
    return (like.new_zeros(1) if bias is None else bias.to(like.dtype)).expand_as(like)
