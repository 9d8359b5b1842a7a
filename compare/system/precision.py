"""Precisions: fp32, and bf16, which trains by autocast over fp32 weights and decodes with bf16 weights."""

import copy
from typing import TypeVar

import torch
from torch import nn

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
    """Return the model itself for fp32, or a copy in bf16, which is faster than autocast at every step."""
    dtype = DTYPES[precision]
    return model if dtype is torch.float32 else copy.deepcopy(model).to(dtype)
