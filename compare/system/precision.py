"""Precisions: fp32, and bf16, which trains by autocast over fp32 weights and decodes with bf16 weights."""

import copy
from typing import TypeVar

import torch
from torch import nn

from compare.system.decoding_copy import decoding_copy

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
    """Return a copy for search in a precision: bf16 weights beat autocast; see ``decoding_copy``."""
    dtype = DTYPES[precision]
    return decoding_copy(model if dtype is torch.float32 else copy.deepcopy(model).to(dtype))
