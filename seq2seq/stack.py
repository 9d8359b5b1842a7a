"""Stacked recurrent layers: all time steps in one call, and step by step where outputs are fed back.

Shapes: T time steps, N batch rows, L layers, D directions (1 or 2), H hidden size of a layer in one
direction, X inputs known for all steps, F inputs fed back from the step before, C size of a context vector, G
gates (LSTM: 4 H, GRU: 3 H).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, rms_norm
from torch.nn.utils.rnn import PackedSequence

from .cells import MIN_CELLS, LayerNormLSTM, LayerNormLSTMCell, MinCell, MinRNN, gru_step, lstm_step
from .config import Seq2SeqConfig
from .fast import PaddedSteps, Steps, StepwiseLinear, run_layer_by_layer, run_padded

# Dropout of embeddings, words and layers, with masks per step or per sentence.
#
# Shapes: B sentences, N batch rows, T time steps, F features, V vocabulary.


def draw_mask(like: Tensor, probability: float) -> Tensor:
    """Draw a mask in the shape of ``like``: 0 with this probability, else 1 / (1 - probability)."""
    return dropout(torch.ones_like(like), probability, training=True)


def drop_units(x: Tensor | PackedSequence | PaddedSteps, config: Seq2SeqConfig, training: bool) -> Tensor:
    """Drop units of the input of a layer.

    Args:
        x: packed, padded or (T, N, F).
        config: ``dropout``, and whether all steps of a sentence share a mask.
        training: nothing is dropped outside training.

    Returns:
        The entries of ``x``, packed or (T, N, F), with dropout.
    """
    entries = x if isinstance(x, Tensor) else x.data
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
    """Look up embeddings and drop entries, units and words of them, in training only.

    Args:
        module: the embeddings, (V, F).
        tokens: token ids, (B, T) or (T, B).
        config: the probabilities.
        training: nothing is dropped outside training.
        time_dim: dimension of T.

    Returns:
        Embeddings, (B, T, F) or (T, B, F).
    """
    settings = config.regularisation
    if not training or settings.is_off:
        return dropout(module(tokens), config.dropout, training)
    embedded: Tensor = module(tokens)
    if settings.variational and config.dropout:
        embedded = embedded * draw_mask(embedded.narrow(time_dim, 0, 1), config.dropout)
    else:
        embedded = dropout(embedded, config.dropout)
    if settings.word_dropout:
        embedded = embedded * draw_mask(embedded[..., :1], settings.word_dropout)
    return embedded


# Recurrent layers in a loop over time steps, for what torch's own layers cannot do.
#
# These are layer normalisation inside the cell, and dropout of the recurrent state.
#
# Shapes: T time steps, N batch rows, R rows of all steps together, H hidden size of a layer in one direction,
# D directions, G gates (LSTM: 4 H, GRU: 3 H).


Layer = nn.RNNBase | LayerNormLSTM


class _Cell(NamedTuple):
    """One direction of a layer, as functions of all its weights."""

    project: Callable[[Tensor], Tensor]
    """The inputs' share of the gates, (R, G)."""
    advance: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """The next h and c from a share (N, G), the h of the recurrent product, h and c, (N, H) each."""


def run_step_by_step(
    rnn: Layer, x: Steps, state: tuple[Tensor, ...] | None, recurrent_dropout: float
) -> tuple[Steps, tuple[Tensor, ...]]:
    """Run one layer, in all its directions.

    Args:
        rnn: one layer of an LSTM or GRU.
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
    for direction, cell in enumerate(_cells(rnn)):
        shares = torch.split(cell.project(entries), sizes)
        size = _hidden_size(rnn)
        h = shares[0].new_zeros(sizes[0], size) if state is None else state[0][direction].to(shares[0].dtype)
        c = h if state is None or len(state) == 1 else state[1][direction]
        c = c.to(torch.promote_types(c.dtype, torch.float32))
        mask = draw_mask(h, recurrent_dropout) if recurrent_dropout else None
        steps: list[Tensor] = [h] * len(sizes)
        for t in range(len(sizes)) if direction == 0 else reversed(range(len(sizes))):
            n = sizes[t]
            recurrent = h[:n] if mask is None else h[:n] * mask[:n]
            next_h, next_c = cell.advance(shares[t], recurrent, h[:n], c[:n])
            steps[t] = next_h.to(h.dtype)
            # Sentences that have ended, or, from the right, have not begun, keep their state.
            h = steps[t] if n == len(h) else torch.cat((steps[t], h[n:]))
            c = next_c if n == len(c) else torch.cat((next_c, c[n:]))
        outputs.append(torch.cat(steps))
        finals.append((h, c.to(h.dtype)) if _is_lstm(rnn) else (h,))
    final = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
    joined = torch.cat(outputs, dim=-1)
    if packed is None:
        return joined.view(len(sizes), sizes[0], -1), final
    if packed.unsorted_indices is not None:
        final = tuple(part.index_select(1, packed.unsorted_indices) for part in final)
    return packed._replace(data=joined), final


def _is_lstm(rnn: Layer) -> bool:
    return isinstance(rnn, LayerNormLSTM) or rnn.mode == "LSTM"


def _hidden_size(rnn: Layer) -> int:
    return rnn.cells[0].size if isinstance(rnn, LayerNormLSTM) else rnn.hidden_size  # type: ignore[return-value]


def _cells(rnn: Layer) -> Iterator[_Cell]:
    if isinstance(rnn, LayerNormLSTM):
        for cell in rnn.cells:
            assert isinstance(cell, LayerNormLSTMCell)
            yield _layer_norm_cell(cell)
    else:
        for weights in rnn.all_weights:
            yield _torch_cell(*weights, is_lstm=rnn.mode == "LSTM")


def _layer_norm_cell(cell: LayerNormLSTMCell) -> _Cell:
    return _Cell(
        project=lambda x: cell.normalise_inputs(linear(x, cell.weight_ih)),
        advance=lambda share, recurrent, h, c: cell.advance(share, linear(recurrent, cell.weight_hh), c),
    )


def _torch_cell(
    weight_x: Tensor, weight_h: Tensor, bias_x: Tensor, bias_h: Tensor, *, is_lstm: bool
) -> _Cell:
    if is_lstm:
        return _Cell(
            project=lambda x: linear(x, weight_x, bias_x + bias_h),
            advance=lambda share, recurrent, h, c: lstm_step(
                (share + linear(recurrent, weight_h)).to(c.dtype), c
            ),
        )
    return _Cell(
        project=lambda x: linear(x, weight_x, bias_x),
        advance=lambda share, recurrent, h, c: (gru_step(share, linear(recurrent, weight_h, bias_h), h), c),
    )


StackSteps = TypeVar("StackSteps", Tensor, PackedSequence, PaddedSteps)

MAX_PLAIN_LAYERS = 2
"""Number of layers at the bottom that have no residual connection."""
RMS_EPSILON = 1e-6
"""Added to the mean square in RMSNorm; torch's default depends on the dtype."""


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
        dropped = config.regularisation.variational or config.regularisation.recurrent_dropout > 0
        apart |= both_at_bottom or context_size > 0 or dropped or config.cell not in ("lstm", "gru")
        self.num_plain = 1 if apart else min(layers, MAX_PLAIN_LAYERS)
        self.is_lstm, self.config = config.has_cell_state, config
        self.both_at_bottom, self.context_size = both_at_bottom, context_size
        between = config.dropout if self.num_plain > 1 else 0.0
        self.plain: nn.Module
        if config.cell not in ("lstm", "gru"):
            self.plain = _build_layer(config.cell, input_size, size, bidirectional or both_at_bottom)
        else:
            self.plain = (nn.LSTM if self.is_lstm else nn.GRU)(
                input_size,
                size,
                self.num_plain,
                dropout=between,
                bidirectional=bidirectional or both_at_bottom,
            )
        directions = 2 if bidirectional else 1
        widths = [directions * size + context_size] * (layers - self.num_plain)
        if both_at_bottom:
            widths[0] += size
        self.residual = nn.ModuleList(
            _build_layer(config.cell, width, size, bidirectional) for width in widths
        )
        self.gain = nn.Parameter(torch.ones(layers, directions * size)) if config.pre_norm else None
        """Gain of the norm above each layer."""
        self.max_plain = 1 if config.pre_norm else MAX_PLAIN_LAYERS
        self.state_rows = [self.num_plain * directions] + [directions] * len(self.residual)
        """Number of rows of h that belong to each module; their sum is L * D."""

    @property
    def layers(self) -> list[list[nn.Parameter]]:
        """Input weight, recurrent weight and both biases of each layer and direction, from the bottom up."""
        return [
            weights
            for module in (self.plain, *self.residual)
            if isinstance(module, nn.RNNBase)
            for weights in module.all_weights
        ]

    @property
    def cells(self) -> list[list[nn.Parameter] | LayerNormLSTMCell | MinCell]:
        """The weights of ``layers``, or the cells of layers that are not torch's, from the bottom up."""
        if self.config.cell in ("lstm", "gru"):
            return [*self.layers]
        return [module for module in self.modules() if isinstance(module, LayerNormLSTMCell | MinCell)]

    def forward(
        self, x: StackSteps, start: tuple[Tensor, ...] | None = None
    ) -> tuple[StackSteps, tuple[Tensor, ...]]:
        """Run all layers over all time steps.

        Args:
            x: inputs (T, N, input_size), packed, with all steps real, or with padding.
            start: initial h and (LSTM) c, (L * D, N, H) each; 0 if left out, as it must be with padding.

        Returns:
            The outputs (T, N, D * H), in the form of ``x``, and the final states, shaped as ``start``.
        """
        return self.run_layers(x, start, slice(None))

    def run_layers(
        self, x: StackSteps, start: tuple[Tensor, ...] | None, part: slice, context: Tensor | None = None
    ) -> tuple[StackSteps, tuple[Tensor, ...]]:
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
        starts: list[tuple[Tensor, ...] | None] = [None] * len(modules)
        if start is not None:
            rows = self.state_rows[part]
            starts = list(zip(*(state.split_with_sizes(rows) for state in start), strict=True))
        finals = []
        for (index, rnn), state in zip(modules, starts, strict=True):
            if index == 0:
                x, final = self._run(rnn, x, state)
                final = tuple(each[-1:] for each in final) if self.both_at_bottom else final
            else:
                normalised = _packed_like(x, self.normalise(index, _entries(x)))
                dropped = drop_units(normalised, self.config, self.training)
                if context is not None:
                    dropped = torch.cat((dropped, context.to(dropped.dtype)), dim=-1)
                output, final = self._run(rnn, _packed_like(x, dropped), state)
                layer = index + self.num_plain - 1
                x = _packed_like(x, self.connect(layer, _entries(x), _entries(output)))
            finals.append(final)
        if self.gain is not None:  # and so all layers are run: none below the top one attends
            x = _packed_like(x, self.normalise(len(self.gain), _entries(x)))
        return x, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))

    def connect(self, layer: int, below: Tensor, output: Tensor) -> Tensor:
        """Add the output of the layer below to that of ``layer``, counted from 0, if it is residual."""
        return output if layer < self.max_plain else below + output

    def normalise(self, layer: int, x: Tensor) -> Tensor:
        """Apply the RMSNorm above the lowest layers, if there are norms.

        Args:
            layer: the number of these layers, at least 1.
            x: their output, (..., D * H); of lower precision than the gain under autocast.
        """
        if self.gain is None:
            return x
        return rms_norm(x.to(self.gain.dtype), x.shape[-1:], self.gain[layer - 1], RMS_EPSILON)

    def _run(
        self, rnn: nn.Module, x: StackSteps, state: tuple[Tensor, ...] | None
    ) -> tuple[StackSteps, tuple[Tensor, ...]]:
        """Call one of the modules; the state of a GRU is a bare tensor in torch, a tuple of one here."""
        if isinstance(rnn, MinRNN):
            assert not isinstance(x, PackedSequence)  # encoders do not pack for these cells
            result: tuple[StackSteps, tuple[Tensor, ...]] = rnn(x, state)
            return result
        recurrent_dropout = self.config.regularisation.recurrent_dropout if self.training else 0.0
        in_a_loop = isinstance(rnn, LayerNormLSTM) or (recurrent_dropout and isinstance(rnn, nn.RNNBase))
        if isinstance(x, PaddedSteps):
            if in_a_loop or state is not None:
                raise NotImplementedError(
                    "encoders with layer-normalised cells or recurrent_dropout cannot be traced or captured"
                )
            assert isinstance(rnn, nn.RNNBase)
            return run_padded(rnn, x)
        if in_a_loop:
            assert isinstance(rnn, nn.RNNBase | LayerNormLSTM)
            return run_step_by_step(rnn, x, state, recurrent_dropout)
        if _entries(x).is_cuda and isinstance(rnn, nn.RNNBase):
            return run_layer_by_layer(rnn, x, state)
        output, final = rnn(x, state if state is None or self.is_lstm else state[0])
        return output, final if self.is_lstm else (final,)


def _build_layer(cell: str, input_size: int, size: int, bidirectional: bool) -> nn.Module:
    """Build one layer; ``size`` is that of one direction."""
    if cell in MIN_CELLS:
        return MinRNN(input_size, size, MIN_CELLS[cell], bidirectional)
    rnn_class: type[nn.Module] = {"lstm": nn.LSTM, "gru": nn.GRU}.get(cell, LayerNormLSTM)
    return rnn_class(input_size, size, bidirectional=bidirectional)


def _entries(x: Tensor | PackedSequence | PaddedSteps) -> Tensor:
    return x if isinstance(x, Tensor) else x.data


def _packed_like(x: StackSteps, entries: Tensor) -> StackSteps:
    """Pack ``entries`` as ``x`` is packed; return them unchanged if ``x`` is not."""
    return entries if isinstance(x, Tensor) else x._replace(data=entries)


# The gates of LSTM layers by one product each, for the single steps of a search.
#
# Shapes: N batch rows, X inputs of the step, F inputs fed back from the step before, H hidden size of a
# layer.


def join_gates(stack: RecurrentStack) -> nn.ModuleList | None:
    """Join the weights of each layer of an LSTM to one, W [x; h] + b; None for other cells.

    They are copies, as large as the weights, which later changes of the stack's weights do not reach.
    """
    layers = []
    for cell in stack.cells:
        if not stack.is_lstm or not isinstance(cell, list):
            return None
        weight_x, weight_h, bias_x, bias_h = (parameter.detach() for parameter in cell)
        joined = nn.Linear(weight_x.size(1) + weight_h.size(1), len(weight_x), device="meta")
        joined.weight = nn.Parameter(torch.cat((weight_x, weight_h), dim=1), requires_grad=False)
        joined.bias = nn.Parameter(bias_x + bias_h, requires_grad=False)
        layers.append(joined)
    return nn.ModuleList(layers)


def _advance_lstm(gates: Tensor, c: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the next h, of ``dtype``, and the next c.

    With bfloat16 weights c stays float32: a sum over all steps, which bfloat16 would round.
    """
    h, c = lstm_step(gates.to(c.dtype) if dtype in (torch.bfloat16, torch.float16) else gates, c)
    return h.to(dtype), c


class _JoinedLayer:
    """One layer of a ``StepwiseStack`` for a single step of a search, by ``join_gates``."""

    mask: Tensor | None = None
    """No dropout in a search."""

    def __init__(self, joined: nn.Module, known: Tensor | None, dtype: torch.dtype) -> None:
        """Prepare a step; ``known`` are the inputs (N, X) of the bottom layer."""
        self.joined, self.known, self.dtype = joined, known, dtype

    def __call__(self, t: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the step from x (N, F), h and c (N, H); return the next h and c."""
        parts = (x, h) if self.known is None else (self.known, x, h)
        gates = self.joined(torch.cat([part.to(self.dtype) for part in parts], dim=-1))
        next_h, next_c = lstm_step(gates.to(c.dtype), c)
        return next_h.to(self.dtype), next_c


class _StepwiseLayer:
    """One layer of a ``StepwiseStack``."""

    mask: Tensor | None = None
    """Dropout of h in the recurrent product, (N, H)."""

    def __init__(
        self, is_lstm: bool, offsets: Tensor, input_weight: Tensor, recurrent_weight: Tensor, bias: Tensor
    ) -> None:
        """Prepare one run over T steps.

        Args:
            is_lstm: the cell is an LSTM, otherwise a GRU.
            offsets: share of the gates that is known for all steps, (T, N, G).
            input_weight: weight of the inputs that are known step by step only, (G, F).
            recurrent_weight: weight of h, (G, H).
            bias: recurrent bias of a GRU, (G,); that of an LSTM is part of ``offsets``.
        """
        self.is_lstm = is_lstm
        self.input_linear = StepwiseLinear(input_weight, offsets)
        # The gates of an LSTM are plain sums, so the second product is added to the first. In a GRU the gate
        # r multiplies a part of the second, so the two remain separate.
        recurrent_offsets = (
            self.input_linear.offsets if is_lstm else bias.to(offsets.dtype).expand_as(offsets)
        )
        self.recurrent_linear = StepwiseLinear(recurrent_weight, recurrent_offsets)
        self.recurrent_offsets = self.recurrent_linear.offsets.unbind()
        self.input_offsets = self.recurrent_offsets if is_lstm else self.input_linear.offsets.unbind()

    def __call__(self, t: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute step ``t`` from x (N, F), h and c (N, H); return the next h and c."""
        inputs = self.input_linear(self.input_offsets[t], x)
        recurrent = h if self.mask is None else h * self.mask
        if self.is_lstm:
            gates = self.recurrent_linear(inputs, recurrent)
            return _advance_lstm(gates, c, h.dtype)
        return gru_step(inputs, self.recurrent_linear(self.recurrent_offsets[t], recurrent), h), c


class _LayerNormStepwiseLayer:
    """One layer of a ``StepwiseStack`` with layer normalisation."""

    mask: Tensor | None = None
    """Dropout of h in the recurrent product, (N, H)."""

    def __init__(self, cell: LayerNormLSTMCell, offsets: Tensor, input_weight: Tensor) -> None:
        """Prepare one run over T steps; arguments as for ``_StepwiseLayer``."""
        self.cell = cell
        self.input_linear = StepwiseLinear(input_weight, offsets)
        self.input_offsets = self.input_linear.offsets.unbind()
        self.recurrent_linear = StepwiseLinear(cell.weight_hh, offsets.new_zeros(1).expand_as(offsets))
        self.recurrent_offsets = self.recurrent_linear.offsets.unbind()

    def __call__(self, t: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute step ``t`` from x (N, F), h and c (N, H); return the next h and c."""
        inputs = self.cell.normalise_inputs(self.input_linear(self.input_offsets[t], x))
        recurrent = h if self.mask is None else h * self.mask
        product = self.recurrent_linear(self.recurrent_offsets[t], recurrent)
        next_h, next_c = self.cell.advance(inputs, product, c)
        return next_h.to(h.dtype), next_c


class _MinStepwiseLayer:
    """One layer of a ``StepwiseStack`` whose gates do not read the state."""

    mask: Tensor | None = None
    """No recurrent product, no dropout of h in it."""

    def __init__(self, cell: MinCell, offsets: Tensor, input_weight: Tensor) -> None:
        """Prepare one run over T steps; arguments as for ``_StepwiseLayer``."""
        self.cell = cell
        self.input_linear = StepwiseLinear(input_weight, offsets)
        self.input_offsets = self.input_linear.offsets.unbind()

    def __call__(self, t: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute step ``t`` from x (N, F), h and c (N, H); return the next h and the same c."""
        return self.cell.advance(self.input_linear(self.input_offsets[t], x), h), c


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
        self.layers: list[_JoinedLayer | _StepwiseLayer | _LayerNormStepwiseLayer | _MinStepwiseLayer] = []
        if joined is not None:
            for layer in joined:
                self.layers.append(_JoinedLayer(layer, None if self.layers else inputs[0], inputs.dtype))
            return
        size = inputs.size(-1)
        bias: Tensor | None
        for cell in stack.cells[:depth]:
            if isinstance(cell, LayerNormLSTMCell):
                weight_x, bias = cell.weight_ih, None
            elif isinstance(cell, MinCell):
                weight_x, bias = cell.weight_ih, cell.bias_ih
            else:
                weight_x, weight_h, bias_x, bias_h = cell
                bias = bias_x + bias_h if stack.is_lstm else bias_x
            if not self.layers:
                offsets, weight_fed = linear(inputs, weight_x[:, :size], bias), weight_x[:, size:]
            else:
                zeros = offsets.new_zeros(1) if bias is None else bias.to(offsets.dtype)
                offsets, weight_fed = zeros.expand_as(offsets), weight_x
            if isinstance(cell, LayerNormLSTMCell):
                self.layers.append(_LayerNormStepwiseLayer(cell, offsets, weight_fed))
            elif isinstance(cell, MinCell):
                self.layers.append(_MinStepwiseLayer(cell, offsets, weight_fed))
            else:
                self.layers.append(_StepwiseLayer(stack.is_lstm, offsets, weight_fed, weight_h, bias_h))
        self.masks = self._draw_masks(inputs.size(1), offsets)

    def _draw_masks(self, rows: int, like: Tensor) -> list[Tensor]:
        """Draw what all steps drop alike: units of h, and the returned masks (N, H) between layers."""
        settings = self.stack.config.regularisation
        if not self.stack.training or settings.is_off:
            return []
        units = like.new_ones(rows, self.stack.config.hidden_size)
        if settings.recurrent_dropout:
            for layer in self.layers:
                layer.mask = draw_mask(units, settings.recurrent_dropout)
        if not settings.variational:
            return []
        return [draw_mask(units, self.stack.config.dropout) for _ in self.layers]

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
        x, outputs = feedback, []
        for i, layer in enumerate(self.layers):
            layer_input = x if i == 0 else self._drop(i, self.stack.normalise(i, x))
            if i and self.stack.context_size:
                layer_input = torch.cat((layer_input, feedback.to(layer_input.dtype)), dim=-1)
            h[i], c[i] = layer(t, layer_input, h[i], c[i])
            x = self.stack.connect(i, x, h[i])
            outputs.append(x)
        if self.stack.gain is not None:
            outputs[-1] = self.stack.normalise(len(outputs), x)
        return outputs

    def _drop(self, layer: int, x: Tensor) -> Tensor:
        if self.masks:
            return x * self.masks[layer]
        return dropout(x, self.stack.config.dropout, self.stack.training)
