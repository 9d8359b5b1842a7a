"""Program: ends one of the processes that train together, at random times, and compares what remains.

Example: python -m tests.reliability.together_kills --kills 100 --seed 1

The processes are forked with the environment that torchrun gives. After 10 kills they may finish, and the
folder is compared with that of an undisturbed run by as many processes: weights, trainer state, log lines,
results and translations must be equal, but for times.
"""

import argparse
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch starts threads, which a forked process would not have

from tests.kits.together import fork
from tests.reliability.commands import OUT, make_commands, run_in_child, warm_up, write_inputs
from tests.reliability.contents import differences, leftovers, progress, read_contents

SIGNALS = (signal.SIGKILL, signal.SIGTERM)
SERIES = 10
"""Kills between two comparisons."""
WITHIN = 0.15
"""They are killed within this part of the duration of an undisturbed run, since each call resumes."""
GRACE_S = 5
"""Time between SIGTERM and SIGKILL for those that remain after one has failed; 30 seconds under torchrun."""
LIMIT_S = 120
"""Processes that have not ended after this time hang."""


def main() -> int:
    """Run the test; the exit status is 1 if anything was lost, differs, was left or hangs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="processes to kill [default: 20]")
    parser.add_argument("--size", type=int, default=2, help="processes that train together [default: 2]")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="[default: the time]")
    options = parser.parse_args()
    draw, folder, counts = random.Random(options.seed), Path(tempfile.mkdtemp()), Counter[str]()
    defects: list[str] = []
    print(f"seed {options.seed}", flush=True)
    warm_up()
    arguments = make_commands(write_inputs(folder / "inputs", short=True), folder)["run"].arguments
    try:
        begin = time.monotonic()
        defects += end(start(arguments(folder / "undisturbed"), folder, options.size), folder, counts)
        seconds, reference = time.monotonic() - begin, read_contents(folder / "undisturbed" / OUT)
        while counts["kills"] < options.kills and not defects:
            place = folder / f"series{counts['compared']}"
            for _ in range(min(SERIES, options.kills - counts["kills"])):
                pids = start(arguments(place), folder, options.size)
                time.sleep(draw.uniform(0, WITHIN * seconds))
                signum, rank = draw.choice(SIGNALS), draw.randrange(options.size)
                os.kill(pids[rank], signum)  # one that has ended is not waited for yet
                counts["kills"] += 1
                counts[f"{signum.name} of process {min(rank, 1)}"] += 1
                defects += end(pids, folder, counts)
                progress(place)
            defects += end(start(arguments(place), folder, options.size), folder, counts)
            counts["compared"] += 1
            defects += [f"differs: {name}" for name in differences(read_contents(place / OUT), reference)]
            defects += [f"left: {name}" for name in leftovers(place)]
    finally:
        print(dict(counts), f"{len(defects)} defects", *defects, sep="\n", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if defects else 0


def start(arguments: list[str], folder: Path, size: int) -> list[int]:
    """Run the command in processes that train together; each writes its errors to a file of its rank."""

    def work() -> int:
        run_in_child(arguments, folder / f"errors{os.environ['RANK']}", lambda: None)
        return 0

    Path(arguments[arguments.index("--out") + 1]).parent.mkdir(exist_ok=True)
    return fork(size, work)


def end(pids: list[int], folder: Path, counts: Counter[str]) -> list[str]:
    """Wait for the processes; end those that remain as torchrun does.

    Returns:
        What should not have happened.
    """
    statuses: dict[int, int] = {}
    deadline, failed = time.monotonic() + LIMIT_S, None
    while len(statuses) < len(pids):
        remaining = [pid for pid in pids if pid not in statuses]
        for pid in remaining:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                statuses[pid] = os.waitstatus_to_exitcode(status)
        if failed is None and any(statuses.values()):
            failed = time.monotonic()
            for pid in set(pids) - statuses.keys():
                os.kill(pid, signal.SIGTERM)
        if time.monotonic() > (deadline if failed is None else failed + GRACE_S):
            for pid in set(pids) - statuses.keys():
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    defects = ["all processes hang"] if failed is None and time.monotonic() > deadline else []
    for rank, pid in enumerate(pids):
        counts[f"status {statuses[pid]}"] += 1
        path = folder / f"errors{rank}"
        errors = path.read_text() if path.exists() else ""
        if "Traceback" in errors or statuses[pid] not in (0, 2, 143, -9, -15):
            defects.append(f"process {rank} ends with {statuses[pid]}: {errors[-1500:]}")
    return defects


if __name__ == "__main__":
    raise SystemExit(main())
