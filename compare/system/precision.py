"""Precisions: fp32, and bf16, which trains by autocast over fp32 weights and decodes with bf16 weights."""

import copy
from itertools import chain
from typing import TypeVar

import torch
from torch import nn

from compare.system.packed_linear import pack_linear_layers

Module = TypeVar("Module", bound=nn.Module)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Data type of matrix products by its name in configs and results; auto has been replaced by one of them."""


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context manager in which a model computes in ``precision``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=DTYPES[precision] is torch.bfloat16)


def precision_of(model: nn.Module) -> str:
    """Return the precision of a model's weights, in which it decodes."""
    dtype = next(model.parameters()).dtype
    return next(name for name, known in DTYPES.items() if known is dtype)


def for_decoding(model: Module, precision: str) -> Module:
    """Return a copy that decodes faster: bf16 weights beat autocast, packed ones plain ones on a CPU.

    In fp32 the copy shares its parameters with the model. The weights of both must not change afterwards.
    """
    dtype = DTYPES[precision]
    if dtype is torch.float32:
        shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
        decoder = copy.deepcopy(model, shared)
    else:
        decoder = copy.deepcopy(model).to(dtype)
    for module in list(decoder.modules()):
        prepare = getattr(module, "prepare_decoding", None)
        if prepare is not None:
            prepare()
    pack_linear_layers(decoder)
    return decoder
