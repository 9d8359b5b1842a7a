"""Code that only speed needs: layers, packing, gradients of all steps at once, joined gates, tanh.

Delete this file and everything works, slower: each module imports these in place of its plain functions of
the same name. The gains are those of benchmarks/LOG.md and of the commits that brought them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence

from .cells import Cell, State, Step, Steps, TorchCell, activate, run_step_by_step, run_torch_layer


class Packing:
    """Order of the real tokens of a batch: position by position, the longest sentence first.

    The host computes all indices and copies them at once, while torch's own packing waits for the GPU. The
    gain has not been measured.
    """

    def __init__(self, lengths: Tensor, size: int, device: torch.device) -> None:
        longest_first, sentences = torch.sort(lengths, descending=True)
        position = torch.arange(int(longest_first[0])).unsqueeze(1)  # (longest length, 1)
        is_real = position < longest_first  # (longest length, B)
        tokens = (sentences * size + position)[is_real]  # index of each real token among all B * S, (N,)
        inverse = torch.empty_like(sentences).scatter_(0, sentences, torch.arange(len(sentences)))
        indices = torch.cat((tokens, sentences, inverse))
        indices = indices.pin_memory() if device.type == "cuda" else indices
        indices = indices.to(device, non_blocking=True)
        sizes = [len(tokens), len(sentences), len(sentences)]
        self.tokens, self.sentences, self.inverse = indices.split_with_sizes(sizes)
        self.batch_sizes = is_real.sum(1)

    def pack(self, x: Tensor) -> PackedSequence:
        """Take the real tokens out of x (B, S, E)."""
        entries = x.flatten(0, 1).index_select(0, self.tokens)
        return PackedSequence(entries, self.batch_sizes, self.sentences, self.inverse)

    def unpack(self, packed: PackedSequence, size: int) -> Tensor:
        """Put the real tokens back: (B, ``size``, E), 0 in the padding; the inverse of ``pack``."""
        entries = packed.data
        padded = entries.new_zeros(len(self.inverse) * size, entries.size(1))
        return padded.index_copy(0, self.tokens, entries).view(-1, size, entries.size(1))


# A layer of torch over all steps.


def run_layer(layer: nn.RNNBase, x: Steps, state: State | None) -> tuple[Steps, State]:
    """Run a layer in the fastest way: on a GPU by cuDNN; packed steps on a CPU by oneDNN or the loop.

    Torch's own loop over packed steps adds a gradient of all of them at every step. For a GRU
    ``run_step_by_step`` takes less time, forward and backward pass of one bidirectional layer on one core: 47
    instead of 62 ms for 14 steps, 69 instead of 155 for 60 (fp32).
    """
    if x.data.is_cuda:
        return run_cudnn_layer(layer, x, state)
    if isinstance(x, PackedSequence):
        if isinstance(layer, nn.GRU) and torch.is_grad_enabled():
            return run_step_by_step(layer, x, state, 0.0)
        if isinstance(layer, nn.LSTM) and prefers_rectangle(x):
            return run_padded_lstm(layer, x)
    return run_torch_layer(layer, x, state)


# An LSTM on a CPU: one call of oneDNN, which reads the padding too. The direction from the right begins
# there, and its state must stay 0. So an additional input is 1 in the padding: it closes the input gate and
# opens the forget gate, so that c stays as it is.

HOLD = 1e4
"""Weight of that input; the sigmoid of it is 1, and of its negative 0, exactly."""


def prefers_rectangle(x: PackedSequence) -> bool:
    """Return whether steps are on a processor, and would fill at least half of a rectangle."""
    return x.data.device.type == "cpu" and 2 * len(x.data) >= len(x.batch_sizes) * int(x.batch_sizes[0])


def run_padded_lstm(rnn: nn.LSTM, x: PackedSequence) -> tuple[PackedSequence, tuple[Tensor, ...]]:
    """Run one layer from a state of zeros; returns what ``run_cudnn_layer`` does.

    Forward and backward pass of a layer take 0.4 to 0.5 times as long as torch's loop at 60 words, 0.8 to 1.0
    at 14 (bf16, fp32; one AMD core), and an update of Bahdanau's model 0.97.
    """
    rows, size = int(x.batch_sizes[0]), rnn.hidden_size
    weights: Sequence[Sequence[Tensor]] = rnn.all_weights
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weights[0][0].dtype
    is_real = torch.arange(rows) < x.batch_sizes.unsqueeze(1)  # (T, N)
    positions = is_real.flatten().nonzero().squeeze(1)
    entries = x.data.to(dtype)
    if len(entries) < is_real.numel():
        padded = entries.new_zeros(is_real.numel(), entries.size(1)).index_copy(0, positions, entries)
        entries = torch.cat((padded, (~is_real).view(-1, 1).to(dtype)), dim=1)
        hold = weights[0][0].new_zeros(4, size)
        hold[0], hold[1] = -HOLD, HOLD
        weights = [[torch.cat((first, hold.view(-1, 1)), dim=1), *others] for first, *others in weights]
    entries, zeros = entries.view(*is_real.shape, -1), entries.new_zeros(len(weights), rows, size)
    flat = [weight.to(dtype) for direction in weights for weight in direction]
    run: Any = torch.lstm
    with torch.autocast("cpu", enabled=False):
        outputs, h, c = run(
            entries, (zeros, zeros), flat, True, 1, 0.0, rnn.training, rnn.bidirectional, False
        )
    last = (is_real.sum(0) - 1).view(1, -1, 1).expand(1, -1, size)
    h = torch.cat((outputs[..., :size].gather(0, last), h[1:]))  # in the padding h follows the output gate
    if x.unsorted_indices is not None:
        h, c = (part.index_select(1, x.unsorted_indices) for part in (h, c))
    return x._replace(data=outputs.flatten(0, 1).index_select(0, positions)), (h, c)


# A recurrent layer on a GPU: one call of cuDNN, in the precision that is asked for. Torch's own call always
# casts to float16 under autocast, also if the model is to compute in bfloat16.
#
# Shapes: D directions, N batch rows, H hidden size in one direction.


FIRST_CUDNN_WITH_BF16 = 91300
"""Version of cuDNN, as torch numbers it, from which its recurrent layers compute in bfloat16."""
FIRST_GPU_WITH_BF16 = (8, 0)


def has_bf16_layers() -> bool:
    """Return whether cuDNN computes recurrent layers in bfloat16; else they compute in float32."""
    version: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return (
        version is not None
        and version >= FIRST_CUDNN_WITH_BF16
        and torch.cuda.is_available()
        and torch.cuda.get_device_capability() >= FIRST_GPU_WITH_BF16
    )


def run_cudnn_layer(
    rnn: nn.RNNBase, x: Steps, state: tuple[Tensor, ...] | None
) -> tuple[Steps, tuple[Tensor, ...]]:
    """Run one layer of torch in one call; arguments as for ``run_step_by_step``.

    The gain has not been measured.
    """
    packed = x if isinstance(x, PackedSequence) else None
    entries = x.data if isinstance(x, PackedSequence) else x
    kind, weights = entries.device.type, rnn.all_weights
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weights[0][0].dtype
    used = torch.float32 if dtype is torch.bfloat16 and not has_bf16_layers() else dtype
    if state is None:
        rows = entries.size(1) if packed is None else int(packed.batch_sizes[0])
        zeros = entries.new_zeros(len(weights), rows, rnn.hidden_size)
        state = (zeros, zeros) if rnn.mode == "LSTM" else (zeros,)
    start = tuple(part.to(used) for part in state)
    run: Any = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN_TANH": torch.rnn_tanh}[rnn.mode]
    arguments: list[Any] = [start if rnn.mode == "LSTM" else start[0], _flatten(weights, used)]
    keeps = rnn.training or torch.is_grad_enabled()  # the backward pass needs the states of all steps
    arguments += [True, 1, 0.0, keeps, rnn.bidirectional]  # biases, layers, dropout of cuDNN
    with torch.autocast(kind, enabled=False):
        if packed is None:
            entries, *final = run(entries.to(used), *arguments, False)
        else:
            entries, *final = run(entries.to(used), packed.batch_sizes, *arguments)
    entries, final = entries.to(dtype), [part.to(dtype) for part in final]
    if packed is None:
        return entries, tuple(final)
    if packed.unsorted_indices is not None:
        final = [part.index_select(1, packed.unsorted_indices) for part in final]
    return packed._replace(data=entries), tuple(final)


def _flatten(weights: Sequence[Sequence[Tensor]], dtype: torch.dtype) -> list[Tensor]:
    """Copy a layer's weights into one block in cuDNN's order, or its caller would, with a warning."""
    ordered = [weight for direction in weights for weight in direction]
    in_memory = sorted(range(len(ordered)), key=lambda i: -ordered[i].dim())
    block = torch.cat([ordered[i].flatten() for i in in_memory]).to(dtype)
    parts = dict(zip(in_memory, block.split_with_sizes([ordered[i].numel() for i in in_memory]), strict=True))
    return [parts[i].view(weight.shape) for i, weight in enumerate(ordered)]


# Products of a loop over time steps, each with one gradient of all steps.


def joins_gradients() -> bool:
    """Return whether to compute the gradients of all steps at once; ``torch.compile`` traces too early."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def _cast_once(matrix: Tensor) -> Tensor:
    kind = matrix.device.type
    is_cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # not on "meta"
    if is_cast and matrix.dtype != torch.float64:  # autocast leaves float64 as it is
        return matrix.to(torch.get_autocast_dtype(kind))
    return matrix


class _GradientOfAllSteps(torch.autograd.Function):
    """The identity on the offsets of a loop; its backward pass computes a matrix's gradient of all steps."""

    @staticmethod
    def forward(ctx: Any, offsets: Tensor, matrix: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs = inputs
        return offsets.view_as(offsets)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        # once_differentiable would leave out a part of the second derivative, in silence.
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a recurrent decoder that runs step by step has no second derivatives: its weight gradients "
                "are computed once for all steps, outside the graph"
            )
        if grad.dim() == 3:  # one weight for all rows, (O, I)
            inputs = torch.cat(ctx.inputs).to(grad.dtype)  # (T N, I)
            return grad, grad.flatten(0, 1).t() @ inputs, None
        inputs = torch.cat(ctx.inputs, dim=1).to(grad.dtype)  # a matrix for each row, (N, I, O); (N, T, I)
        return grad, inputs.transpose(1, 2) @ grad.squeeze(2).transpose(0, 1), None


class StepwiseLinear:
    """y[t] = offset[t] + the sum of W x[t] over some matrices W, for the time steps t of a loop.

    Call it exactly once for each step, in order: the backward pass pairs inputs with offsets by this order.
    14 steps of an LSTM of 512 units, 128 sentences, forward and backward pass: 250 instead of 260 ms of
    processor time (fp32, one thread of a shared AMD EPYC, in turn, median of 7).
    """

    def __init__(self, offsets: Tensor, *weights: Tensor) -> None:
        self._matrices = [_cast_once(weight.to(offsets.dtype)).t() for weight in weights]
        self._inputs: list[list[Tensor]] | None = None
        if joins_gradients():  # they flow through the offsets only
            self._matrices = [matrix.detach() for matrix in self._matrices]
            self._inputs = [[] for _ in weights]
            for weight, inputs in zip(weights, self._inputs, strict=True):
                offsets = _GradientOfAllSteps.apply(offsets, weight, inputs)  # type: ignore[no-untyped-call]
        self._offsets = iter(offsets.unbind())

    def __call__(self, *x: Tensor) -> Tensor:
        """Compute the next step from one x (N, I) per matrix: (N, O)."""
        result = next(self._offsets)
        for i, matrix in enumerate(self._matrices):
            if self._inputs is not None:
                self._inputs[i].append(x[i].detach())
            result = torch.addmm(result, x[i], matrix)
        return result


class StepwiseProduct:
    """y[t] = x[t] M for the time steps of a loop with gradients, M (B, I, O) or (B, heads, I, O)."""

    def __init__(self, matrix: Tensor, steps: int) -> None:
        matrix = _cast_once(matrix).flatten(0, -3)
        self._inputs: list[Tensor] = []
        zeros = matrix.new_zeros(1).expand(steps, len(matrix), 1, matrix.size(2))
        offsets: Tensor = _GradientOfAllSteps.apply(zeros, matrix, self._inputs)  # type: ignore[no-untyped-call]
        self._offsets = iter(offsets.unbind())
        self._matrix = matrix.detach()

    def __call__(self, x: Tensor) -> Tensor:
        """Compute the next step from x (B, 1, I) or (B, heads, 1, I): (B, 1, O) or (B, heads, 1, O)."""
        rows = x.flatten(0, -3).to(self._matrix.dtype)
        self._inputs.append(rows.detach())
        return torch.baddbmm(next(self._offsets), rows, self._matrix).view(*x.shape[:-1], -1)


def join_gradients(attention: Any, source: Any, steps: int) -> Any:
    """Return keys and values whose products have one gradient product for all steps of a loop.

    Updates are 1.05 times as fast with score "general", 1.04 with "additive" (fp32, one thread).
    """
    if not joins_gradients():
        return source
    heads, keys = attention.num_heads, source.keys
    if attention.is_product:
        keys = StepwiseProduct(keys.view(*keys.shape[:2], heads, -1).permute(0, 2, 3, 1), steps)
    values = source.values.view(*source.values.shape[:2], heads, -1).transpose(1, 2)
    return source._replace(keys=keys, values=StepwiseProduct(values, steps))


def product_scores(query: Tensor, keys: Tensor | StepwiseProduct, heads: int) -> Tensor:
    """Compute the plain scores, also for keys of ``join_gradients``."""
    query = query.view(*query.shape[:2], heads, -1).transpose(1, 2)
    if isinstance(keys, StepwiseProduct):
        return keys(query)
    return query @ keys.view(*keys.shape[:2], heads, -1).permute(0, 2, 3, 1)


def weighted_sum(weights: Tensor, values: Tensor | StepwiseProduct) -> Tensor:
    """Compute the plain sum, also for values of ``join_gradients``."""
    if isinstance(values, StepwiseProduct):
        return values(weights).transpose(1, 2).flatten(2)
    split = values.view(*values.shape[:2], weights.size(1), -1).transpose(1, 2)
    return (weights.to(values.dtype) @ split).transpose(1, 2).flatten(2)


# Steps of a search: one product per layer and step.


class JoinedGates(nn.ModuleList):
    """The weights of each layer, joined to one: W [x; h] + b."""

    def steps(self, inputs: Tensor) -> list[Step]:
        """Return the next step of each layer; ``inputs`` (1, N, X) of the lowest one are not fed back."""
        return [_join_layer(layer, () if i else (inputs[0],)) for i, layer in enumerate(self)]


def join_gates(cells: Sequence[Cell]) -> JoinedGates | None:
    """Join the weights of each layer of an LSTM or plain RNN for the steps of a search.

    The joined weights are copies, which later changes of the weights do not reach. Other cells have none. A
    search by Luong's general model is 1.13 to 1.15 times as fast with joined gates and the
    packed layers of compare/fast.py, 1.04 to 1.09 times with packed layers alone.
    """
    layers = []
    for cell in cells:
        if not isinstance(cell, TorchCell) or cell.recurrent_bias is not None:
            return None
        weight = torch.cat((cell.weight_ih, cell.weight_hh), dim=1).detach()
        joined = nn.Linear(weight.size(1), weight.size(0), device="meta")
        joined.weight = nn.Parameter(weight, requires_grad=False)
        joined.bias = nn.Parameter(cell.input_bias.detach(), requires_grad=False)
        layers.append(joined)
    return JoinedGates(layers)


def _join_layer(joined: nn.Module, inputs: tuple[Tensor, ...]) -> Step:
    """Return the next step of a layer; ``inputs`` (N, X) are not fed back."""
    return lambda x, h, c: activate(joined(torch.cat((*inputs, x, h), dim=-1)), h, c)


# The energy v . tanh(query + key) of additive attention, the largest tensor of a model.


def prepare_keys(keys: Tensor) -> Tensor:
    """Return the keys of ``tanh_energy``, once per sentence: twice the keys, in fp32 on a processor.

    A processor computes tanh faster in fp32, and fp32 keys need no casts later. In bf16 at the sizes of
    configs/speed.toml, an update of the additive models takes 1 / 1.06 of the time, greedy search 1 / 1.11,
    and a beam of 5 takes 1 / 1.20 (one thread of an AMD EPYC).
    """
    if is_half(keys):
        return keys if keys.is_cuda else 2 * keys.float()
    return 2 * keys


def tanh_energy(query: Tensor, keys: Tensor, vectors: Tensor) -> Tensor:
    """Compute v . tanh(query + key), as tanh(x) = 2 sigmoid(2 x) - 1 where that is precise enough.

    A sigmoid takes torch a fifth of the time of a tanh: forced search by the additive model 282 -> 392
    sentences/s (greedy), 76 -> 114 (beam 5).
    """
    if is_half(keys):
        energy = linear((query + keys.unsqueeze(1)).tanh_(), vectors)  # (B, Q, S, heads)
    else:
        query, vectors = query.to(keys.dtype), vectors.to(keys.dtype)
        device = "cpu" if keys.is_meta else keys.device.type  # autocast is not available on "meta"
        with torch.autocast(device, enabled=False):  # it would round the sigmoids
            doubled = 2 * query + keys.unsqueeze(1)  # (B, Q, S, A)
            energy = 2 * linear(doubled.sigmoid_(), vectors) - vectors.sum(1)
    return energy.permute(0, 3, 1, 2)


def is_half(x: Tensor) -> bool:
    """Return whether x is of a 16-bit type."""
    return x.dtype in (torch.bfloat16, torch.float16)
