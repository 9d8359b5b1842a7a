"""Series of kills of one command, each followed by an undisturbed call and a comparison."""

import itertools
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from compare.training.serialization import CHECKPOINTS
from tests.reliability.commands import OUT, Command
from tests.reliability.contents import (
    Contents,
    differences,
    ended_trials,
    leftovers,
    progress,
    read_contents,
)
from tests.reliability.kills import (
    CHILD_SIGNALS,
    ENDED_BY,
    SIGNALS,
    Ending,
    count_operations,
    kill_once,
    start,
    wait,
)

KILLS = 20
"""Kills per series; one of them ends a real process, the others forked ones."""
REAL_S = (1.0, 4.0)
"""Seconds in which Python itself has started, and in which it has imported torch, in a real process."""
COMPLETE = re.compile(r"error: .* holds something already")
"""What ``data prepare`` says when an earlier call has finished its work."""
FIELDS = ("kills", "at operations", "real", "losses", "differences", "leftovers", "tracebacks", "hangs")


@dataclass
class Table:
    """Counts by command and signal, and what was wrong in words."""

    counts: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    defects: list[str] = field(default_factory=list)
    finished: Counter[str] = field(default_factory=Counter)
    """Comparisons with the undisturbed run, by command."""

    def add(self, command: str, name: str, what: str) -> None:
        """Count ``what``, one of ``FIELDS``."""
        self.counts.setdefault((command, name), Counter())[what] += 1

    def defect(self, command: str, name: str, what: str, text: str) -> None:
        """Count a defect and keep its description."""
        self.add(command, name, what)
        self.defects.append(f"{command}, {name}: {what}: {text}")
        print(self.defects[-1], flush=True)

    @property
    def kills(self) -> int:
        """The number of processes killed."""
        return sum(counts["kills"] for counts in self.counts.values())

    def render(self) -> str:
        """Format as Markdown."""
        lines = [f"| command | signal | {' | '.join(FIELDS)} |", "|---|---|" + "---:|" * len(FIELDS)]
        for (command, name), counts in sorted(self.counts.items()):
            lines.append(f"| {command} | {name} | {' | '.join(str(counts[key]) for key in FIELDS)} |")
        total = sum(self.counts.values(), Counter[str]())
        lines.append(f"| all | | {' | '.join(str(total[key]) for key in FIELDS)} |")
        compared = ", ".join(f"{command} {number}" for command, number in sorted(self.finished.items()))
        return "\n".join([*lines, "", f"compared with an undisturbed run: {compared}"])


class Series:
    """Repeated series of kills of one command in a folder of its own."""

    def __init__(self, command: Command, folder: Path, table: Table, draw: random.Random) -> None:
        """Run the command undisturbed, to compare with.

        Args:
            command: the command.
            folder: a new folder.
            table: where to count.
            draw: random times and operations.
        """
        self.command, self.folder, self.table, self.draw = command, folder / "series", table, draw
        folder.mkdir()
        self._start_over()
        begin = time.monotonic()
        self.operations = count_operations(command, self.folder)
        self.seconds = time.monotonic() - begin
        self.reference: Contents = read_contents(self.folder)
        self._next_operation = itertools.cycle(range(1, self.operations + 1))
        self._signals = itertools.cycle([*SIGNALS, *CHILD_SIGNALS] if command.has_children else SIGNALS)

    def run(self, number: int) -> None:
        """Kill the command ``number`` times, then let it finish, and compare."""
        self._start_over()
        names: list[str] = []
        for index in range(number):
            name = next(self._signals)
            real, at_operation = number > 1 and index == number // 2, index % 2 == 1 and name in SIGNALS
            ending = self._kill(name, real=real, at_operation=at_operation and not real)
            if ending.status in ENDED_BY[name]:
                names.append(name)
                self.table.add(self.command.name, name, "kills")
                for what in ["real"] * real + ["at operations"] * (at_operation and not real):
                    self.table.add(self.command.name, name, what)
            elif ending.status == 0 or COMPLETE.match(ending.errors):  # it was faster than the signal
                self._compare(names)
                self._start_over()
                names = []
            else:
                self._defect(name, "differences", f"status {ending.status}: {ending.errors[-300:]}")
        ending = wait(start(self.command, self.folder), self.folder)
        if ending.status and not COMPLETE.match(ending.errors):
            self._defect(names[-1], "losses", f"status {ending.status} afterwards: {ending.errors[-300:]}")
        self._compare(names)

    def _kill(self, name: str, *, real: bool, at_operation: bool) -> Ending:
        """Kill once, and look for what was lost or damaged."""
        first, last = REAL_S if real else (0.0, 0.0)
        delay_s = self.draw.uniform(first, last + self.seconds * self.command.within)
        operation = 0
        if at_operation:
            within = max(1, int(self.operations * self.command.within))
            steps = self.draw.randint(1, within) if self.command.resumes else 0
            operation = steps or next(self._next_operation)
        before = progress(self.folder)
        ending = kill_once(
            self.command,
            self.folder,
            name,
            self.draw,
            delay_s=delay_s,
            operation=operation,
            real=real,
        )
        where = f"at operation {operation}" if operation else f"after {delay_s:.3f} s"
        where += " of a real process" if real else ""
        if ending.hung:
            self._defect(name, "hangs", where)
        if "Traceback" in ending.errors:
            self._defect(name, "tracebacks", f"{where}: {ending.errors[-1500:]}")
        for text in self._losses(before):
            self._defect(name, "losses", f"{where}: {text}")
        return ending

    def _losses(self, before: dict[str, int]) -> Iterator[str]:
        """Describe files that are damaged or gone, and states that went back."""
        try:
            after = progress(self.folder)
        except Exception as error:
            yield f"damaged: {type(error).__name__}: {error}"
            return
        ended = ended_trials(self.folder)
        for name, update in before.items():
            deleted = Path(name).parent.name == CHECKPOINTS and str(Path(name).parents[1]) in ended
            if name not in after and not deleted and not self.command.undoes:
                yield f"{name} is gone"
            elif after.get(name, update) < update:
                yield f"{name} went back from update {update} to {after[name]}"

    def _compare(self, names: list[str]) -> None:
        """Compare the folder with that of the undisturbed run, and put defects down to the last kill."""
        if not names:
            return
        self.table.finished[self.command.name] += 1
        for name in differences(read_contents(self.folder), self.reference):
            self._defect(names[-1], "differences", f"{name} after {len(names)} kills")
        for name in leftovers(self.folder):
            self._defect(names[-1], "leftovers", f"{name} after {len(names)} kills")

    def _defect(self, name: str, what: str, text: str) -> None:
        self.table.defect(self.command.name, name, what, text.replace(str(self.folder), OUT))

    def _start_over(self) -> None:
        """Empty the folder of the series, and fill it for the first call."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.command.set_up(self.folder)
