"""The precisions: fp32, and bf16: training by autocast over fp32 weights, decoding with bf16 weights."""

import copy
import dataclasses
from typing import TYPE_CHECKING

import torch

from compare.config import Experiment
from compare.machine import has_fast_bf16, pick_device

if TYPE_CHECKING:
    from compare.models import Model

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""What matrix products multiply, by the names in configs and results; auto is settled before."""


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context in which a model computes in ``precision``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=DTYPES[precision] is torch.bfloat16)


def for_decoding(model: "Model", precision: str) -> "Model":
    """The model as it is in fp32; a copy of all in bf16, which decodes faster than casting at every step."""
    dtype = DTYPES[precision]
    return model if dtype is torch.float32 else copy.deepcopy(model).to(dtype)


def settled(experiment: Experiment) -> Experiment:
    """``experiment`` with auto replaced: by bf16 where its device multiplies bf16 itself, else by fp32."""
    train = experiment.train
    if train.precision != "auto":
        return experiment
    precision = "bf16" if has_fast_bf16(pick_device(train.device)) else "fp32"
    return dataclasses.replace(experiment, train=dataclasses.replace(train, precision=precision))
