"""The precisions: fp32, and bf16: training by autocast over fp32 weights, decoding with bf16 weights."""

import copy
from typing import TypeVar

import torch
from torch import nn

Module = TypeVar("Module", bound=nn.Module)


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""What matrix products multiply, by the names in configs and results; auto is settled before."""


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context in which a model computes in ``precision``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=DTYPES[precision] is torch.bfloat16)


def for_decoding(model: Module, precision: str) -> Module:
    """The model as it is in fp32; a copy of all in bf16, which decodes faster than casting at every step."""
    dtype = DTYPES[precision]
    return model if dtype is torch.float32 else copy.deepcopy(model).to(dtype)
