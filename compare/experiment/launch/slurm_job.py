"""What a job on the cluster does: finish one run, or time the models; it saves before it has to end."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from submitit.helpers import DelayedSubmission

from compare.experiment.launch.worker import finish_folder, time_folder
from compare.system.locks import Locked
from compare.system.log import show_messages
from compare.system.progress import Reporter
from compare.system.signals import Interrupted, Terminated, raise_on_sigterm


@dataclass(frozen=True)
class SlurmJob:
    """A job, which submitit pickles; on another node it needs the same file system and installation."""

    folder: str
    """The absolute folder of the run, or of the experiment whose models are timed."""
    timing_seed: int | None = None
    """Seed of the batches that are timed; None: finish a run."""

    def __call__(self) -> str:
        """Do the work; returns how it went.

        Raises:
            SystemExit: a signal arrived, and the state is saved.
        """
        show_messages()
        with _save_before_the_end():
            if self.timing_seed is not None:
                time_folder(Path(self.folder), self.timing_seed)
                return "timed"
            try:
                return finish_folder(Path(self.folder), Reporter(quiet=True))
            except Locked as locked:
                return f"left out: {locked}"

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
        with raise_on_sigterm():
            yield
    except (Interrupted, Terminated) as stopped:
        print(stopped or "stopped", file=sys.stderr, flush=True)
        if warned and callable(queue_again):
            handler: Callable[..., object] = queue_again
            handler(signal.SIGUSR2, None)
        raise SystemExit(128 + signal.SIGTERM) from None
