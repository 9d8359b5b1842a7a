"""Weights as safetensors, trainer states as plain tensors; loading never runs code."""

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
    """Write tensors by name; tied ones are written once (see ``model_weights``)."""
    write_atomically(path, safetensors.torch.save({k: v.contiguous() for k, v in weights.items()}))


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors by name.

    Raises:
        ValueError: the file is missing, cut short or not safetensors.
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
    """The parameters and buffers of a model, each shared tensor once, under its first name."""
    named: dict[str, Tensor] = dict(model.named_parameters())  # leaves out what is tied to an earlier one
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in model.state_dict()}
    return {name: tensor.detach() for name, tensor in (named | buffers).items()}


def set_weights(model: nn.Module, weights: Mapping[str, Tensor], place: str) -> None:
    """Copy ``weights`` into ``model``; a name or shape that does not fit is an error that names ``place``."""
    own = model_weights(model)
    if own.keys() != weights.keys():
        odd = sorted(own.keys() ^ weights.keys())[0]
        raise ValueError(f"{place}: weights of another model: {odd!r} is in one of them only")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            raise ValueError(
                f"{place}: {name} is {tuple(weights[name].shape)} but the model's is {tuple(tensor.shape)}: "
                "the weights belong to another size or vocabulary"
            )
        tensor.copy_(weights[name])


def average(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of several files' weights, taken in float64."""
    total = {name: tensor.double() for name, tensor in load_weights(paths[0]).items()}
    for path in paths[1:]:
        for name, tensor in load_weights(path).items():
            total[name] += tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a trainer's state: tensors, numbers, strings, and dicts and lists of them."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_atomically(path, buffer.getvalue())


def load_state(path: Path) -> dict[str, Any] | None:
    """Read a trainer's state, None where there is none.

    Raises:
        ValueError: the file is damaged or holds anything but plain data.
    """
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for damaged files
        raise ValueError(
            f"{path}: damaged trainer state ({type(error).__name__}): "  # torch's text advises what is unsafe
            f"delete {path.parent} to train this row anew"
        ) from None
    return state
