"""Several processes that work on one experiment, some of which are killed."""

import random
import shutil
import time
from pathlib import Path

from tests.reliability.commands import Command
from tests.reliability.contents import differences, leftovers, read_contents
from tests.reliability.kills import ENDED_BY, SIGNALS, send, start, wait
from tests.reliability.series import Table

PAUSE_S = (0.1, 0.8)
"""Shortest and longest time between two kills."""


def share(
    command: Command,
    folder: Path,
    number: int,
    seconds: float,
    table: Table,
    draw: random.Random,
    finished: Path,
) -> None:
    """Let processes work on one experiment, kill one of them now and then, and start another instead.

    When an experiment is finished, another begins. At the end the remaining processes may finish it, the same
    command is called once more, and the folder is compared with that of an undisturbed run.

    Args:
        command: the command that all of them run.
        folder: a new folder.
        number: of processes at a time.
        seconds: for how long processes are killed.
        table: where to count.
        draw: random choices.
        finished: the folder of the undisturbed run.
    """
    row, reference = f"run x {number}", read_contents(finished)
    deadline = time.monotonic() + seconds
    folder.mkdir()
    while time.monotonic() < deadline:
        place = folder / "series"
        place.mkdir()
        pids = [start(command, place) for _ in range(number)]
        while time.monotonic() < deadline:
            time.sleep(draw.uniform(*PAUSE_S))
            name, index = draw.choice(list(SIGNALS)), draw.randrange(number)
            send(pids[index], name, draw)
            ending = wait(pids[index], place)
            if ending.status in ENDED_BY[name]:
                table.add(row, name, "kills")
            elif ending.status not in (0, 1):
                table.defect(row, name, "differences", f"status {ending.status}: {ending.errors[-300:]}")
            if "Traceback" in ending.errors:
                table.defect(row, name, "tracebacks", ending.errors[-1500:])
            pids[index] = start(command, place)
            if ending.status == 0:  # every row is finished
                break
        for pid in [*pids, None]:
            ending = wait(start(command, place) if pid is None else pid, place)
            if ending.status not in ((0,) if pid is None else (0, 1)) or "Traceback" in ending.errors:
                table.defect(row, "none", "losses", f"status {ending.status}: {ending.errors[-1500:]}")
        table.finished[row] += 1
        for name in differences(read_contents(place), reference):
            table.defect(row, "none", "differences", name)
        for name in leftovers(place):
            table.defect(row, "none", "leftovers", name)
        shutil.rmtree(place)
