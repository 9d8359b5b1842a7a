"""Learning-rate schedules: a linear warm-up, then one of ``SCHEDULES``."""

import math
from collections.abc import Callable

SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "constant": lambda after, left: 1.0,
    "inverse-sqrt": lambda after, left: after**-0.5,
    "linear": lambda after, left: left,
    "cosine": lambda after, left: 0.5 * (1 - math.cos(math.pi * left)),
}
"""Factor of the peak rate after warm-up. ``after``: update divided by warm-up updates, at least 1; ``left``:
share of the updates after warm-up that remain, from 1 to 0. Vaswani et al. 2017 use "inverse-sqrt"."""


def scheduled_rate(
    schedule: str, peak: float, update: int, *, warmup_updates: int, max_updates: int
) -> float:
    """Compute the learning rate of ``update``, counted from 1, in a training of ``max_updates``."""
    if update <= warmup_updates:
        return peak * update / warmup_updates
    after = update / max(1, warmup_updates)
    left = (max_updates - update + 1) / (max_updates - min(warmup_updates, max_updates - 1))
    return peak * SCHEDULES[schedule](after, left)
