"""From an experiment as written to what is run."""

import dataclasses

from compare.config.sections import Experiment
from compare.system.device import has_fast_bf16, pick_device


def resolve_precision(experiment: Experiment) -> Experiment:
    """``experiment`` with auto replaced: by bf16 where its device multiplies bf16 itself, else by fp32."""
    train = experiment.train
    if train.precision != "auto":
        return experiment
    precision = "bf16" if has_fast_bf16(pick_device(train.device)) else "fp32"
    return dataclasses.replace(experiment, train=dataclasses.replace(train, precision=precision))
