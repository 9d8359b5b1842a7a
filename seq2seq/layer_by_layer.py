"""Recurrent layers on a GPU: one call of cuDNN per layer, in the precision that is asked for.

Torch's own call of cuDNN has two properties that training must not have: autocast always casts it to float16,
also if the model is to compute in bfloat16, and the dropout between its layers has a hidden random state that
no checkpoint can contain.

Shapes: L layers, D directions, N batch rows, H hidden size of a layer in one direction.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

Steps = TypeVar("Steps", Tensor, PackedSequence)

FIRST_CUDNN_WITH_BF16 = 91300
"""Version of cuDNN, as torch numbers it, from which its recurrent layers compute in bfloat16."""


def has_bf16_layers() -> bool:
    """Return whether cuDNN computes recurrent layers in bfloat16; else they compute in float32."""
    version: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return version is not None and version >= FIRST_CUDNN_WITH_BF16


def run_layer_by_layer(
    rnn: nn.RNNBase, x: Steps, state: tuple[Tensor, ...] | None
) -> tuple[Steps, tuple[Tensor, ...]]:
    """Run ``nn.LSTM`` or ``nn.GRU`` layers, with torch's dropout between them.

    Args:
        rnn: the layers, with biases and time first.
        x: inputs, packed or (T, N, X).
        state: initial h and (LSTM) c, (L * D, N, H) each; None: 0.

    Returns:
        The outputs, packed as ``x`` is or (T, N, D * H), and the final states, shaped as ``state``.
    """
    packed = x if isinstance(x, PackedSequence) else None
    entries = x.data if isinstance(x, PackedSequence) else x
    dtype, used = _dtypes(rnn, entries.device.type)
    directions = 2 if rnn.bidirectional else 1
    rows = entries.size(1) if packed is None else int(packed.batch_sizes[0])
    if state is None:
        zeros = entries.new_zeros(rnn.num_layers * directions, rows, rnn.hidden_size, dtype=used)
        state = (zeros, zeros) if rnn.mode == "LSTM" else (zeros,)
    elif packed is not None and packed.sorted_indices is not None:
        state = tuple(part.index_select(1, packed.sorted_indices) for part in state)
    starts = zip(*(part.to(used).chunk(rnn.num_layers) for part in state), strict=True)
    weights = rnn.all_weights
    finals = []
    for layer, start in enumerate(starts):
        if layer:
            entries = dropout(entries, rnn.dropout, rnn.training)
        flat = _flatten(weights[layer * directions : (layer + 1) * directions], used)
        entries, *final = _run_layer(
            rnn, entries.to(used), packed, start, flat, bidirectional=rnn.bidirectional
        )
        finals.append(final)
    final_state = tuple(torch.cat(parts).to(dtype) for parts in zip(*finals, strict=True))
    entries = entries.to(dtype)
    if packed is None:
        return entries, final_state
    if packed.unsorted_indices is not None:
        final_state = tuple(part.index_select(1, packed.unsorted_indices) for part in final_state)
    return packed._replace(data=entries), final_state


def run_on_gpu(rnn: nn.RNNBase, x: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
    """Run one direction of one layer over x (T, N, X), from states of 0, without waiting for the GPU.

    Args:
        rnn: a module of that kind of layer and hidden size.
        x: inputs, padding included, (T, N, X).
        weights: the weights to use: input weight (G, X), recurrent weight (G, H) and both biases (G,).

    Returns:
        The outputs (T, N, H) and the final h and (LSTM) c, (1, N, H) each.
    """
    dtype, used = _dtypes(rnn, x.device.type)
    zeros = x.new_zeros(1, x.size(1), rnn.hidden_size, dtype=used)
    start = (zeros, zeros) if rnn.mode == "LSTM" else (zeros,)
    results = _run_layer(rnn, x.to(used), None, start, _flatten([weights], used), bidirectional=False)
    return tuple(part.to(dtype) for part in results)


def _dtypes(rnn: nn.RNNBase, device_type: str) -> tuple[torch.dtype, torch.dtype]:
    """Return the type of the layers' outputs, and the type that they can compute in."""
    if torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)
    else:
        dtype = rnn.all_weights[0][0].dtype
    return dtype, torch.float32 if dtype is torch.bfloat16 and not has_bf16_layers() else dtype


def _flatten(weights: Sequence[Sequence[Tensor]], dtype: torch.dtype) -> list[Tensor]:
    """Copy the weights of a layer into one block of memory, in cuDNN's order: all matrices, then all biases.

    Otherwise cuDNN's caller makes such a copy, with a warning. Returns them in the order of ``weights``.
    """
    ordered = [weight for direction in weights for weight in direction]
    in_memory = sorted(range(len(ordered)), key=lambda i: -ordered[i].dim())
    block = torch.cat([ordered[i].flatten() for i in in_memory]).to(dtype)
    parts = dict(zip(in_memory, block.split_with_sizes([ordered[i].numel() for i in in_memory]), strict=True))
    return [parts[i].view(weight.shape) for i, weight in enumerate(ordered)]


def _run_layer(
    rnn: nn.RNNBase,
    entries: Tensor,
    packed: PackedSequence | None,
    start: tuple[Tensor, ...],
    flat: list[Tensor],
    *,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    """Run one layer in the type of ``entries``; returns its outputs and its final states."""
    settings = (True, 1, 0.0, rnn.training, bidirectional)  # biases, layers, dropout of cuDNN
    with torch.autocast(entries.device.type, enabled=False):
        if rnn.mode == "LSTM":
            if packed is None:
                return torch.lstm(entries, start, flat, *settings, False)
            return torch.lstm(entries, packed.batch_sizes, start, flat, *settings)
        if packed is None:
            return torch.gru(entries, start[0], flat, *settings, False)
        return torch.gru(entries, packed.batch_sizes, start[0], flat, *settings)
