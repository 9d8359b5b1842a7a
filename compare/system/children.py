"""Child processes side by side, each on cores or a GPU of its own; the parent shows their progress."""

import json
import logging
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from compare.system.child import STOP
from compare.system.log import Reporter, ShowMetrics
from compare.system.signals import Interrupted, stop_on_signals
from compare.system.slots import Slot

logger = logging.getLogger(__name__)

START = "import sys, json; t = json.loads(sys.argv[1]); sys.path[:] = t.pop('path')\n"
START += "from compare.system.child import main; sys.exit(main(**t))"
"""Program of a child: the modules are those that the parent finds, wherever it was started."""
POLL_S = 0.1
"""Longest time until a signal to the parent is passed on."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one child does."""

    name: str
    """How messages call it."""
    function: str
    """The function, as "module:name"; its first argument is a ``child.Channel``."""
    arguments: Sequence[Any]
    """The other arguments; JSON can hold them."""


@dataclass(kw_only=True)
class Outcome:
    """How a child has ended."""

    name: str
    kind: str
    """done, error (a user's mistake), locked, stopped (as the parent asked; its state is saved) or died."""
    text: str = ""
    """The message of an error or a lock, or how it was stopped or died."""
    value: Any = None
    """What the function returned."""


@dataclass(kw_only=True)
class _Child:
    """A running child."""

    task: Task
    slot: Slot
    process: "subprocess.Popen[bytes]"
    reader: threading.Thread
    """Passes its messages on."""
    last: dict[str, Any] = field(default_factory=dict)
    """The message about its end."""

    def stop(self) -> None:
        """Ask it to save its state and end."""
        assert self.process.stdin
        with suppress(OSError):  # it has ended
            self.process.stdin.write(STOP)
            self.process.stdin.flush()

    def wait(self) -> int:
        """Wait for its end, and return its status."""
        assert self.process.stdin
        self.reader.join()
        with suppress(OSError):  # what could not be sent
            self.process.stdin.close()
        return self.process.wait()

    def outcome(self) -> Outcome:
        """Wait for its end and describe it."""
        status = self.wait()
        if self.last:
            return Outcome(name=self.task.name, **self.last)
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return Outcome(name=self.task.name, kind="died", text=f"its process was {how}")


def run_children(
    tasks: Sequence[Task],
    slots: Sequence[Slot],
    reporter: Reporter,
    ended: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run each task in a child process, as many at a time as there are slots, in order.

    On the first SIGINT or SIGTERM all children are asked to save their state and end; a second one kills
    them. If this process is killed, they end at once.

    Args:
        tasks: what to do.
        slots: where.
        reporter: shows the progress of all children.
        ended: called as each child ends.

    Returns:
        How the children have ended, the first to end first.

    Raises:
        Interrupted: a signal arrived, and all children have ended.
    """
    waiting, free, running = deque(tasks), deque(slots), list[_Child]()
    outcomes: list[Outcome] = []
    events: queue.SimpleQueue[tuple[_Child, dict[str, Any] | None]] = queue.SimpleQueue()
    told = False
    with reporter.trainings() as show, stop_on_signals() as stop:
        try:
            while running or (waiting and not stop.signum):
                while waiting and free and not stop.signum:
                    running.append(_start(waiting.popleft(), free.popleft(), events))
                if stop.signum and not told:
                    told = True
                    for child in running:
                        child.stop()
                try:
                    child, message = events.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                if message is not None:
                    _handle(child, message, show)
                    continue
                outcome = child.outcome()
                if outcome.kind == "stopped" and not told:  # by a signal from elsewhere
                    outcome.kind = "died"
                running.remove(child)
                free.append(child.slot)
                outcomes.append(outcome)
                ended(outcome)
        finally:
            for child in running:
                child.process.kill()
            for child in running:
                child.wait()
    if stop.signum:
        stopped = [f"{each.name} {each.text}" for each in outcomes if each.kind == "stopped"]
        raise Interrupted(stop.signum, ", ".join(stopped) or "stopped")
    return outcomes


def _start(task: Task, slot: Slot, events: "queue.SimpleQueue[Any]") -> _Child:
    """Start a child, and a thread that reads its messages; None is its last."""
    content = {
        "path": sys.path,
        "function": task.function,
        "arguments": list(task.arguments),
        "processors": list(slot.processors),
    }
    # In a process group of its own, so that Ctrl-C in a terminal reaches the parent alone.
    group: Mapping[str, Any] = (
        {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}  # type: ignore[attr-defined,unused-ignore]
        if sys.platform == "win32"
        else {"process_group": 0}
    )
    process = subprocess.Popen(
        [sys.executable, "-c", START, json.dumps(content)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=slot.environment(),
        **group,
    )
    logger.info(f"{task.name}: start, {slot}")

    def read() -> None:
        assert process.stdout
        with process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # a killed child may have left half a line
                    events.put((child, json.loads(line)))
        events.put((child, None))

    child = _Child(task=task, slot=slot, process=process, reader=threading.Thread(target=read, daemon=True))
    child.reader.start()
    return child


def _handle(child: _Child, message: dict[str, Any], show: ShowMetrics) -> None:
    """Show a message of a child, or keep it if it tells of the end."""
    if message["kind"] == "metrics":
        show(message["label"], message["max_updates"], message["line"])
    elif message["kind"] == "log":
        name, text = child.task.name, message["text"]
        logger.log(message["level"], text if text.startswith(name) else f"{name}: {text}")
    else:
        child.last = message
