"""Learning rate schedule, its settings, and AdamW."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from compare.system.messages import Natural, NonNegative, Section, setting

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


# Learning-rate schedules: a linear warm-up, then one of ``SCHEDULES``.


SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "constant": lambda after, left: 1.0,
    "inverse-sqrt": lambda after, left: after**-0.5,
    "linear": lambda after, left: left,
    "cosine": lambda after, left: 0.5 * (1 - math.cos(math.pi * left)),
}
"""Factor of the peak rate after warm-up, as a function of two numbers. ``after`` is the update divided by the
warm-up updates, at least 1. ``left`` is the share of the updates after warm-up that remain with this one,
from 1 to almost 0.
"inverse-sqrt" is equation 3 of Vaswani et al. 2017."""
ENDLESS = ("constant", "inverse-sqrt")
"""Schedules that do not depend on where training ends, so that it can be continued."""


# Options of optimizer and learning-rate schedule; every preset has its own.


@dataclass(frozen=True, kw_only=True)
class OptimConfig(Section):
    """Optimizer and learning-rate schedule of one model; the best settings depend on the architecture."""

    learning_rate: Annotated[float, Meta(gt=0)] = setting(
        1e-3, "Peak learning rate of AdamW (Loshchilov and Hutter 2019; Adam where weight_decay is 0)."
    )
    schedule: Literal["constant", "inverse-sqrt", "linear", "cosine"] = setting(
        "linear", "constant, inverse-sqrt, linear (to 0) or cosine (to 0), after a linear warm-up."
    )
    warmup_updates: Natural = setting(100, "Updates of linear warm-up.")
    weight_decay: NonNegative = setting(0.0, "Decoupled weight decay of matrices; not of biases and gains.")
    beta2: Annotated[float, Meta(gt=0, lt=1)] = setting(
        0.98,
        "Decay of the running average of squared gradients (0.98 in Vaswani et al. 2017, section 5.3).",
    )

    def learning_rate_at(self, update: int, max_updates: int) -> float:
        """Compute the learning rate of one update.

        Args:
            update: number of the update, counted from 1.
            max_updates: updates of the whole training.
        """
        if update <= self.warmup_updates:
            return self.learning_rate * update / self.warmup_updates
        after = update / max(1, self.warmup_updates)
        left = (max_updates - update + 1) / (max_updates - self.warmup_updates)
        return self.learning_rate * SCHEDULES[self.schedule](after, left)


# The optimizer: AdamW.


def build_optimizer(model: "nn.Module", config: OptimConfig) -> "Optimizer":
    """Build AdamW (Loshchilov and Hutter 2019), fused into one pass over each parameter.

    Weight decay shrinks matrices alone: biases and the gains of norms are no weights of a sum.
    """
    from torch.optim import AdamW  # here, so that settings are read without torch

    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_added = any(part.startswith(("bias", "gain")) for part in name.split("."))
        (others if is_added or parameter.dim() < 2 else matrices).append(parameter)
    groups: list[dict[str, object]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return AdamW(
        groups,
        lr=config.learning_rate,
        betas=(0.9, config.beta2),
        eps=1e-9,
        weight_decay=config.weight_decay,
        fused=True,
    )
