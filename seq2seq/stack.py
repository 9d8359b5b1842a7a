"""Stacked recurrent layers: all time steps in one call, or step by step where outputs are fed back.

Shapes: T time steps, N batch rows, X inputs known for all steps, F inputs fed back from the step before, L
layers, D directions (1 or 2), H hidden size of a layer in one direction, G gates (LSTM: 4 H, GRU: 3 H).
"""

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear
from torch.nn.utils.rnn import PackedSequence

from .cells import gru_step, lstm_step
from .config import Seq2SeqConfig
from .half_precision import is_half
from .layer_by_layer import run_layer_by_layer
from .padded import PaddedSteps, run_padded
from .stepwise_products import StepwiseLinear

Steps = TypeVar("Steps", Tensor, PackedSequence, PaddedSteps)

MAX_PLAIN_LAYERS = 2
"""Number of layers at the bottom that have no residual connection."""


class RecurrentStack(nn.Module):
    """Stacked ``nn.LSTM`` or ``nn.GRU`` layers with residual connections from the third layer on.

    x(i) = x(i-1) + layer(i)(dropout(x(i-1))) for i >= 3 (Wu et al. 2016, section 3.1); the first two layers
    have no residual connection. Dropout is applied to the input of a layer, not to the residual branch. The
    layers without residual connection are one module of torch.
    """

    def __init__(
        self, config: Seq2SeqConfig, input_size: int, size: int, bidirectional: bool = False
    ) -> None:
        """Create the layers.

        Args:
            config: cell, number of layers and dropout.
            input_size: number of input features.
            size: H, the hidden size of a layer in one direction.
            bidirectional: read in both directions and concatenate their outputs.
        """
        super().__init__()
        rnn_class = nn.LSTM if config.cell == "lstm" else nn.GRU
        num_plain = min(config.num_layers, MAX_PLAIN_LAYERS)
        directions = 2 if bidirectional else 1
        between = config.dropout if num_plain > 1 else 0.0
        self.is_lstm, self.dropout = config.cell == "lstm", config.dropout
        self.plain = rnn_class(input_size, size, num_plain, dropout=between, bidirectional=bidirectional)
        self.residual = nn.ModuleList(
            rnn_class(directions * size, size, bidirectional=bidirectional)
            for _ in range(config.num_layers - num_plain)
        )
        self.state_rows = [num_plain * directions] + [directions] * len(self.residual)
        """Number of rows of h that belong to each of torch's modules; their sum is L * D."""

    @property
    def layers(self) -> list[list[nn.Parameter]]:
        """Input weight, recurrent weight and both biases of each layer and direction, from the bottom up."""
        return [
            weights
            for module in self.modules()
            if isinstance(module, nn.RNNBase)
            for weights in module.all_weights
        ]

    def forward(self, x: Steps, start: tuple[Tensor, ...] | None = None) -> tuple[Steps, tuple[Tensor, ...]]:
        """Run all layers over all time steps.

        Args:
            x: inputs (T, N, input_size), packed, with all steps real, or with padding.
            start: initial h and (LSTM) c, (L * D, N, H) each; 0 if left out, as it must be with padding.

        Returns:
            The outputs (T, N, D * H), in the form of ``x``, and the final states, shaped as ``start``.
        """
        starts: list[tuple[Tensor, ...] | None] = [None] * len(self.state_rows)
        if start is not None:
            starts = list(zip(*(part.split_with_sizes(self.state_rows) for part in start), strict=True))
        x, final = self._run(self.plain, x, starts[0])
        finals = [final]
        for rnn, state in zip(self.residual, starts[1:], strict=True):
            dropped = dropout(_entries(x), self.dropout, self.training)
            output, final = self._run(rnn, _packed_like(x, dropped), state)
            x = _packed_like(x, _entries(x) + _entries(output))
            finals.append(final)
        return x, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))

    def _run(
        self, rnn: nn.Module, x: Steps, state: tuple[Tensor, ...] | None
    ) -> tuple[Steps, tuple[Tensor, ...]]:
        """Call one of torch's modules; the state of a GRU is a bare tensor there, a tuple of one here."""
        if isinstance(x, PaddedSteps):
            assert isinstance(rnn, nn.RNNBase)
            assert state is None
            return run_padded(rnn, x)
        if _entries(x).is_cuda and isinstance(rnn, nn.RNNBase):
            return run_layer_by_layer(rnn, x, state)
        output, final = rnn(x, state if state is None or self.is_lstm else state[0])
        return output, final if self.is_lstm else (final,)


def _entries(x: Tensor | PackedSequence | PaddedSteps) -> Tensor:
    return x if isinstance(x, Tensor) else x.data


def _packed_like(x: Steps, entries: Tensor) -> Steps:
    """Pack ``entries`` as ``x`` is packed; return them unchanged if ``x`` is not."""
    return entries if isinstance(x, Tensor) else x._replace(data=entries)


class _StepwiseLayer:
    """One layer of a ``StepwiseStack``."""

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
        if self.is_lstm:
            gates = self.recurrent_linear(inputs, h)
            # With bfloat16 weights c stays float32: a sum over all steps, which bfloat16 would round.
            next_h, next_c = lstm_step(gates.to(c.dtype) if is_half(h) else gates, c)
            return next_h.to(h.dtype), next_c
        return gru_step(inputs, self.recurrent_linear(self.recurrent_offsets[t], h), h), c


class StepwiseStack:
    """A ``RecurrentStack`` of one direction, run step by step so that outputs can be fed back as inputs.

    The first X input features are known for all steps, and their share of the gates is computed in one matrix
    product. The last F features are fed back step by step.
    """

    def __init__(self, stack: RecurrentStack, inputs: Tensor) -> None:
        """Prepare one run of ``stack`` over the known ``inputs`` (T, N, X)."""
        self.stack = stack
        self.layers: list[_StepwiseLayer] = []
        size = inputs.size(-1)
        for weight_x, weight_h, bias_x, bias_h in stack.layers:
            bias = bias_x + bias_h if stack.is_lstm else bias_x
            if not self.layers:
                offsets, weight_fed = linear(inputs, weight_x[:, :size], bias), weight_x[:, size:]
            else:
                offsets, weight_fed = bias.to(offsets.dtype).expand_as(offsets), weight_x
            self.layers.append(_StepwiseLayer(stack.is_lstm, offsets, weight_fed, weight_h, bias_h))

    def __call__(self, t: int, feedback: Tensor, h: list[Tensor], c: list[Tensor]) -> Tensor:
        """Compute step ``t``; the steps must be called once each, in order.

        Args:
            t: the time step.
            feedback: inputs that were computed in the loop, (N, F).
            h: hidden states of the layers, (N, H) each; replaced in place.
            c: cell states of the layers, (N, H) each; replaced in place by an LSTM, ignored by a GRU.

        Returns:
            The output of the top layer, (N, H).
        """
        x = feedback
        for i, layer in enumerate(self.layers):
            layer_input = x if i == 0 else dropout(x, self.stack.dropout, self.stack.training)
            h[i], c[i] = layer(t, layer_input, h[i], c[i])
            x = h[i] if i < MAX_PLAIN_LAYERS else x + h[i]
        return x
