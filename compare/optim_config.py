"""Learning-rate schedules, and the settings of optimizer and schedule."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from compare.settings import Natural, NonNegative, Section, setting

# Learning-rate schedules: a linear warm-up, then one of ``SCHEDULES``.


SCHEDULES: dict[str, Callable[[float, float, float], float]] = {
    "constant": lambda after, left, fall: 1.0,
    "inverse-sqrt": lambda after, left, fall: after**-0.5,
    "linear": lambda after, left, fall: left,
    "cosine": lambda after, left, fall: 0.5 * (1 - math.cos(math.pi * left)),
    "stable": lambda after, left, fall: fall,
}
"""Factor of the peak rate after warm-up, as a function of three numbers. ``after`` is the update divided by
the warm-up updates, at least 1. ``left`` is the share of the updates after warm-up that remain with this one,
from 1 to almost 0. ``fall`` is 1 until the decay begins, and then the share of the decay that remains.
"inverse-sqrt" is equation 3 of Vaswani et al. 2017; "stable" is the warmup-stable-decay schedule of Hu et al.
2024, MiniCPM, https://arxiv.org/abs/2404.06395, with a linear decay (Hägele et al. 2024,
https://arxiv.org/abs/2405.18392)."""
DECAY = 0.2
"""Default share of the updates in which the rate of the schedule "stable" falls to 0."""


# Options of optimizer and learning-rate schedule; every preset has its own.


@dataclass(frozen=True, kw_only=True)
class OptimConfig(Section):
    """Optimizer and learning-rate schedule of one model; the best settings depend on the architecture."""

    optimizer: Literal["adamw", "muon"] = setting(
        "adamw",
        "adamw (Loshchilov and Hutter 2019; Adam where weight_decay is 0), or muon (Jordan 2024) for weight "
        "matrices beside AdamW for embeddings, vectors and the output layer.",
    )
    learning_rate: Annotated[float, Meta(gt=0)] = setting(
        1e-3, "Peak learning rate. Muon's steps are scaled to the size of AdamW's, so both share it."
    )
    schedule: Literal["constant", "inverse-sqrt", "linear", "cosine", "stable"] = setting(
        "linear",
        "constant, inverse-sqrt, linear (to 0), cosine (to 0), or stable: constant, then linear to 0 over "
        "the last `train.decay` share of the updates. All follow a linear warm-up.",
    )
    warmup_updates: Natural = setting(100, "Updates of linear warm-up.")
    weight_decay: NonNegative = setting(0.0, "Decoupled weight decay of matrices; not of biases and gains.")
    beta2: Annotated[float, Meta(gt=0, lt=1)] = setting(
        0.98,
        "Decay of the running average of squared gradients (0.98 in Vaswani et al. 2017, section 5.3).",
    )

    def learning_rate_at(self, update: int, max_updates: int, decay: float = DECAY) -> float:
        """Compute the learning rate of an update, counted from 1, of ``max_updates``.

        ``decay`` is the share of the updates in which the rate of the schedule "stable" falls to 0.
        """
        if update <= self.warmup_updates:
            return self.learning_rate * update / self.warmup_updates
        remaining = max_updates - update + 1
        after = update / max(1, self.warmup_updates)
        left = remaining / (max_updates - self.warmup_updates)
        fall = min(1.0, remaining / decay_updates(max_updates, decay))
        return self.learning_rate * SCHEDULES[self.schedule](after, left, fall)


def decay_updates(max_updates: int, decay: float) -> int:
    """Return the number of updates, at least 1, in which the rate of the schedule "stable" falls to 0."""
    return max(1, round(decay * max_updates))
