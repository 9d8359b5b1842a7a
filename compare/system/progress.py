"""Tell people how the work goes: a bar on a terminal, plain lines elsewhere, all of it in log.txt."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data.text.files import append_whole

Report = Callable[[dict[str, Any]], None]

PACE_S = 10.0
"""Seconds between lines about work on pairs, where there is no terminal."""


class Reporter:
    """Where messages go; ``quiet`` keeps them off the screen but not out of the log."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.log: Path | None = None
        self._bar: Any = None

    def say(self, text: str) -> None:
        """Print a line to standard error and add it to the current log."""
        if self.log is not None:
            append_whole(self.log, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def logging_to(self, path: Path) -> Iterator[None]:
        """Add all lines of a block to ``path``."""
        self.log, before = path, self.log
        try:
            yield
        finally:
            self.log = before

    @contextmanager
    def training(self, label: str, max_updates: int) -> Iterator[Report]:
        """Show a training run; yields what to call with each line of its metrics."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda line: self._plain(label, max_updates, line)
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = ("{task.description}", BarColumn(), "{task.completed}/{task.total}", TimeRemainingColumn())
        with Progress(*columns, TextColumn("{task.fields[note]}"), console=_stderr()) as self._bar:
            task = self._bar.add_task(label, total=max_updates, note="")

            def show(line: dict[str, Any]) -> None:
                if line["kind"] == "train":
                    note = f"loss {line['loss']:.3f}  {line['tokens_per_s']:,.0f} tokens/s"
                    self._bar.update(task, completed=line["update"], note=note)
                else:
                    self._plain(label, max_updates, line)

            try:
                yield show
            finally:
                bar, self._bar = self._bar, None
                bar.refresh()

    @contextmanager
    def counting(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Show work on many pairs, ``total`` where that is known; yields what to call with those done."""
        if self.quiet or not sys.stderr.isatty():
            yield _Pace(label, total, self.say)
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=_stderr(), transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.update(task, completed=done)

    def _plain(self, label: str, max_updates: int, line: dict[str, Any]) -> None:
        """One line of text for one line of metrics."""
        place = f"{label} {line['update']}/{max_updates} {line['seconds']:.0f} s"
        if line["kind"] == "valid":
            self.say(f"{place}: validation loss {line['loss']:.3f}, BLEU {line['bleu']:.2f}")
        elif line["kind"] == "final":
            self.say(f"{place}: keeps {line['chosen']}, validation BLEU {line['bleu']:.2f}")
        elif line["kind"] == "train":
            self.say(f"{place}: loss {line['loss']:.3f}, {line['tokens_per_s']:,.0f} tokens/s")


class _Pace:
    """Says every ten seconds how far work on pairs is; nothing of what is done sooner."""

    def __init__(self, label: str, total: int | None, say: Callable[[str], None]) -> None:
        self._say, self._label, self._total = say, label, total
        self._start = self._said = time.monotonic()

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said >= PACE_S:
            self._said = now
            of = f" of {self._total:,}" if self._total else ""
            self._say(f"{self._label}: {done:,}{of} pairs, {done / (now - self._start):,.0f} a second")


def _stderr() -> Any:
    from rich.console import Console

    return Console(stderr=True)
