"""Stacks of recurrent layers: all time steps in one call, or step by step.

Shapes: B sentences, T time steps, N batch rows, L layers, D directions (1 or 2), H hidden size of a layer in
one direction, X inputs known for all steps, F inputs fed back from the step before, C size of a context
vector, G gates (LSTM: 4 H, GRU: 3 H, plain RNN: H).
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, rms_norm
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from .cells import (
    MIN_CELLS,
    Cell,
    LayerNormLSTM,
    LayerNormLSTMCell,
    MinCell,
    MinRNN,
    State,
    Step,
    Steps,
    TorchCell,
    activate,
    cells_of,
    draw_mask,
    run_step_by_step,
    run_torch_layer,
)
from .config import Seq2SeqConfig

FIRST_RESIDUAL, FIRST_RESIDUAL_PRE_NORM = 2, 1
"""The lowest layer with a residual connection, counted from 0, without and with ``pre_norm``."""
RMS_EPSILON = 1e-6


# All time steps in one call.


class Packing:
    """Packs padded sentences for the recurrent layers of torch: B sentences of S positions, N real tokens."""

    def __init__(self, lengths: Tensor, size: int, device: torch.device) -> None:
        """Prepare for sentences of ``lengths`` (B,), on the CPU, padded to ``size`` S, on ``device``."""
        self.lengths = lengths

    def pack(self, x: Tensor) -> PackedSequence:
        """Take the real tokens out of x (B, S, E)."""
        return pack_padded_sequence(x, self.lengths, batch_first=True, enforce_sorted=False)

    def unpack(self, packed: PackedSequence, size: int) -> Tensor:
        """Put the real tokens back: (B, ``size``, E), 0 in the padding; the inverse of ``pack``."""
        return pad_packed_sequence(packed, batch_first=True, total_length=size)[0]


def has_bf16_layers() -> bool:
    """Return whether a GPU computes recurrent layers in bfloat16 under its autocast; else in float32."""
    return True


def run_layer(layer: nn.RNNBase, x: Steps, state: State | None) -> tuple[Steps, State]:
    """Run one layer of torch over all steps; arguments as for ``run_step_by_step``."""
    if x.data.is_cuda and torch.is_autocast_enabled("cuda"):  # cuDNN would compute in float16
        return run_step_by_step(layer, x, state, 0.0)
    return run_torch_layer(layer, x, state)


def drop_units(
    x: Tensor, config: Seq2SeqConfig, training: bool, *, time_dim: int = 0, sizes: Tensor | None = None
) -> Tensor:
    """Drop units of embeddings or of layers' inputs in training: (T, N, F), (N, T, F) or (tokens, F).

    With variational dropout all steps of a sentence, along ``time_dim``, share a mask; ``sizes`` are the
    ``batch_sizes`` of a packed sequence.
    """
    if not (training and config.regularisation.variational):
        return dropout(x, config.dropout, training)
    if sizes is None:
        return x * draw_mask(x.narrow(time_dim, 0, 1), config.dropout)
    mask = draw_mask(x[: int(sizes[0])], config.dropout)
    return x * torch.cat([mask[:rows] for rows in sizes.tolist()])


def embed_tokens(
    module: nn.Embedding, tokens: Tensor, config: Seq2SeqConfig, training: bool, time_dim: int
) -> Tensor:
    """Look up the embeddings of tokens (B, T) or (T, B), and drop units and words of them in training."""
    embedded = drop_units(module(tokens), config, training, time_dim=time_dim)
    if training and config.regularisation.word_dropout:
        embedded = embedded * draw_mask(embedded[..., :1], config.regularisation.word_dropout)
    return embedded


class RecurrentStack(nn.Module):
    """Stacked layers of one kind of cell, with residual connections from the third layer on.

    x(i) = x(i-1) + layer(i)(dropout(x(i-1))) for i >= 3 (Wu et al. 2016, section 3.1). With ``pre_norm`` x(i)
    = x(i-1) + layer(i)(dropout(RMSNorm(x(i-1)))) for i >= 2, and the output is RMSNorm(x(L)) (Zhang and
    Sennrich 2019).
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
            both_at_bottom: only the bottom layer reads in both directions; of its final states, only those of
                the direction from the right are returned, as in Luong et al. 2017 (code).
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
        built = [_build_layer(config.cell, *sizes, size) for sizes in zip(widths, both, strict=True)]
        self.layers = nn.ModuleList(built)
        self.gain = nn.Parameter(torch.ones(layers, width)) if config.pre_norm else None
        self.first_residual = FIRST_RESIDUAL_PRE_NORM if config.pre_norm else FIRST_RESIDUAL

    @property
    def cells(self) -> list[Cell]:
        """The cells, from the bottom up."""
        return [cell for layer in self.layers for cell in cells_of(layer)]

    def forward(
        self,
        x: Steps,
        start: State | None = None,
        first: int = 0,
        context: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Steps, State]:
        """Run all layers, or the upper ones, over all time steps.

        Args:
            x: inputs, packed or (T, N, input_size); of the layer ``first`` before its dropout.
            start: initial h and (LSTM) c of these layers, (layers * D, N, H) each; None, as for packed x: 0.
            first: the lowest layer to run, counted from 0.
            context: what layers above the bottom one read too, (T, N, C).
            lengths: real steps of padded sentences, (N,), for minGRU and minLSTM.

        Returns:
            The outputs, packed as ``x`` is or (T, N, D * H), and the final states, shaped as ``start``.
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
            steps, final = self._run(layer, _as(x, below), starts[i - first], lengths)
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
        """Apply the RMSNorm above the ``layer`` lowest layers to their output, (..., D * H)."""
        assert self.gain is not None
        return rms_norm(x.to(self.gain.dtype), x.shape[-1:], self.gain[layer - 1], RMS_EPSILON)

    def _run(
        self, layer: nn.Module, x: Steps, state: State | None, lengths: Tensor | None
    ) -> tuple[Steps, State]:
        if isinstance(layer, MinRNN):
            return layer(x, state, lengths)  # type: ignore[no-any-return]
        recurrent_dropout = self.config.regularisation.recurrent_dropout if self.training else 0.0
        if recurrent_dropout or isinstance(layer, LayerNormLSTM):
            return run_step_by_step(layer, x, state, recurrent_dropout)
        return run_layer(layer, x, state)  # type: ignore[arg-type]


def _build_layer(cell: str, input_size: int, bidirectional: bool, size: int) -> nn.Module:
    if cell in MIN_CELLS:
        return MinRNN(input_size, size, MIN_CELLS[cell], bidirectional)
    if cell == "layer-norm-lstm":
        return LayerNormLSTM(input_size, size, bidirectional)
    kind: Callable[..., nn.Module] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[cell]
    return kind(input_size, size, bidirectional=bidirectional)


def _as(x: Steps, entries: Tensor) -> Steps:
    return entries if isinstance(x, Tensor) else x._replace(data=entries)


# Step by step.


class StepwiseLinear:
    """y[t] = offset[t] + the sum of W x[t] over some matrices W; call it once per time step, in order."""

    def __init__(self, offsets: Tensor, *weights: Tensor) -> None:
        """Prepare one run over T steps, with offsets (T, N, O) and matrices (O, I)."""
        self._offsets, self._weights = iter(offsets.unbind()), weights

    def __call__(self, *x: Tensor) -> Tensor:
        """Compute the next step from one x (N, I) per matrix: (N, O)."""
        products = (linear(part, weight) for part, weight in zip(x, self._weights, strict=True))
        return sum(products, next(self._offsets))


def _prepare_layer(cell: Cell, offsets: Tensor, input_weight: Tensor, mask: Tensor | None) -> Step:
    """Return the next step of a layer in a run over T steps.

    ``offsets`` (T, N, G) are the share of the inputs' product that is known for all steps, ``input_weight``
    (G, F) is that of the other inputs, and ``mask`` (N, H) drops units of h in the recurrent product.
    """
    if isinstance(cell, TorchCell) and cell.recurrent_bias is None:  # the gates are plain sums
        gates = StepwiseLinear(offsets, input_weight, cell.weight_hh)
        return lambda x, h, c: activate(gates(x, h if mask is None else h * mask), h, c)
    inputs = StepwiseLinear(offsets, input_weight)
    if isinstance(cell, MinCell):
        return lambda x, h, c: (cell.advance(inputs(x), h), c)
    recurrent = StepwiseLinear(_expand_bias(cell.recurrent_bias, offsets), cell.weight_hh)

    def step(x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        product = inputs(x)
        if isinstance(cell, LayerNormLSTMCell):
            product = cell.normalise_inputs(product)
        return cell.advance(product, recurrent(h if mask is None else h * mask), h, c)

    return step


class StepwiseStack:
    """A ``RecurrentStack`` of one direction, run step by step so that outputs can be fed back as inputs.

    The first X input features are known for all steps, and one matrix product computes their share of the
    gates.
    """

    def __init__(
        self,
        stack: RecurrentStack,
        inputs: Tensor,
        depth: int | None = None,
        joined: Any = None,
    ) -> None:
        """Prepare one run of the ``depth`` lowest layers on inputs (T, N, X).

        With ``joined``, the output of ``decoder.join_gates``, it is one step without gradients and dropout.
        """
        self.stack = stack
        drop = partial(dropout, p=stack.config.dropout, training=stack.training)
        self.drops: list[Callable[[Tensor], Tensor]] = [drop] * len(stack.layers)
        if joined is not None:
            self.layers: list[Step] = joined.steps(inputs)
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
            biases = _expand_bias(cell.input_bias, offsets)
            self.layers.append(_prepare_layer(cell, biases, cell.weight_ih, mask))

    def __call__(self, feedback: Tensor, h: list[Tensor], c: list[Tensor]) -> list[Tensor]:
        """Compute the next step from what is fed back, (N, F): the outputs of the layers, (N, H) each.

        All layers read the feedback if the stack has a ``context_size``. h and c (N, H) of each layer are
        replaced in place.
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


def _expand_bias(bias: Tensor | None, like: Tensor) -> Tensor:
    return (like.new_zeros(1) if bias is None else bias.to(like.dtype)).expand_as(like)


with suppress(ModuleNotFoundError):  # fast.py may be deleted
    from .fast import Packing as Packing  # type: ignore[assignment]
    from .fast import StepwiseLinear as StepwiseLinear  # type: ignore[assignment]
    from .fast import has_bf16_layers as has_bf16_layers
    from .fast import run_layer
