"""Trackers of experiments: TensorBoard and Weights & Biases get what metrics.jsonl receives.

The logs in the run folders are the truth. A thread reads what is appended to them, whichever process trains,
and hands it on; training waits for no tracker, and one that fails ends with a warning.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from compare.results.run_folder import RunFolder
from compare.system.messages import did_you_mean, first_line
from compare.training.metrics_log import is_finite
from compare.training.serialization import METRICS
from data.files import parse_json, write_atomically

logger = logging.getLogger(__name__)

FOLDER = "trackers"
"""Folder in that of the experiment: how much was sent, and the files of TensorBoard."""
POLL_S = 2.0
"""Seconds between two looks at the logs."""
END_S = 60.0
"""Longest time to wait at the end for a tracker that does not answer."""


class TrackedRun(Protocol):
    """One run in a tracker."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send figures of an update by name, such as "train/loss"."""

    def finish(self) -> None:
        """Send what is still held back, and close the run."""


class _TensorBoard:
    """Event files in trackers/tensorboard/<run>; ``tensorboard --logdir`` shows them."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / FOLDER / "tensorboard" / name))
        text = "\n".join(f"    {key} = {value}" for key, value in settings.items())
        self._writer.add_text("config", text)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self._writer.close()


class _Wandb:
    """A run of the project named after the experiment; offline where WANDB_MODE says so."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        import wandb

        project = folder.resolve().name
        self._run = wandb.init(
            project=project,
            name=name,
            id=f"{project}-{name}",
            resume="allow",
            reinit="create_new",  # runs of --jobs are open at a time, and wandb would give back the first
            config=dict(settings),
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def finish(self) -> None:
        self._run.finish()


TRACKERS: dict[str, Callable[[Path, str, Mapping[str, Any]], TrackedRun]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
}
"""(folder of the experiment, name of a run, its settings) -> the run in the tracker."""


@contextmanager
def track_metrics(folder: str | Path, tracker: str) -> Iterator[None]:
    """Send what is appended to the metrics logs of an experiment to a tracker, during a block.

    Runs that are in the folder already are sent too. Each line is sent once, also over several calls: what
    was sent is noted in the folder's trackers/.

    Args:
        folder: the folder of the experiment, which need not exist yet.
        tracker: tensorboard or wandb.

    Raises:
        ValueError: another name.
    """
    if tracker not in TRACKERS:
        raise ValueError(f"unknown tracker {tracker!r}; {did_you_mean(tracker, TRACKERS)}")
    ending = threading.Event()
    follower = _Follower(Path(folder), tracker)
    thread = threading.Thread(target=follower.follow, args=(ending,), daemon=True, name="tracker")
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(END_S)
        if thread.is_alive():
            logger.warning(f"{tracker} does not answer: left out; metrics.jsonl of each run has all figures")


@dataclass
class _Log:
    """How far the log of one run has been sent."""

    sent: int = 0
    """Lines that the tracker has, of this call and earlier ones."""
    first: str = ""
    """Hash of the first of them: another one begins another run of the same name."""
    run: TrackedRun | None = None

    def finish(self) -> None:
        """Close the run in the tracker."""
        if self.run is not None:
            self.run.finish()
            self.run = None


class _Follower:
    """The thread that reads the logs of an experiment."""

    def __init__(self, folder: Path, tracker: str) -> None:
        self.folder, self.tracker = folder, tracker
        self._state = folder / FOLDER / f"{tracker}.json"
        self._noted: dict[str, dict[str, Any]] = {}
        self._logs: dict[str, _Log] = {}

    def follow(self, ending: threading.Event) -> None:
        """Send lines until ``ending`` is set and all are sent; a failure is one warning."""
        try:
            if self._state.is_file():
                self._noted = parse_json(self._state.read_bytes())
                self._logs = {name: _Log(**each) for name, each in self._noted.items()}
            while True:
                last = ending.is_set()
                self._send_all()
                if last:
                    break
                ending.wait(POLL_S)
            for log in self._logs.values():
                log.finish()
        except Exception as error:  # of the tracker's package, of the network, of a full disk
            logger.warning(
                f"{self.tracker} left out: {type(error).__name__}: {first_line(error)}; "
                "metrics.jsonl of each run has all figures"
            )

    def _send_all(self) -> None:
        """Send the whole lines of all runs that were not sent yet, and note how many there are.

        A run that continues after a kill repeats the same lines from its last saved state.
        """
        for path in sorted(self.folder.glob(f"*/{METRICS}")):
            log = self._logs.setdefault(path.parent.name, _Log())
            *lines, _ = path.read_bytes().split(b"\n")  # the last one is empty, or being written
            if lines and (first := hashlib.sha256(lines[0]).hexdigest()[:12]) != log.first:
                log.first, log.sent = first, 0
            for line in lines[log.sent :]:
                self._send(path.parent, log, parse_json(line))
        state = {name: {"sent": log.sent, "first": log.first} for name, log in self._logs.items()}
        if state != self._noted:
            self._noted = state
            self._state.parent.mkdir(exist_ok=True)
            write_atomically(self._state, json.dumps(state, indent=2) + "\n")

    def _send(self, folder: Path, log: _Log, line: Mapping[str, Any]) -> None:
        if log.run is None:
            settings = RunFolder.read(folder).run.settings()
            log.run = TRACKERS[self.tracker](self.folder, folder.name, settings)
        names = [name for name, value in line.items() if name != "update" and is_finite(value)]
        log.run.log({f"{line['kind']}/{name}": float(line[name]) for name in names}, line["update"])
        log.sent += 1
        if line["kind"] == "final":
            log.finish()
