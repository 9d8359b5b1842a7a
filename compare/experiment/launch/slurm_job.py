"""A job on the cluster, such as one run of an experiment: it saves its state before it has to end."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from submitit.helpers import DelayedSubmission

from compare.system.log import show_messages
from compare.system.signals import Interrupted, Locked, Terminated, ignore_repeated_signals, raise_on_sigterm

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SlurmJob:
    """A job, which submitit pickles; on another node it needs the same file system and installation."""

    work: Callable[[], str]
    """Does the work from where it was saved, and returns how it went."""

    def __call__(self) -> str:
        """Do the work; returns how it went.

        Raises:
            SystemExit: a signal arrived, and the state is saved.
        """
        show_messages()
        with _save_before_the_end():
            try:
                return self.work()
            except Locked as locked:
                logger.warning(f"left out: {locked}")
                return "left out"

    def checkpoint(self) -> DelayedSubmission:
        """Return what to do when the job is queued again: the same, from the saved state."""
        return DelayedSubmission(self)


@contextmanager
def _save_before_the_end() -> Iterator[None]:
    """End a block on SIGTERM or SIGUSR2 after the state is saved.

    Slurm sends SIGTERM when it ends or preempts a job, which it queues again itself where it has to.
    Submitit asks for SIGUSR2 before the time limit; its handler queues the job again.
    """
    queue_again = signal.getsignal(signal.SIGUSR2)
    warned = False

    def stop(_signum: int, _frame: object) -> None:
        nonlocal warned
        warned = True
        signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGUSR2, stop)
    try:
        with raise_on_sigterm(), ignore_repeated_signals():
            yield
    except (Interrupted, Terminated) as stopped:
        print(str(stopped) or "stopped", file=sys.stderr, flush=True)
        if warned and callable(queue_again):
            handler: Callable[..., object] = queue_again
            handler(signal.SIGUSR2, None)
        raise SystemExit(128 + signal.SIGTERM) from None
