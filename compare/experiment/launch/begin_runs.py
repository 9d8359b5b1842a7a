"""The beginning of runs that other processes finish."""

import logging
from collections.abc import Collection, Sequence

from compare.experiment.experiment_folder import begin_run
from compare.experiment.prepare import PreparedData
from compare.experiment.run_all import has_ended
from compare.results.run_folder import RunFolder
from compare.system.locks import Locked, lock_folder

logger = logging.getLogger(__name__)


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
    begun: list[RunFolder] = []
    errors: list[ValueError] = []
    for number, run in enumerate(runs, start=1):
        position = f"[{number}/{len(runs)}] {run.name}"
        if run.name in queued:
            begun.append(run)
            continue
        try:
            with lock_folder(run.folder):
                if has_ended(run):
                    logger.info(f"{position}: already finished")
                    continue
                begin_run(run, prepared)
                begun.append(run)
        except Locked as locked:
            logger.warning(f"{position}: left out: {locked}")
        except ValueError as error:
            logger.error(f"{position}: {error}")
            errors.append(error)
    return begun, errors
