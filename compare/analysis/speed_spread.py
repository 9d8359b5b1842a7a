"""Spread of a model's speed over the timed repeats: a difference within it is none."""

from collections.abc import Sequence
from typing import NamedTuple

from compare.analysis.finished_experiment import FinishedRun


class Spread(NamedTuple):
    """Lowest and highest value."""

    low: float
    high: float

    def is_above(self, other: "Spread") -> bool:
        """Return whether all values are higher than those of ``other``."""
        return self.low > other.high


def timed_spread(runs: Sequence[FinishedRun], speed: str) -> Spread | None:
    """Return the spread of a speed over all repeats of a model's runs.

    Args:
        runs: the runs of one label.
        speed: a field of ``Result`` with ``_low`` and ``_high`` beside it.

    Returns:
        None if a run was not timed in turn, or only once.
    """
    lows, highs = ([getattr(run.result, f"{speed}_{end}") for run in runs] for end in ("low", "high"))
    return None if None in (*lows, *highs) else Spread(min(lows), max(highs))


def are_timed_together(runs: Sequence[FinishedRun]) -> bool:
    """Return whether the models of ``runs`` were timed in turn, so that their speeds compare."""
    ids = {run.result.timed_together for run in runs}
    return len(ids) == 1 and None not in ids
