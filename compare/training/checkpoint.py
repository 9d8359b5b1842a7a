"""Weights as safetensors and trainer states as plain tensors; loading never executes code."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from compare.config.schema import current_names
from data.text.files import write_atomically


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write named tensors to a safetensors file, atomically."""
    write_atomically(path, safetensors.torch.save({k: v.contiguous() for k, v in weights.items()}))


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read named tensors from a safetensors file, to the CPU.

    Raises:
        ValueError: the file is missing, truncated or not safetensors.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such weights: has this run been trained?")
    try:
        return current_names("parameter", safetensors.torch.load_file(path))
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise ValueError(
            f"{path}: not a readable safetensors file ({error}): delete {path.parent.parent} and run again"
        ) from None


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Collect parameters and persistent buffers by name; a tied tensor appears once, under its first name."""
    named: dict[str, Tensor] = dict(model.named_parameters())  # without repeats of tied parameters
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in model.state_dict()}
    return {name: tensor.detach() for name, tensor in (named | buffers).items()}


def set_weights(model: nn.Module, weights: Mapping[str, Tensor], context: str) -> None:
    """Copy named tensors into a model, in place.

    Args:
        model: the model.
        weights: tensors by the names of ``model_weights``.
        context: beginning of error messages, such as the file of the weights.

    Raises:
        ValueError: names or shapes differ from the model's.
    """
    parameters = model_weights(model)
    if parameters.keys() != weights.keys():
        name = sorted(parameters.keys() ^ weights.keys())[0]
        raise ValueError(
            f"{context}: weights of another model: {name!r} is only in the file or only in the model"
        )
    for name, tensor in parameters.items():
        if tensor.shape != weights[name].shape:
            raise ValueError(
                f"{context}: {name} is {tuple(weights[name].shape)} but the model's is {tuple(tensor.shape)}"
                ": the weights belong to another size or vocabulary"
            )
        tensor.copy_(weights[name])


def average(paths: list[Path]) -> dict[str, Tensor]:
    """Average the weights of several checkpoints; sums are in float64, the result is float32."""
    total = {name: tensor.double() for name, tensor in load_weights(paths[0]).items()}
    for path in paths[1:]:
        for name, tensor in load_weights(path).items():
            total[name] += tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a trainer state (tensors, numbers, strings, dicts and lists of them), atomically."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_atomically(path, buffer.getvalue())


def load_state(path: Path) -> dict[str, Any] | None:
    """Read a trainer state; returns None if there is none.

    Raises:
        ValueError: the file is damaged or contains anything but plain data.
    """
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for damaged files
        # torch's own message is left out: it suggests loading with weights_only=False.
        raise ValueError(
            f"{path}: damaged trainer state ({type(error).__name__}): "
            f"delete {path.parent} to train this run again"
        ) from None
    return state
