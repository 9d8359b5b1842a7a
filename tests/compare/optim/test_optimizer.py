"""The optimizer against torch's Adam, and its schedules by hand."""

import itertools
import math

import pytest
import torch
from torch import nn

from compare.optim import OptimConfig, build_optimizer
from compare.training.loss import TranslationLoss
from tests.kits.loss import TinyModel, batch


def rates(updates: int, **settings: float | int | str) -> list[float]:
    """The learning rates of a training of ``updates`` updates with peak 2."""
    config = OptimConfig(learning_rate=2.0, **settings)
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
def test_schedules_by_hand(schedule: str, after: list[float]) -> None:
    found = rates(8, schedule=schedule, warmup_updates=4)
    assert found == pytest.approx([0.5, 1.0, 1.5, 2.0, *after], rel=1e-12)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_falling_schedules_end_near_0_and_never_rise(schedule: str) -> None:
    found = rates(1000, schedule=schedule, warmup_updates=100)
    assert max(found) == found[99] == 2.0
    assert all(one >= other for one, other in itertools.pairwise(found[99:]))
    assert 0 < found[-1] <= 2.0 / 900 * (1 + 1e-12)


def test_training_without_warmup_begins_at_the_peak() -> None:
    assert rates(4, schedule="linear", warmup_updates=0) == pytest.approx([2.0, 1.5, 1.0, 0.5])
    assert rates(4, schedule="constant", warmup_updates=0) == [2.0] * 4
    found = rates(4, schedule="inverse-sqrt", warmup_updates=0)
    assert found == pytest.approx([2.0, 2 / math.sqrt(2), 2 / math.sqrt(3), 1.0])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "inverse-sqrt"])
@pytest.mark.parametrize("warmup", [5, 6, 50])
def test_training_may_end_within_the_warmup(schedule: str, warmup: int) -> None:
    expected = [2.0 * update / warmup for update in range(1, 6)]
    assert rates(5, schedule=schedule, warmup_updates=warmup) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"schedule": "step"}, "inverse-sqrt"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"learning_rate": math.inf}, "learning_rate"),
        ({"warmup_updates": -1}, "warmup_updates"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"weight_decay": math.nan}, "weight_decay"),
        ({"weight_decay": math.inf}, "weight_decay"),
        ({"beta2": 0.0}, "beta2"),
        ({"beta2": 1.0}, "beta2"),
        ({"beta2": math.nan}, "beta2"),
    ],
)
def test_what_would_diverge_is_refused(setting: dict[str, float | int | str], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        OptimConfig(**setting)
    assert "\n" not in str(caught.value)
    assert str(*setting.values()) in str(caught.value)


def test_the_optimizer_without_decay_is_adam() -> None:
    config = OptimConfig(learning_rate=0.01, beta2=0.9, weight_decay=0.0)
    ours, theirs = TinyModel(), TinyModel()
    optimizer = build_optimizer(ours.parameters(), config)
    adam = torch.optim.Adam(theirs.parameters(), lr=0.01, betas=(0.9, 0.9), eps=1e-9)
    for _ in range(5):
        for model, steps in ((ours, optimizer), (theirs, adam)):
            steps.zero_grad()
            TranslationLoss(model, 0.1)(*batch()).minimised.backward()
            steps.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_weight_decay_is_decoupled() -> None:
    """Adam's first step moves by the rate against the gradient's sign; decay comes first."""
    parameter = nn.Parameter(torch.tensor([4.0, -2.0, 1.0], dtype=torch.float64))
    parameter.grad = torch.tensor([100.0, -1.0, 0.0], dtype=torch.float64)
    build_optimizer([parameter], OptimConfig(learning_rate=0.1, weight_decay=0.5)).step()
    expected = [4.0 * 0.95 - 0.1, -2.0 * 0.95 + 0.1, 0.95]
    assert parameter.tolist() == pytest.approx(expected, abs=1e-9)
