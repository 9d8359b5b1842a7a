"""Recurrent layers one above another: all steps at once, or one at a time for loops that feed something back.

Shapes: T steps, N rows, X known and F fed inputs, L layers, D directions (1 or 2), H size of a layer in one
direction, G gates (4 H of an LSTM, 3 H of a GRU).
"""

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear
from torch.nn.utils.rnn import PackedSequence

from .cells import StepwiseLinear, gru_step, lstm_step
from .config import Seq2SeqConfig

Steps = TypeVar("Steps", Tensor, PackedSequence)

MAX_PLAIN_LAYERS = 2
"""Layers at the bottom that have no residual connection."""


class RecurrentStack(nn.Module):
    """The LSTM or GRU of an encoder or decoder: torch's own, with residual connections from layer 3 on.

    x(i) = x(i-1) + layer(i)(x(i-1)) for i >= 3, the layers below being plain (Wu et al. 2016, section 3.1);
    dropout hits what a layer reads, but not what is added to its output. The plain layers are one module of
    torch's, which a GPU runs side by side; up to ``MAX_PLAIN_LAYERS`` layers nothing else is here.
    """

    def __init__(
        self, config: Seq2SeqConfig, input_size: int, size: int, bidirectional: bool = False
    ) -> None:
        super().__init__()
        kind = nn.LSTM if config.cell == "lstm" else nn.GRU
        plain = min(config.num_layers, MAX_PLAIN_LAYERS)
        directions = 2 if bidirectional else 1
        between = config.dropout if plain > 1 else 0.0
        self.lstm, self.dropout = config.cell == "lstm", config.dropout
        self.plain = kind(input_size, size, plain, dropout=between, bidirectional=bidirectional)
        self.residual = nn.ModuleList(
            kind(directions * size, size, bidirectional=bidirectional)
            for _ in range(config.num_layers - plain)
        )
        self.sizes = [plain * directions] + [directions] * len(self.residual)

    @property
    def layers(self) -> list[list[nn.Parameter]]:
        """Input and recurrent weight, then the two biases, of each layer and direction from the bottom up."""
        return [own for part in self.modules() if isinstance(part, nn.RNNBase) for own in part.all_weights]

    def forward(self, x: Steps, start: tuple[Tensor, ...] | None = None) -> tuple[Steps, tuple[Tensor, ...]]:
        """Run x (T, N, X), packed or not, from ``start``: h and (LSTM) c, each (L * D, N, H); 0 if left out.

        Returns the outputs (T, N, D * H) and the last states, shaped as ``start``.
        """
        starts: list[tuple[Tensor, ...] | None] = [None] * len(self.sizes)
        if start is not None:
            starts = list(zip(*(part.split_with_sizes(self.sizes) for part in start), strict=True))
        x, final = self._run(self.plain, x, starts[0])
        finals = [final]
        for rnn, state in zip(self.residual, starts[1:], strict=True):
            read = dropout(_entries(x), self.dropout, self.training)
            out, final = self._run(rnn, _like(x, read), state)
            x = _like(x, _entries(x) + _entries(out))
            finals.append(final)
        return x, tuple(torch.cat(parts) for parts in zip(*finals, strict=True))

    def _run(
        self, rnn: nn.Module, x: Steps, state: tuple[Tensor, ...] | None
    ) -> tuple[Steps, tuple[Tensor, ...]]:
        """Call one of torch's modules; a GRU takes and gives its h bare, here it is a tuple of one."""
        out, final = rnn(x, state if state is None or self.lstm else state[0])
        return out, final if self.lstm else (final,)


def _entries(x: Tensor | PackedSequence) -> Tensor:
    return x.data if isinstance(x, PackedSequence) else x


def _like(x: Steps, entries: Tensor) -> Steps:
    """``entries`` packed as ``x`` is, or bare where ``x`` is."""
    return x._replace(data=entries) if isinstance(x, PackedSequence) else entries


class _StepwiseLayer:
    """One layer of a ``StepwiseStack``; ``known`` (T, N, G) is the part of its gates that is known beforehand."""

    def __init__(self, lstm: bool, known: Tensor, fed: Tensor, weight: Tensor, bias: Tensor) -> None:
        self.lstm = lstm
        self.fed = StepwiseLinear(fed, known)
        # The gates of an LSTM are plain sums, so both products add to one; a GRU scales the second by r.
        self.recurrent = StepwiseLinear(
            weight, self.fed.offsets if lstm else bias.to(known.dtype).expand_as(known)
        )
        self.bias = self.recurrent.offsets.unbind()
        self.known = self.bias if lstm else self.fed.offsets.unbind()

    def __call__(self, t: int, fed: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self.fed(self.known[t], fed)
        if self.lstm:
            return lstm_step(self.recurrent(inputs, h), c)
        return gru_step(inputs, self.recurrent(self.bias[t], h), h), c


class StepwiseStack:
    """A ``RecurrentStack`` of one direction a step at a time, for an input that is only known in part.

    The first X inputs are known beforehand, and their share of the gates is computed for all steps at once;
    the last F are fed step by step.
    """

    def __init__(self, stack: RecurrentStack, known: Tensor) -> None:
        """Prepare one run of ``stack`` over known inputs (T, N, X)."""
        self.stack, self.layers = stack, []
        lstm, size = stack.lstm, known.size(-1)
        for layer, (weight_x, weight_h, bias_x, bias_h) in enumerate(stack.layers):
            bias = bias_x + bias_h if lstm else bias_x
            if layer == 0:
                gates, fed = linear(known, weight_x[:, :size], bias), weight_x[:, size:]
            else:
                gates, fed = bias.to(gates.dtype).expand_as(gates), weight_x
            self.layers.append(_StepwiseLayer(lstm, gates, fed, weight_h, bias_h))

    def __call__(self, t: int, fed: Tensor, h: list[Tensor], c: list[Tensor]) -> Tensor:
        """Do step ``t`` with fed (N, F): replace h and c, (N, H) a layer, and return the output (N, H).

        A GRU leaves c alone.
        """
        out = fed
        for i, layer in enumerate(self.layers):
            read = out if i == 0 else dropout(out, self.stack.dropout, self.stack.training)
            h[i], c[i] = layer(t, read, h[i], c[i])
            out = h[i] if i < MAX_PLAIN_LAYERS else out + h[i]
        return out
