"""Requests to stop by signal, beside those that a training run obeys."""

import os
import signal
import threading

from compare.system.signals import stop_on_signals


def test_the_first_signal_is_recorded_and_the_handlers_return():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_on_signals() as request:
        assert request.signum is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.signum == signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_another_thread_can_work_without_handlers():
    requests: list[int | None] = []

    def work() -> None:
        with stop_on_signals() as request:
            requests.append(request.signum)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert requests == [None]
