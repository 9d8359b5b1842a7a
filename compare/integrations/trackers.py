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
        """Send figures of an update.

        Args:
            values: figures by name, such as "train/loss".
            step: number of the update.
        """

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
    """How far the log of one run has been read and sent."""

    sent: int = 0
    """Lines that the tracker has, of this call and earlier ones."""
    first: str = ""
    """Hash of the first of them: another one begins another run of the same name."""
    read: int = 0
    """Lines read from the present file."""
    offset: int = 0
    """Their bytes."""
    inode: int = 0
    """The file; a run that continues replaces it by its beginning."""
    run: TrackedRun | None = None


class _Follower:
    """The thread that reads the logs of an experiment."""

    def __init__(self, folder: Path, tracker: str) -> None:
        self.folder, self.tracker = folder, tracker
        self._state = folder / FOLDER / f"{tracker}.json"
        self._logs: dict[str, _Log] = {}

    def follow(self, ending: threading.Event) -> None:
        """Send lines until ``ending`` is set and all are sent; a failure is one warning."""
        try:
            self._read_state()
            while True:
                last = ending.is_set()
                self._send_all()
                if last:
                    break
                ending.wait(POLL_S)
            for log in self._logs.values():
                _finish(log)
        except Exception as error:  # of the tracker's package, of the network, of a full disk
            logger.warning(
                f"{self.tracker} left out: {type(error).__name__}: {first_line(error)}; "
                "metrics.jsonl of each run has all figures"
            )

    def _read_state(self) -> None:
        """Read how many lines of each run earlier calls have sent."""
        if self._state.is_file():
            state = parse_json(self._state.read_bytes())
            self._logs = {name: _Log(sent=each["sent"], first=each["first"]) for name, each in state.items()}

    def _send_all(self) -> None:
        """Send the new lines of all runs, and note how many there are."""
        new = 0
        for path in sorted(self.folder.glob(f"*/{METRICS}")):
            log = self._logs.setdefault(path.parent.name, _Log())
            for line in _new_lines(path, log):
                self._send(path.parent, log, line)
                new += 1
        if new:
            self._state.parent.mkdir(exist_ok=True)
            state = {name: {"sent": log.sent, "first": log.first} for name, log in self._logs.items()}
            write_atomically(self._state, json.dumps(state, indent=2) + "\n")

    def _send(self, folder: Path, log: _Log, line: Mapping[str, Any]) -> None:
        if log.run is None:
            settings = RunFolder.read(folder).run.settings()
            log.run = TRACKERS[self.tracker](self.folder, folder.name, settings)
        names = [name for name, value in line.items() if name != "update" and is_finite(value)]
        log.run.log({f"{line['kind']}/{name}": float(line[name]) for name in names}, line["update"])
        log.sent += 1
        if line["kind"] == "final":
            _finish(log)


def _finish(log: _Log) -> None:
    if log.run is not None:
        log.run.finish()
        log.run = None


def _new_lines(path: Path, log: _Log) -> Iterator[Mapping[str, Any]]:
    """Yield the whole lines that were appended to a log and not sent yet.

    A run that continues after a kill repeats the same lines from its last saved state.
    """
    with path.open("rb") as file:
        inode = path.stat().st_ino
        if inode != log.inode or path.stat().st_size < log.offset:
            log.inode, log.read, log.offset = inode, 0, 0
        file.seek(log.offset)
        for content in file:
            if not content.endswith(b"\n"):
                return  # it is being written
            log.offset += len(content)
            log.read += 1
            if log.read == 1 and (first := hashlib.sha256(content).hexdigest()[:12]) != log.first:
                log.first, log.sent = first, 0
            if log.read > log.sent:
                yield parse_json(content)
