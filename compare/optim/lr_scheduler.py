"""Learning-rate schedules: a linear warm-up, then one of ``SCHEDULES``."""

import math
from collections.abc import Callable

SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "constant": lambda after, left: 1.0,
    "inverse-sqrt": lambda after, left: after**-0.5,
    "linear": lambda after, left: left,
    "cosine": lambda after, left: 0.5 * (1 - math.cos(math.pi * left)),
}
"""Factor of the peak rate after warm-up, as a function of two numbers. ``after`` is the update divided by the
warm-up updates, at least 1. ``left`` is the share of the updates after warm-up that remain, from 1 to 0.
"inverse-sqrt" is equation 3 of Vaswani et al. 2017."""


def scheduled_rate(
    schedule: str, peak: float, update: int, *, warmup_updates: int, max_updates: int
) -> float:
    """Compute the learning rate of one update.

    Args:
        schedule: a name in ``SCHEDULES``.
        peak: learning rate at the end of warm-up.
        update: the update, counted from 1.
        warmup_updates: updates of linear warm-up.
        max_updates: length of training in updates.
    """
    if update <= warmup_updates:
        return peak * update / warmup_updates
    after = update / max(1, warmup_updates)
    left = (max_updates - update + 1) / (max_updates - min(warmup_updates, max_updates - 1))
    return peak * SCHEDULES[schedule](after, left)
