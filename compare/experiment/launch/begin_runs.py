"""The beginning of runs that other processes finish."""

import logging
import time
from collections.abc import Collection, Sequence

from compare.experiment.folder import begin_run
from compare.experiment.prepare import PreparedData
from compare.experiment.run import has_ended
from compare.results.run_folder import RunFolder
from compare.system.signals import Locked, lock_folder

logger = logging.getLogger(__name__)

GRACE_S = 2.0
"""For so long the processes of a command that has just been killed may still be ending."""


def begin_runs(
    runs: Sequence[RunFolder], prepared: PreparedData, *, queued: Collection[str] = ()
) -> tuple[list[RunFolder], list[ValueError]]:
    """Create the folders of the runs that have not ended, and return these runs.

    A run that another process works on is left out with a message. So is one whose folder is damaged; its
    error is returned.

    Args:
        runs: the runs.
        prepared: their data.
        queued: names of runs that an earlier call has begun, and that a job works on.
    """
    deadline = time.monotonic() + GRACE_S
    begun: list[RunFolder] = []
    errors: list[ValueError] = []
    for number, run in enumerate(runs, start=1):
        position = f"[{number}/{len(runs)}] {run.name}"
        try:
            if run.name in queued or _begin(run, prepared, deadline):
                begun.append(run)
            else:
                logger.info(f"{position}: already finished")
        except Locked as locked:
            logger.warning(f"{position}: left out: {locked}")
        except ValueError as error:
            logger.error(f"{position}: {error}")
            errors.append(error)
    return begun, errors


def _begin(run: RunFolder, prepared: PreparedData, deadline: float) -> bool:
    """Create the folder of a run unless the run has ended; returns whether it has not.

    Raises:
        Locked: another process works on the run, still at ``deadline``.
        ValueError: the folder is damaged, or of another run.
    """
    while True:
        try:
            with lock_folder(run.folder):
                if has_ended(run):
                    return False
                begin_run(run, prepared)
                return True
        except Locked:
            if time.monotonic() > deadline:
                raise
            time.sleep(GRACE_S / 20)
