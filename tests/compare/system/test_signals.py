"""Requests to stop by signal, beside those that a training run obeys."""

import os
import signal
import sys
import threading
import time

import pytest

from compare.system.signals import Terminated, ignore_repeated_signals, raise_on_sigterm, stop_on_signals


def test_the_first_signal_is_recorded_and_the_handlers_return():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_on_signals() as request:
        assert request.signum is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.signum == signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_acts_as_before_whichever_the_first_was(second: signal.Signals):
    """Ctrl-C ends a run that already saves its state because of SIGTERM."""
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in handlers:
            signal.signal(number, lambda signum, _: received.append(signum))
        with stop_on_signals() as request:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), second)
            assert (request.signum, received) == (signal.SIGTERM, [second])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_a_second_signal_can_be_ignored_until_the_state_is_saved():
    """Slurm sends SIGTERM both to a job and to the step in it."""
    before = signal.getsignal(signal.SIGTERM)
    with raise_on_sigterm(), ignore_repeated_signals(), stop_on_signals() as request:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.signum == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_can_work_without_handlers():
    requests: list[int | None] = []

    def work() -> None:
        with stop_on_signals() as request:
            requests.append(request.signum)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert requests == [None]


class SignalsWhenDeleted:
    """Raises a signal in ``__del__``, where Python ignores exceptions."""

    def __init__(self, signum: signal.Signals) -> None:
        self.signum = signum

    def __del__(self) -> None:
        signal.raise_signal(self.signum)
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("signum", "error"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_where_python_ignores_exceptions_is_not_lost(
    signum: signal.Signals, error: type[BaseException], capsys: pytest.CaptureFixture[str]
):
    hook = sys.unraisablehook

    @raise_on_sigterm()
    def work() -> None:
        SignalsWhenDeleted(signum)
        for _ in range(500):
            time.sleep(0.01)

    with pytest.raises(error):
        work()
    assert sys.unraisablehook is hook
    assert capsys.readouterr().err == ""
