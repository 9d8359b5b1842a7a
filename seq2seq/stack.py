"""Recurrent cells, and stacks of their layers: all time steps in one call, or step by step.

Shapes: B sentences, T time steps, N batch rows, L layers, D directions (1 or 2), H hidden size of a layer in
one direction, X inputs known for all steps, F inputs fed back from the step before, C size of a context
vector, G gates (LSTM: 4 H, GRU: 3 H).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, layer_norm, linear, rms_norm
from torch.nn.utils.rnn import PackedSequence

from .config import Seq2SeqConfig
from .fast import PaddedSteps, StepwiseLinear, run_layer_by_layer, run_padded
from .min_rnn import MIN_CELLS, HiddenAndCell, MinCell, MinRNN

StackSteps = TypeVar("StackSteps", Tensor, PackedSequence, PaddedSteps)
State = tuple[Tensor, ...]
"""h and, of an LSTM, c."""

MAX_PLAIN_LAYERS = 2
"""Number of layers at the bottom that have no residual connection."""
RMS_EPSILON = 1e-6
"""Added to the mean square in RMSNorm; torch's default depends on the dtype."""


def lstm_step(
    gates: Tensor, c: Tensor, normalise: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Compute one step of an LSTM (Hochreiter and Schmidhuber 1997, forget gate of Gers et al. 2000).

    c' = sigmoid(f) * c + sigmoid(i) * tanh(g) and h' = sigmoid(o) * tanh(c').

    Args:
        gates: sums of the gates before their activation, in torch's order i, f, g, o, (N, 4 H).
        c: previous cell state, (N, H).
        normalise: applied to c' inside the second tanh; None: nothing is.

    Returns:
        The next hidden state h' and the next cell state c', (N, H) each.
    """
    i, f, g, o = gates.chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * (c if normalise is None else normalise(c)).tanh(), c


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


# Cells. Each has ``weight_ih`` and ``input_bias`` of the inputs' product, ``weight_hh`` and
# ``recurrent_bias`` of the state's, and ``advance``, which computes one step from these products. With 16-bit
# weights c stays float32, as a sum over all steps.


class TorchCell(NamedTuple):
    """One direction of a layer of ``nn.LSTM`` or ``nn.GRU``."""

    weight_ih: Tensor
    """Weight of the inputs, (G, X)."""
    weight_hh: Tensor
    """Weight of the state, (G, H)."""
    input_bias: Tensor
    """Bias of the gates, of a GRU that of the inputs' product alone, (G,)."""
    recurrent_bias: Tensor | None
    """Bias of the state's product of a GRU, (G,); None in an LSTM."""

    @property
    def adds_products(self) -> bool:
        """Whether the gates are sums of both products: an LSTM; a GRU multiplies a part of the second."""
        return self.recurrent_bias is None

    def advance(self, inputs: Tensor, recurrent: Tensor | None, h: Tensor, c: Tensor) -> HiddenAndCell:
        """Compute one step.

        Args:
            inputs: W_x x + b, (N, G).
            recurrent: W_h h (GRU: + b_h), with ``inputs`` added to it if the cell ``adds_products``, (N, G).
            h: previous hidden state, (N, H).
            c: previous cell state, (N, H); of a GRU it is returned as it is.

        Returns:
            The next h and the next c, (N, H) each, of the types of h and c.
        """
        assert recurrent is not None
        if not self.adds_products:
            return gru_step(inputs, recurrent, h), c
        next_h, next_c = lstm_step(recurrent if h.dtype == c.dtype else recurrent.to(c.dtype), c)
        return next_h.to(h.dtype), next_c


class LayerNormLSTMCell(nn.Module):
    """i, f, g, o = LN(W_x x) + LN(W_h h) + b, c' = f * c + i * g, h' = o * tanh(LN(c')): Ba et al. 2016.

    The activations are those of an LSTM (``lstm_step``). LN subtracts the mean, divides by the standard
    deviation and multiplies by a gain. It normalises each gate on its own (Chen et al. 2018), where eq. 20
    of Ba et al. 2016 takes the four of them together. LN(c') has a bias of its own.
    """

    adds_products = False
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

    def advance(self, inputs: Tensor, recurrent: Tensor | None, h: Tensor, c: Tensor) -> HiddenAndCell:
        """Compute one step; as of ``TorchCell``, but ``inputs`` are the output of ``normalise_inputs``."""
        assert recurrent is not None
        gates = (inputs + _normalise_gates(recurrent, self.gain_hh)).to(c.dtype)
        next_h, next_c = lstm_step(gates, c, self._normalise_cell)
        return next_h.to(h.dtype), next_c

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
    """Return the cells of an LSTM, GRU, ``LayerNormLSTM`` or ``MinRNN``, by layer and direction."""
    if not isinstance(layers, nn.RNNBase):
        return list(layers.cells)  # type: ignore[arg-type]
    if layers.mode == "LSTM":
        return [TorchCell(w_x, w_h, b_x + b_h, None) for w_x, w_h, b_x, b_h in layers.all_weights]
    return [TorchCell(*weights) for weights in layers.all_weights]


# Stacks of layers.


def draw_mask(like: Tensor, probability: float) -> Tensor:
    """Draw a mask in the shape of ``like``: 0 with this probability, else 1 / (1 - probability)."""
    return dropout(torch.ones_like(like), probability, training=True)


def drop_units(x: Tensor | PackedSequence | PaddedSteps, config: Seq2SeqConfig, training: bool) -> Tensor:
    """Drop units of the input of a layer; return the entries of ``x``, packed or (T, N, F), with dropout.

    Args:
        x: packed, padded or (T, N, F).
        config: ``dropout``, and whether all steps of a sentence share a mask.
        training: nothing is dropped outside training.
    """
    entries = _entries(x)
    if not (training and config.regularisation.variational and config.dropout):
        return dropout(entries, config.dropout, training)
    if isinstance(x, PackedSequence):
        sizes = x.batch_sizes.tolist()
        rows = torch.cat([torch.arange(n) for n in sizes]).to(entries.device)
        mask = draw_mask(entries[: sizes[0]], config.dropout)
        return entries * mask.index_select(0, rows)
    return entries * draw_mask(entries[:1], config.dropout)


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
    settings = config.regularisation
    embedded: Tensor = module(tokens)
    if training and settings.variational and config.dropout:
        embedded = embedded * draw_mask(embedded.narrow(time_dim, 0, 1), config.dropout)
    else:
        embedded = dropout(embedded, config.dropout, training)
    if training and settings.word_dropout:
        embedded = embedded * draw_mask(embedded[..., :1], settings.word_dropout)
    return embedded


class RecurrentStack(nn.Module):
    """Stacked layers of one kind of cell, with residual connections from the third layer on.

    x(i) = x(i-1) + layer(i)(dropout(x(i-1))) for i >= 3 (Wu et al. 2016, section 3.1); the first two layers
    have no residual connection. Dropout is applied to the input of a layer, not to the residual branch. The
    layers without residual connection are one module of torch, unless torch has no such layers or ``apart``.

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
        apart: bool = False,
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
            apart: whether single layers are run by ``run_layers``.
        """
        super().__init__()
        layers = config.num_layers if num_layers is None else num_layers
        is_torch, settings = config.cell in ("lstm", "gru"), config.regularisation
        apart |= both_at_bottom or context_size > 0 or not is_torch
        apart |= settings.variational or settings.recurrent_dropout > 0
        self.num_plain = 1 if apart else min(layers, MAX_PLAIN_LAYERS)
        self.is_lstm, self.config, self.size = config.has_cell_state, config, size
        self.both_at_bottom, self.context_size = both_at_bottom, context_size
        directions = 2 if bidirectional else 1
        self.plain = _build_layers(
            config, input_size, size, bidirectional or both_at_bottom, num_layers=self.num_plain
        )
        widths = [directions * size + context_size] * (layers - self.num_plain)
        if both_at_bottom:
            widths[0] += size
        self.residual = nn.ModuleList(_build_layers(config, width, size, bidirectional) for width in widths)
        self.gain = nn.Parameter(torch.ones(layers, directions * size)) if config.pre_norm else None
        """Gain of the norm above each layer."""
        self.max_plain = 1 if config.pre_norm else MAX_PLAIN_LAYERS
        self.state_rows = [self.num_plain * directions] + [directions] * len(self.residual)
        """Number of rows of h that belong to each module; their sum is L * D."""

    @property
    def cells(self) -> list[Cell]:
        """The cells, from the bottom up, each layer's by direction."""
        return [cell for module in (self.plain, *self.residual) for cell in cells_of(module)]

    def forward(self, x: StackSteps, start: State | None = None) -> tuple[StackSteps, State]:
        """Run all layers over all time steps.

        Args:
            x: inputs (T, N, input_size), packed, with all steps real, or with padding.
            start: initial h and (LSTM) c, (L * D, N, H) each; 0 if left out, as it must be with padding.

        Returns:
            The outputs (T, N, D * H), in the form of ``x``, and the final states, shaped as ``start``.
        """
        return self.run_layers(x, start, slice(None))

    def run_layers(
        self, x: StackSteps, start: State | None, part: slice, context: Tensor | None = None
    ) -> tuple[StackSteps, State]:
        """Run some neighbouring layers over all time steps.

        Args:
            x: inputs of the lowest of them, before its dropout.
            start: their initial states, as for ``forward``.
            part: the layers, counted from 0 at the bottom; all of them, unless each is a module of its own.
            context: what layers above the bottom one read too, (T, N, C).

        Returns:
            The output of the highest of them and their final states, as of ``forward``.
        """
        modules = list(enumerate((self.plain, *self.residual)))[part]
        starts: list[State | None] = [None] * len(modules)
        if start is not None:
            rows = self.state_rows[part]
            starts = list(zip(*(state.split_with_sizes(rows) for state in start), strict=True))
        finals = []
        for (index, rnn), state in zip(modules, starts, strict=True):
            if index == 0:
                x, final = self._run(rnn, x, state)
                final = tuple(each[-1:] for each in final) if self.both_at_bottom else final
            else:
                below = x if self.gain is None else _packed_like(x, self.normalise(index, _entries(x)))
                dropped = drop_units(below, self.config, self.training)
                if context is not None:
                    dropped = torch.cat((dropped, context.to(dropped.dtype)), dim=-1)
                output, final = self._run(rnn, _packed_like(x, dropped), state)
                if index + self.num_plain > self.max_plain:
                    output = _packed_like(x, _entries(x) + _entries(output))
                x = output
            finals.append(final)
        if self.gain is not None:  # and so all layers are run: none below the top one attends
            x = _packed_like(x, self.normalise(len(self.gain), _entries(x)))
        return x, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))

    def normalise(self, layer: int, x: Tensor) -> Tensor:
        """Apply the RMSNorm above the lowest layers.

        Args:
            layer: the number of these layers, at least 1.
            x: their output, (..., D * H); of lower precision than the gain under autocast.
        """
        assert self.gain is not None
        return rms_norm(x.to(self.gain.dtype), x.shape[-1:], self.gain[layer - 1], RMS_EPSILON)

    def _run(self, rnn: nn.Module, x: StackSteps, state: State | None) -> tuple[StackSteps, State]:
        """Call one of the modules; the state of a GRU is a bare tensor in torch, a tuple of one here."""
        if isinstance(rnn, MinRNN):
            assert not isinstance(x, PackedSequence)  # encoders do not pack for these cells
            result: tuple[StackSteps, State] = rnn(x, state)
            return result
        recurrent_dropout = self.config.regularisation.recurrent_dropout if self.training else 0.0
        in_a_loop = isinstance(rnn, LayerNormLSTM) or recurrent_dropout > 0
        if isinstance(x, PaddedSteps):
            if in_a_loop or state is not None:
                raise NotImplementedError(
                    "encoders with layer-normalised cells or recurrent_dropout cannot be traced or captured"
                )
            assert isinstance(rnn, nn.RNNBase)
            return run_padded(rnn, x)
        if in_a_loop:
            return run_step_by_step(rnn, x, state, recurrent_dropout)
        if _entries(x).is_cuda:
            assert isinstance(rnn, nn.RNNBase)
            return run_layer_by_layer(rnn, x, state)
        output, final = rnn(x, state if state is None or self.is_lstm else state[0])
        return output, final if self.is_lstm else (final,)


def _build_layers(
    config: Seq2SeqConfig, input_size: int, size: int, bidirectional: bool, num_layers: int = 1
) -> nn.Module:
    """Build layers of torch as one module, or one layer of another cell; ``size`` is of one direction."""
    if config.cell in MIN_CELLS:
        return MinRNN(input_size, size, MIN_CELLS[config.cell], bidirectional)
    if config.cell == "layer-norm-lstm":
        return LayerNormLSTM(input_size, size, bidirectional)
    between = config.dropout if num_layers > 1 else 0.0
    kind = nn.LSTM if config.cell == "lstm" else nn.GRU
    return kind(input_size, size, num_layers, dropout=between, bidirectional=bidirectional)


def _entries(x: Tensor | PackedSequence | PaddedSteps) -> Tensor:
    return x if isinstance(x, Tensor) else x.data


def _packed_like(x: StackSteps, entries: Tensor) -> StackSteps:
    """Pack ``entries`` as ``x`` is packed; return them unchanged if ``x`` is not."""
    return entries if isinstance(x, Tensor) else x._replace(data=entries)


# Loops over time steps.


Steps = TypeVar("Steps", Tensor, PackedSequence)


def run_step_by_step(
    rnn: nn.Module, x: Steps, state: State | None, recurrent_dropout: float
) -> tuple[Steps, State]:
    """Run one layer in all its directions, for what torch's own layers cannot do.

    That is layer normalisation inside the cell, and dropout of the recurrent state.

    Args:
        rnn: one layer of an LSTM or GRU, or ``LayerNormLSTM``.
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
        assert cell.weight_hh is not None
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
            if cell.adds_products:
                recurrent = inputs[t] + recurrent
            steps[t], next_c = cell.advance(inputs[t], recurrent, h[:n], c[:n])
            # Sentences that have ended, or, from the right, have not begun, keep their state.
            h = steps[t] if n == len(h) else torch.cat((steps[t], h[n:]))
            c = next_c if n == len(c) else torch.cat((next_c, c[n:]))
        outputs.append(torch.cat(steps))
        finals.append((h,) if isinstance(rnn, nn.GRU) else (h, c.to(h.dtype)))
    final = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
    joined = torch.cat(outputs, dim=-1)
    if packed is None:
        return joined.view(len(sizes), sizes[0], -1), final
    if packed.unsorted_indices is not None:
        final = tuple(part.index_select(1, packed.unsorted_indices) for part in final)
    return packed._replace(data=joined), final


def join_gates(stack: RecurrentStack) -> nn.ModuleList | None:
    """Join the weights of each layer of an LSTM to one, W [x; h] + b, for the steps of a search.

    They are copies, as large as the weights, which later changes of the stack's weights do not reach. Other
    cells have none.
    """
    layers = []
    for cell in stack.cells:
        if not cell.adds_products:
            return None
        assert cell.weight_hh is not None
        assert cell.input_bias is not None
        weight = torch.cat((cell.weight_ih, cell.weight_hh), dim=1).detach()
        joined = nn.Linear(weight.size(1), weight.size(0), device="meta")
        joined.weight = nn.Parameter(weight, requires_grad=False)
        joined.bias = nn.Parameter(cell.input_bias.detach(), requires_grad=False)
        layers.append(joined)
    return nn.ModuleList(layers)


class _StepwiseLayer:
    """One layer of a ``StepwiseStack``."""

    mask: Tensor | None = None
    """Dropout of h in the recurrent product, (N, H)."""

    def __init__(self, cell: Cell, offsets: Tensor, input_weight: Tensor) -> None:
        """Prepare one run over T steps.

        Args:
            cell: the cell.
            offsets: share of the inputs' product that is known for all steps, (T, N, G).
            input_weight: weight of the inputs that are known step by step only, (G, F).
        """
        self.cell, self.recurrent = cell, None
        self.normalise = cell.normalise_inputs if isinstance(cell, LayerNormLSTMCell) else None
        self.inputs = StepwiseLinear(input_weight, offsets)
        self.input_offsets = self.recurrent_offsets = self.inputs.offsets.unbind()
        if cell.weight_hh is None:
            return
        # The gates of an LSTM are plain sums, so the second product is added to the first.
        base = self.inputs.offsets
        if not cell.adds_products:
            base = _known_offsets(cell.recurrent_bias, offsets)
        self.recurrent = StepwiseLinear(cell.weight_hh, base)
        self.recurrent_offsets = self.recurrent.offsets.unbind()
        if cell.adds_products:
            self.input_offsets = self.recurrent_offsets

    def __call__(self, t: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute step ``t`` from x (N, F), h and c (N, H); return the next h and c."""
        inputs = self.inputs(self.input_offsets[t], x)
        if self.recurrent is None:
            return self.cell.advance(inputs, None, h, c)
        kept = h if self.mask is None else h * self.mask
        product = self.recurrent(inputs if self.cell.adds_products else self.recurrent_offsets[t], kept)
        return self.cell.advance(inputs if self.normalise is None else self.normalise(inputs), product, h, c)


class _JoinedLayer:
    """One layer of a ``StepwiseStack`` for a single step of a search, by ``join_gates``."""

    def __init__(self, joined: nn.Module, known: tuple[Tensor, ...]) -> None:
        """Prepare a step; ``known`` are the inputs (N, X) of the bottom layer that are not fed back."""
        self.joined, self.known = joined, known

    def __call__(self, t: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the step from x (N, F), h and c (N, H); return the next h and c."""
        gates = self.joined(torch.cat((*self.known, x, h), dim=-1))
        next_h, next_c = lstm_step(gates if h.dtype == c.dtype else gates.to(c.dtype), c)
        return next_h.to(h.dtype), next_c


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
        self.masks: list[Tensor] = []
        self.layers: Sequence[Callable[[int, Tensor, Tensor, Tensor], HiddenAndCell]]
        if joined is not None:
            self.layers = [_JoinedLayer(layer, () if i else (inputs[0],)) for i, layer in enumerate(joined)]
            return
        bottom, *upper = stack.cells[:depth]
        size = inputs.size(-1)
        offsets = linear(inputs, bottom.weight_ih[:, :size], bottom.input_bias)
        layers = [_StepwiseLayer(bottom, offsets, bottom.weight_ih[:, size:])]
        for cell in upper:
            layers.append(_StepwiseLayer(cell, _known_offsets(cell.input_bias, offsets), cell.weight_ih))
        self.layers = layers
        settings = stack.config.regularisation
        if stack.training and (settings.recurrent_dropout or settings.variational):  # drop alike at all steps
            units = offsets.new_ones(inputs.size(1), stack.size)
            if settings.recurrent_dropout:
                for layer in layers:
                    layer.mask = draw_mask(units, settings.recurrent_dropout)
            if settings.variational:
                self.masks = [draw_mask(units, stack.config.dropout) for _ in layers]

    def __call__(self, t: int, feedback: Tensor, h: list[Tensor], c: list[Tensor]) -> list[Tensor]:
        """Compute step ``t``; the steps must be called once each, in order.

        Args:
            t: the time step.
            feedback: inputs that were computed in the loop, (N, F); all layers read them if the stack has a
                ``context_size``.
            h: hidden states of the layers, (N, H) each; replaced in place.
            c: cell states of the layers, (N, H) each; replaced in place by an LSTM, ignored by others.

        Returns:
            The outputs of the layers, (N, H) each.
        """
        stack, x, outputs = self.stack, feedback, []
        for i, layer in enumerate(self.layers):
            below = x
            if i:
                if stack.gain is not None:
                    below = stack.normalise(i, below)
                if self.masks:
                    below = below * self.masks[i]
                elif stack.training:
                    below = dropout(below, stack.config.dropout)
                if stack.context_size:
                    below = torch.cat((below, feedback.to(below.dtype)), dim=-1)
            h[i], c[i] = layer(t, below, h[i], c[i])
            x = h[i] if i < stack.max_plain else x + h[i]
            outputs.append(x)
        if stack.gain is not None:
            outputs[-1] = stack.normalise(len(outputs), x)
        return outputs


def _known_offsets(bias: Tensor | None, like: Tensor) -> Tensor:
    """Return a bias (G,), or 0, for all steps and rows, in the shape and type of ``like``, (T, N, G)."""
    return (like.new_zeros(1) if bias is None else bias.to(like.dtype)).expand_as(like)
