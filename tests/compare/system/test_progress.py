"""Share of all runs that is done, and the time left, where there is no bar."""

import logging
from collections.abc import Callable

import pytest

from compare.system import log as progress
from compare.system.log import Reporter, format_duration


def train(update: int, updates: int) -> dict[str, object]:
    return {
        "kind": "train",
        "update": update,
        "updates": updates,
        "seconds": 1.0,
        "loss": 1.0,
        "tokens_per_s": 1.0,
    }


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, seconds)


def test_messages_tell_the_share_of_all_runs_and_the_time_left(
    clock: Callable[[float], None], caplog: pytest.LogCaptureFixture
):
    """Run a has 100 updates of work 1, b 100 of work 3: 400 in all; a was resumed at update 20."""
    reporter = Reporter()
    reporter.expect({"a-seed1": (100, 1.0), "b-seed1": (100, 3.0)})
    ends = []
    with caplog.at_level(logging.INFO, logger="compare"):
        with reporter.training("a", 100, name="a-seed1") as show:
            clock(6)
            show(train(40, 20))  # 20 in 6 s here, 40 of 400 in all: 360 are left
            clock(24)
            show({"kind": "valid", "update": 100, "seconds": 1.0, "loss": 1.0, "bleu": 1.0})  # 80 in 24 s
        with reporter.training("b", 100, name="b-seed1") as show:
            clock(54)
            show(train(60, 60))  # 260 in 54 s; 120 are left
            show(
                {
                    "kind": "final",
                    "update": 60,
                    "seconds": 1.0,
                    "chosen": "update 60",
                    "loss": 1.0,
                    "bleu": 1.0,
                }
            )
        ends = [message.partition("; ")[2] for message in caplog.messages]
    assert ends == [
        "10% of all 2 runs, about 2 min left",
        "25% of all 2 runs, about 90 s left",
        "70% of all 2 runs, about 25 s left",
        "100% of all 2 runs",  # patience stopped the last one
    ]


def test_a_single_run_and_one_that_was_not_announced(
    clock: Callable[[float], None], caplog: pytest.LogCaptureFixture
):
    reporter = Reporter()
    reporter.expect({"a": (10, 1.0)})
    with caplog.at_level(logging.INFO, logger="compare"):
        for name in ("a", "b"):
            with reporter.training(name, 10) as show:
                clock(4)
                show(train(5, 5))
    first, second = caplog.messages
    assert first.endswith("; 50%, about 4 s left")
    assert "%" not in second


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (99, "99 s"), (101, "2 min"), (5_900, "98 min"), (12_600, "3.5 h")]
)
def test_durations(seconds: float, text: str):
    assert format_duration(seconds) == text
