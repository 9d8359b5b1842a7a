"""Learning-rate schedules by hand, and settings that are refused; AdamW is in test_formulas.py."""

import math

import pytest

from compare.optim import OptimConfig


def rates(updates: int, **settings: float | int | str) -> list[float]:
    """The learning rates of a training of ``updates`` updates with peak 2."""
    config = OptimConfig(learning_rate=2.0, **settings)  # type: ignore[arg-type]
    return [config.learning_rate_at(update, updates) for update in range(1, updates + 1)]


# Warm-up of 4 rises by 2 / 4. Then 4 updates are left: the peak, and by quarters down to 2 / 4 (linear),
# along (1 + cos(pi x)) for x = 0, 1/4, 1/2, 3/4 (cosine), or by (update / 4) ** -1/2 (inverse square root).
@pytest.mark.parametrize(
    ("schedule", "after"),
    [
        ("constant", [2.0, 2.0, 2.0, 2.0]),
        ("linear", [2.0, 1.5, 1.0, 0.5]),
        ("cosine", [2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)]),
        ("inverse-sqrt", [2 * math.sqrt(4 / update) for update in (5, 6, 7, 8)]),
    ],
)
def test_schedules_by_hand(schedule: str, after: list[float]):
    found = rates(8, schedule=schedule, warmup_updates=4)
    assert found == pytest.approx([0.5, 1.0, 1.5, 2.0, *after], rel=1e-12)
    for warmup in (5, 50):  # training may end within the warm-up
        expected = [2.0 * update / warmup for update in range(1, 6)]
        assert rates(5, schedule=schedule, warmup_updates=warmup) == pytest.approx(expected)


def test_training_without_warmup_begins_at_the_peak():
    assert rates(4, schedule="linear", warmup_updates=0) == pytest.approx([2.0, 1.5, 1.0, 0.5])
    found = rates(4, schedule="inverse-sqrt", warmup_updates=0)
    assert found == pytest.approx([2.0, 2 / math.sqrt(2), 2 / math.sqrt(3), 1.0])


@pytest.mark.parametrize(
    ("name", "value"), [("schedule", "step"), ("learning_rate", math.nan), ("beta2", 1.0)]
)
def test_what_would_diverge_is_refused(name: str, value: float | int | str):
    with pytest.raises(ValueError, match=name) as caught:
        OptimConfig(**{name: value})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
