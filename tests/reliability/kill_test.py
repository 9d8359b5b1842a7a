"""Program: ends commands at random times and at operations on files, and compares what remains.

Example: python -m tests.reliability.kill_test --kills 1000 --seed 1
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch starts threads, which a forked process would not have

from tests.reliability.commands import make_commands, warm_up, write_inputs
from tests.reliability.kills import RUNNING, start, wait
from tests.reliability.processes import share
from tests.reliability.series import KILLS, OUT, Series, Table

SHARES = {
    "run": 0.3,
    "run --jobs 2": 0.05,
    "tune": 0.1,
    "tune --jobs 2": 0.05,
    "prepare": 0.16,
    "publish": 0.04,
    "prepare-into": 0.16,
    "report": 0.04,
    "study": 0.09,
    "bench": 0.11,
}
"""The part of the kills that each command gets."""


def main() -> int:
    """Run the kill test; the exit status is 1 if anything was lost, differs or was left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="processes to kill, about [default: 100]")
    parser.add_argument("--seed", type=int, default=None, help="of all that is random [default: the time]")
    parser.add_argument("--command", choices=sorted(SHARES), action="append", help="only this")
    parser.add_argument("--processes", default="2,4,8", help="so many at once on one experiment; empty: none")
    parser.add_argument("--seconds", type=float, default=15, help="duration of each of these [default: 15]")
    parser.add_argument("--short", action="store_true", help="a quarter of the updates")
    parser.add_argument("--folder", type=Path, help="where to work [default: the folder for temporary files]")
    options = parser.parse_args()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.default_int_handler)  # the table is printed in any case
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    folder, table = Path(tempfile.mkdtemp(dir=options.folder)), Table()
    try:
        warm_up()
        run(options, folder, table, random.Random(seed))
    except KeyboardInterrupt:
        print("stopped early")
    finally:
        for pid in RUNNING:
            os.kill(pid, signal.SIGKILL)
        print("", table.render(), "", f"{len(table.defects)} defects", *table.defects, sep="\n", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if table.defects else 0


def run(options: argparse.Namespace, folder: Path, table: Table, draw: random.Random) -> None:
    """Run all series, then the processes that share an experiment."""
    begin = time.monotonic()
    inputs, finished = write_inputs(folder / "inputs", short=options.short), folder / "finished" / OUT
    commands = make_commands(inputs, finished)
    finished.parent.mkdir()
    undisturbed = wait(start(commands["run"], finished.parent), finished.parent)
    assert undisturbed.status == 0, undisturbed.errors
    names = options.command or list(SHARES)
    goals = {
        name: round(options.kills * SHARES[name] / sum(SHARES[each] for each in names)) for name in names
    }
    series = {name: Series(commands[name], folder / name, table, draw) for name in names}
    for name, each in series.items():
        print(f"{name}: {each.seconds:.1f} s, {each.operations} operations on files", flush=True)
    while rest := {name: goal - _killed(table, name) for name, goal in goals.items()}:
        name = max(rest, key=lambda each: rest[each] / max(goals[each], 1))
        if rest[name] <= 0:
            break
        series[name].run(min(rest[name], KILLS))
        print(f"{time.monotonic() - begin:.0f} s: {name} {_killed(table, name)} of {goals[name]}", flush=True)
    for number in map(int, filter(None, options.processes.split(","))):
        place = folder / f"processes-{number}"
        share(commands["run"], place, number, options.seconds, table, draw, finished.parent)
        print(f"{time.monotonic() - begin:.0f} s: {number} processes", flush=True)


def _killed(table: Table, name: str) -> int:
    """Count the kills of a command."""
    return sum(counts["kills"] for (command, _), counts in table.counts.items() if command == name)


if __name__ == "__main__":
    sys.exit(main())
