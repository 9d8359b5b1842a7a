"""Stacked recurrent layers step by step, where outputs are fed back as inputs.

Shapes: T time steps, N batch rows, X inputs known for all steps, F inputs fed back from the step before, H
hidden size of a layer, G gates (LSTM: 4 H, GRU: 3 H).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from .cells import LayerNormLSTMCell, gru_step, lstm_step
from .half_precision import is_half
from .min_rnn import MinCell
from .stack import RecurrentStack, draw_mask
from .stepwise_products import StepwiseLinear

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


class JoinedStack:
    """One step of a ``StepwiseStack`` without gradients and dropout, by ``join_gates``."""

    def __init__(self, stack: RecurrentStack, gates: nn.ModuleList, inputs: Tensor) -> None:
        """Prepare a step with the inputs (1, N, X)."""
        self.stack, self.gates, self.inputs = stack, gates, inputs

    def __call__(self, t: int, feedback: Tensor, h: list[Tensor], c: list[Tensor]) -> list[Tensor]:
        """Compute the step ``t``, 0; arguments and result as for ``StepwiseStack``."""
        x, outputs, dtype = self.inputs[t], list[Tensor](), self.inputs.dtype
        for i, layer in enumerate(self.gates):
            parts = (x, feedback, h[i]) if i == 0 or self.stack.context_size else (x, h[i])
            gates = layer(torch.cat([part.to(dtype) for part in parts], dim=-1))
            # With bfloat16 weights c stays float32: a sum over all steps, which bfloat16 would round.
            next_h, c[i] = lstm_step(gates.to(c[i].dtype), c[i])
            h[i] = next_h.to(dtype)
            x = h[i] if i < self.stack.max_plain else x + h[i]
            outputs.append(x)
        return outputs


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
            # With bfloat16 weights c stays float32: a sum over all steps, which bfloat16 would round.
            next_h, next_c = lstm_step(gates.to(c.dtype) if is_half(h) else gates, c)
            return next_h.to(h.dtype), next_c
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

    def __init__(self, stack: RecurrentStack, inputs: Tensor, depth: int | None = None) -> None:
        """Prepare one run of the lowest ``depth`` layers of ``stack`` over the known ``inputs`` (T, N, X)."""
        self.stack = stack
        self.layers: list[_StepwiseLayer | _LayerNormStepwiseLayer | _MinStepwiseLayer] = []
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
            x = h[i] if i < self.stack.max_plain else x + h[i]
            outputs.append(x)
        if self.stack.gain is not None:
            outputs[-1] = self.stack.normalise(len(outputs), x)
        return outputs

    def _drop(self, layer: int, x: Tensor) -> Tensor:
        if self.masks:
            return x * self.masks[layer]
        return dropout(x, self.stack.config.dropout, self.stack.training)
