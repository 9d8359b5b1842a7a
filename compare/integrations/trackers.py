"""Send the lines of metrics.jsonl to TensorBoard or Weights & Biases."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from compare.results.run_folder import RunFolder
from compare.system.log import Reporter, ShowMetrics
from compare.system.messages import did_you_mean, first_line
from compare.training.log import KINDS
from data.files import write_atomically

logger = logging.getLogger(__name__)

TrackedRun = tuple[Callable[[dict[str, float], int], object], Callable[[], object]]
"""Functions that log the figures of an update, by names such as "train/loss", and that end the run."""


def _tensorboard(run: RunFolder, update: int) -> TrackedRun:
    """Write event files into trackers/tensorboard/<run>, for ``tensorboard --logdir``."""
    from torch.utils.tensorboard import SummaryWriter

    folder = run.folder.parent / "trackers" / "tensorboard" / run.name
    writer = SummaryWriter(str(folder), purge_step=update)  # a killed process may have logged later updates
    writer.add_text("config", "\n".join(f"    {key} = {value}" for key, value in run.run.settings().items()))

    def log(values: dict[str, float], step: int) -> None:
        for figure, value in values.items():
            writer.add_scalar(figure, value, step)

    return log, writer.close


def _wandb(run: RunFolder, _update: int) -> TrackedRun:
    """Log to a project with the name of the experiment; WANDB_MODE decides whether that is offline.

    The id in the folder of the run lets a continued training continue the same run of the tracker.
    """
    import wandb

    identity = run.folder / "wandb.id"
    if not identity.is_file():
        write_atomically(identity, uuid4().hex)
    tracked = wandb.init(
        project=run.folder.resolve().parent.name,
        name=run.name,
        id=identity.read_text("utf-8"),
        resume="allow",
        reinit="create_new",  # with --jobs, several runs are open, and wandb would return the first
        config=run.run.settings(),
    )
    return tracked.log, tracked.finish


TRACKERS: dict[str, Callable[[RunFolder, int], TrackedRun]] = {"tensorboard": _tensorboard, "wandb": _wandb}
"""Functions that open a run in a tracker, given the update of its first line."""


class TrackingReporter(Reporter):
    """Reporter that also sends the metrics of each run to a tracker; a failing tracker stops no run.

    Args:
        folder: the folder of the experiment.
        tracker: tensorboard or wandb.

    Raises:
        ValueError: the tracker is unknown or not installed.
    """

    def __init__(self, folder: str | Path, tracker: str) -> None:
        if tracker not in TRACKERS:
            raise ValueError(f"unknown tracker {tracker!r}; {did_you_mean(tracker, TRACKERS)}")
        if find_spec(tracker) is None:
            raise ValueError(
                f"--track {tracker}: {tracker} is not installed: pip install 'attnbench[{tracker}]'"
            )
        super().__init__()
        self._folder, self._tracker, self._failed = Path(folder), tracker, False
        self._tracked: dict[str, TrackedRun] = {}

    @contextmanager
    def trainings(self) -> Iterator[ShowMetrics]:
        """Show training runs, and send their metrics."""
        with super().trainings() as show:

            def show_and_send(name: str, max_updates: int, line: dict[str, Any]) -> None:
                show(name, max_updates, line)
                if line.get("kind") in KINDS:
                    self._try(lambda: self._send(name, line))

            try:
                yield show_and_send
            finally:
                for name in [*self._tracked]:
                    self._try(self._tracked.pop(name)[1])

    def _send(self, name: str, line: Mapping[str, Any]) -> None:
        if name not in self._tracked:
            run = RunFolder.read(self._folder / name)
            self._tracked[name] = TRACKERS[self._tracker](run, line["update"])
        values = {
            f"{line['kind']}/{key}": float(value)
            for key, value in line.items()
            if key != "update" and isinstance(value, int | float) and math.isfinite(value)
        }
        log, finish = self._tracked[name]
        log(values, line["update"])
        if line["kind"] == "final":
            del self._tracked[name]
            finish()

    def _try(self, action: Callable[[], object]) -> None:
        """Call the tracker; after its first failure, warn once and call it no more."""
        if self._failed:
            return
        try:
            action()
        except Exception as error:  # the package, the network or the disk may fail
            self._failed = True
            logger.warning(
                f"{self._tracker} is not used any more: {type(error).__name__}: {first_line(error)}; "
                "metrics.jsonl of each run has all figures"
            )
