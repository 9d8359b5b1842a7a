"""Models without storage, on torch's meta device: their shapes and their size in bytes."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from compare.models.registry import Architecture, build, family_of
from compare.system.hints import first_line
from compare.system.memory import physical_memory_bytes

if TYPE_CHECKING:
    from compare.models.registry import Model

GIB = 2**30
FILLS = {
    *(Tensor.normal_, Tensor.uniform_, Tensor.zero_, Tensor.fill_),
    *(nn.init.normal_, nn.init.uniform_, nn.init.constant_, nn.init.kaiming_uniform_),
}
"""Functions that give a tensor its values and return it."""


class SkipInitialisation(TorchFunctionMode):
    """Leaves out what fills tensors: without storage it has no effect, and takes half of the time."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the tensor as it is where ``func`` is one of ``FILLS``; call any other function."""
        if func in FILLS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def build_meta_model(architecture: Architecture, src_vocabulary: int, tgt_vocabulary: int) -> "Model":
    """Build a model on the meta device, which allocates nothing.

    Raises:
        ValueError: a tensor would have more bytes than 64 bits can count.
    """
    try:
        with torch.device("meta"), SkipInitialisation():
            return build(architecture, src_vocabulary, tgt_vocabulary)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise ValueError(
            f"no machine can hold this model ({first_line(error)}): {_remedy(architecture)}"
        ) from None


def training_bytes(model: "Model", *, ema: bool) -> int:
    """Count the bytes of weights, gradients, AdamW's two moments and, with ``ema``, a moving average."""
    return sum(parameter.nbytes for parameter in model.parameters()) * (5 if ema else 4)


def ensure_fits_memory(
    architecture: Architecture,
    src_vocabulary: int,
    tgt_vocabulary: int,
    *,
    training: bool,
    context: str,
    ema: bool = False,
) -> "Model":
    """Refuse a model whose weights this machine's memory cannot hold, before anything is allocated.

    Args:
        architecture: config of the model.
        src_vocabulary: size of the source vocabulary.
        tgt_vocabulary: size of the target vocabulary.
        training: count gradients and AdamW's two moments too, not the weights alone.
        context: beginning of error messages.
        ema: count a moving average of the weights in training too.

    Returns:
        The model on the meta device.

    Raises:
        ValueError: the memory is too small; the error says what is needed and what to lower.
    """
    try:
        model = build_meta_model(architecture, src_vocabulary, tgt_vocabulary)
    except ValueError as error:
        raise ValueError(f"{context}: {error}") from None
    weights = sum(parameter.nbytes for parameter in model.parameters())
    needed = training_bytes(model, ema=ema) if training else weights
    memory = physical_memory_bytes()
    if memory is not None and needed > memory:
        average = ", moving average" if ema else ""
        parts = f"weights{average}, gradients and optimizer" if training else "weights"
        raise ValueError(
            f"{context}: needs {needed / GIB:,.1f} GiB for {parts}, but this machine has "
            f"{memory / GIB:,.1f} GiB: {_remedy(architecture)}"
        )
    return model


def _remedy(architecture: Architecture) -> str:
    """Name the settings that make a model smaller."""
    return f"lower {', '.join(family_of(architecture).width_fields)}, the number of layers or vocabulary.size"
