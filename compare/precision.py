"""The precisions of training and decoding: fp32, and bf16, which is autocast over weights that stay fp32."""

import dataclasses

import torch

from compare.config import Experiment
from compare.machine import has_fast_bf16, pick_device

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""What matrix products multiply, by the names in configs and results; auto is settled before."""


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context in which a model computes in ``precision``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=DTYPES[precision] is torch.bfloat16)


def settled(experiment: Experiment) -> Experiment:
    """``experiment`` with auto replaced: by bf16 where its device multiplies bf16 itself, else by fp32."""
    train = experiment.train
    if train.precision != "auto":
        return experiment
    precision = "bf16" if has_fast_bf16(pick_device(train.device)) else "fp32"
    return dataclasses.replace(experiment, train=dataclasses.replace(train, precision=precision))
