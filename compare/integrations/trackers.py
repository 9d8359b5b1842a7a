"""Trackers of experiments: TensorBoard and Weights & Biases get what metrics.jsonl receives.

The logs in the run folders are the truth. A thread reads what is appended to them, whichever process trains,
and hands it on; training waits for no tracker, and one that fails ends with a warning.
"""

import json
import logging
import math
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from compare.results.run_folder import RunFolder
from compare.system.messages import did_you_mean, first_line
from compare.training.log import METRICS_FILE
from data.files import write_atomically

logger = logging.getLogger(__name__)

FOLDER = "trackers"
"""Folder in that of the experiment for the files of TensorBoard."""
POLL_S = 2.0
"""Seconds between two looks at the logs."""
END_S = 60.0
"""Longest time to wait at the end for a tracker that does not answer."""


class TrackedRun(NamedTuple):
    """One run in a tracker."""

    log: Callable[[Mapping[str, float], int], object]
    """Sends figures by name, such as "train/loss", of an update."""
    finish: Callable[[], object]
    """Sends what is still held back, and closes the run."""


def _tensorboard(folder: Path, name: str, settings: Mapping[str, Any]) -> TrackedRun:
    """Write event files in trackers/tensorboard/<run>; ``tensorboard --logdir`` shows them."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / FOLDER / "tensorboard" / name))
    writer.add_text("config", "\n".join(f"    {key} = {value}" for key, value in settings.items()))

    def log(values: Mapping[str, float], step: int) -> None:
        for figure, value in values.items():
            writer.add_scalar(figure, value, step)

    return TrackedRun(log, writer.close)


def _wandb(folder: Path, name: str, settings: Mapping[str, Any]) -> TrackedRun:
    """Write a run of the project named after the experiment; offline where WANDB_MODE says so.

    Its id is kept in the run's folder: with it a continued training goes on, and one begun again begins anew.
    """
    import wandb

    identity = folder / name / "wandb.id"
    if not identity.is_file():
        write_atomically(identity, uuid4().hex)
    run = wandb.init(
        project=folder.resolve().name,
        name=name,
        id=identity.read_text("utf-8"),
        resume="allow",
        reinit="create_new",  # runs of --jobs are open at a time, and wandb would give back the first
        config=dict(settings),
    )
    begin = run.step  # the first update that an earlier call has not sent

    def log(values: Mapping[str, float], step: int) -> None:
        if step >= begin:
            run.log(dict(values), step=step)

    return TrackedRun(log, run.finish)


TRACKERS: dict[str, Callable[[Path, str, Mapping[str, Any]], TrackedRun]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
"""(folder of the experiment, name of a run, its settings) -> the run in the tracker."""


def ensure_tracker(name: str) -> None:
    """Raise ValueError for a name that is no tracker's."""
    if name not in TRACKERS:
        raise ValueError(f"unknown tracker {name!r}; {did_you_mean(name, TRACKERS)}")


@contextmanager
def track_metrics(folder: str | Path, tracker: str) -> Iterator[None]:
    """Send what is appended to the metrics logs of an experiment to a tracker, during a block.

    Runs that are in the folder already are sent too. Each line is sent once, also over several calls: files
    of TensorBoard are written anew, and Weights & Biases tells where it stopped.

    Args:
        folder: the folder of the experiment, which need not exist yet.
        tracker: tensorboard or wandb.

    Raises:
        ValueError: another name.
    """
    ensure_tracker(tracker)
    ending = threading.Event()
    arguments = (Path(folder), tracker, ending)
    thread = threading.Thread(target=_follow, args=arguments, daemon=True, name="tracker")
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(END_S)
        if thread.is_alive():
            logger.warning(f"{tracker} does not answer: left out; metrics.jsonl of each run has all figures")


def _follow(folder: Path, tracker: str, ending: threading.Event) -> None:
    """Send lines until ``ending`` is set and all are sent; a failure is one warning."""
    try:
        shutil.rmtree(folder / FOLDER / tracker, ignore_errors=True)  # all of it is written again
        runs: dict[Path, TrackedRun] = {}
        sent: dict[Path, set[tuple[str, int]]] = defaultdict(set)
        sizes: dict[Path, int] = {}
        while True:
            last = ending.is_set()
            for log in sorted(folder.glob(f"*/{METRICS_FILE}")):
                if sizes.get(log) == (size := log.stat().st_size):
                    continue
                sizes[log] = size
                *lines, _ = log.read_bytes().split(b"\n")  # the last one is empty, or being written
                for line in map(json.loads, lines):
                    # A run that continues after a kill repeats the same lines from its last saved state.
                    if (key := (line["kind"], line["update"])) in sent[log]:
                        continue
                    sent[log].add(key)
                    if log not in runs:
                        settings = RunFolder.read(log.parent).run.settings()
                        runs[log] = TRACKERS[tracker](folder, log.parent.name, settings)
                    numbers = {name: value for name, value in line.items() if isinstance(value, int | float)}
                    values = {
                        f"{line['kind']}/{name}": float(value)
                        for name, value in numbers.items()
                        if name != "update" and math.isfinite(value)
                    }
                    runs[log].log(values, line["update"])
                    if line["kind"] == "final":
                        runs.pop(log).finish()
            if last:
                break
            ending.wait(POLL_S)
        for run in runs.values():
            run.finish()
    except Exception as error:  # of the tracker's package, of the network, of a full disk
        logger.warning(
            f"{tracker} left out: {type(error).__name__}: {first_line(error)}; "
            "metrics.jsonl of each run has all figures"
        )
