"""Weights as safetensors and trainer states as plain tensors; loading never executes code."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from compare.system.messages import abbreviate
from data.files import write_atomically

# Names of the files that training writes to a run folder.


METRICS = "metrics.jsonl"
"""Metrics log: one JSON object per line."""
CHECKPOINTS = "checkpoints"
"""Folder of the weights and the trainer state."""
FINAL = "final.safetensors"
"""Weights chosen at the end of training, in the folder of checkpoints."""
WEIGHTS = f"{CHECKPOINTS}/{FINAL}"
"""The same, in the folder of the run, as the hashes of result.json name it."""
SAVED = "model.safetensors"
"""The same in a folder of ``save_pretrained``."""
STATE = "trainer.pt"
"""State from which training resumes, in the folder of checkpoints."""


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
        return safetensors.torch.load_file(path)
    # KeyError, TypeError: an element type that torch or safetensors lacks
    except (safetensors.SafetensorError, OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        in_run = path.parent.name == CHECKPOINTS
        remedy = f"delete {path.parent.parent} and run again" if in_run else "save or download it again"
        raise ValueError(f"{path}: not a readable safetensors file ({error}): {remedy}") from None


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Collect parameters and persistent buffers by name; a tied tensor appears once, under its first name."""
    named: dict[str, Tensor] = dict(model.named_parameters())  # without repeats of tied parameters
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in model.state_dict()}
    return {name: tensor.detach() for name, tensor in (named | buffers).items()}


def set_weights(model: nn.Module, weights: Mapping[str, Tensor], context: str) -> None:
    """Copy named tensors into a model, in place; one on the meta device only says whether they fit.

    Args:
        model: the model.
        weights: tensors by the names of ``model_weights``.
        context: beginning of error messages, such as the file of the weights.

    Raises:
        ValueError: names or shapes differ from the model's, or a value is NaN or infinite.
    """
    parameters = model_weights(model)
    if parameters.keys() != weights.keys():
        name = sorted(parameters.keys() ^ weights.keys())[0]
        raise ValueError(
            f"{context}: weights of another model: "
            f"{abbreviate(name)} is only in the file or only in the model"
        )
    for name, parameter in parameters.items():
        found, expected = tuple(weights[name].shape), tuple(parameter.shape)
        if found != expected:
            raise ValueError(
                f"{context}: {name} is {found} but the model's is {expected}"
                ": the weights belong to another size or vocabulary"
            )
        if not weights[name].isfinite().all():
            raise ValueError(f"{context}: {name} holds NaN or infinity: these weights cannot be used")
    for name, parameter in parameters.items():
        parameter.copy_(weights[name])


def average(paths: list[Path]) -> dict[str, Tensor]:
    """Average the weights of several checkpoints; sums are in float64, the result is float32.

    Counters, which have no mean, are those of the last checkpoint.
    """
    weights = load_weights(paths[0])
    total = {name: tensor.double() for name, tensor in weights.items() if tensor.is_floating_point()}
    for path in paths[1:]:
        weights = load_weights(path)
        for name in total:
            total[name] += weights[name].double()
    return weights | {name: (tensor / len(paths)).float() for name, tensor in total.items()}


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
