"""Submission of the jobs that are not queued yet, and the wait for all of them with their progress."""

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare.experiment.launch.slurm_queue import SlurmQueue
from compare.system.log import Reporter
from compare.system.signals import Interrupted, StopRequest, lock_folder, stop_on_signals

logger = logging.getLogger(__name__)

POLL_S = {"slurm": 10.0, "local": 0.2}
"""Seconds between two looks at the jobs, by cluster."""
STOP_S = 0.2
"""Longest time until a signal is acted on."""
TAIL_BYTES = 10_000
"""End of a training log that is read for the progress; a line is far shorter."""


@dataclass(frozen=True)
class Training:
    """The training of a job, whose progress is shown."""

    metrics: Path
    """Its log."""
    max_updates: int


def submit_jobs(queue: SlurmQueue, works: Mapping[str, Callable[[], str]]) -> dict[str, str]:
    """Submit what is not queued yet; returns the ids of all jobs by name.

    Args:
        queue: the jobs of the folder.
        works: what each job does, by its name.

    Raises:
        ValueError: the cluster refuses the jobs, or does not answer.
    """
    with lock_folder(queue.folder, wait=True):
        queued = queue.queued()
        new = {name: work for name, work in works.items() if name not in queued}
        submitted = queue.submit(new) if new else {}
    for name in works:
        earlier = "" if name in submitted else ", submitted by an earlier call"
        logger.info(f"{name}: job {(queued | submitted)[name]}{earlier}")
    return {name: (queued | submitted)[name] for name in works}


def wait_for_jobs(
    queue: SlurmQueue,
    jobs: Mapping[str, str],
    trainings: Mapping[str, Training],
    ended: Callable[[str], None],
    reporter: Reporter,
) -> None:
    """Wait until the cluster has listed none of the jobs twice in a row.

    Args:
        queue: the jobs of the folder.
        jobs: the ids of those to wait for, by name.
        trainings: what those jobs train whose progress is shown, by name.
        ended: called with the name of each job that has ended.
        reporter: shows the progress.

    Raises:
        Interrupted: a signal arrived; the jobs go on.
    """
    absent, shown = Counter[str](), dict[str, Any]()
    waiting = dict(jobs)
    with reporter.trainings() as show, stop_on_signals() as stop:
        while waiting:
            _sleep(POLL_S[queue.options.cluster], stop)
            if stop.signum:
                names = ", ".join(waiting.values())
                raise Interrupted(stop.signum, f"stopped waiting for jobs {names}, which go on")
            for name in [name for name in waiting if name in trainings]:
                line = _last_line(trainings[name].metrics)
                if line is not None and line != shown.get(name):
                    shown[name] = line
                    show(name, trainings[name].max_updates, line)
            try:
                active = queue.active(waiting.values())
            except ValueError as error:
                logger.warning(str(error))
                continue
            for name, job in list(waiting.items()):
                if job in active:
                    absent.pop(name, None)
                    continue
                absent[name] += 1
                if absent[name] == 2:
                    del waiting[name]
                    ended(name)


def remove_unless_queued(queue: SlurmQueue) -> None:
    """Delete the files of the jobs if all jobs of the folder have ended."""
    with lock_folder(queue.folder, wait=True):
        queued = queue.queued()
    if not queued:
        queue.remove()


def _sleep(seconds: float, stop: StopRequest) -> None:
    """Sleep until a signal arrives."""
    end = time.monotonic() + seconds
    while not stop.signum and time.monotonic() < end:
        time.sleep(min(STOP_S, seconds))


def _last_line(metrics: Path) -> dict[str, Any] | None:
    """Read the last whole line of a training log that is being written; None while there is none."""
    try:
        with metrics.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            *_, line, _rest = b"\n", b"\n", *file.read().split(b"\n")
        content = json.loads(line)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
