"""Schedules without and within a warm-up; the rest is in test_formulas.py."""

import math

import pytest

from compare.optim_config import SCHEDULES, OptimConfig, decay_updates


def rates(updates: int, **settings: float | int | str) -> list[float]:
    """The learning rates of a training of ``updates`` updates with peak 2."""
    config = OptimConfig(learning_rate=2.0, **settings)  # type: ignore[arg-type]
    return [config.learning_rate_at(update, updates) for update in range(1, updates + 1)]


def test_training_without_warmup_begins_at_the_peak_and_may_end_within_it():
    assert rates(4, schedule="linear", warmup_updates=0) == pytest.approx([2.0, 1.5, 1.0, 0.5])
    found = rates(4, schedule="inverse-sqrt", warmup_updates=0)
    assert found == pytest.approx([2.0, 2 / math.sqrt(2), 2 / math.sqrt(3), 1.0])
    assert [decay_updates(*share) for share in ((100, 0.29), (10, 0.01))] == [29, 1]
    for schedule in SCHEDULES:
        expected = [2.0 * update / 50 for update in range(1, 6)]
        assert rates(5, schedule=schedule, warmup_updates=50) == pytest.approx(expected)
