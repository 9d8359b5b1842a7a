"""Program: six runs, or a search, as jobs of the cluster of run_on_slurm.sh; compared with a serial call.

    python -m tests.slurm.cluster six_runs|search FOLDER

Jobs are sent back to the queue, interrupted or preempted. Prints no name of the machine and no path.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from compare.training.checkpoints import CHECKPOINTS, STATE
from compare.training.log import METRICS_FILE
from tests.conftest import TINY, write_corpus
from tests.kits.common import differences, leftovers, read_contents

ATTNBENCH = [sys.executable, "-m", "compare"]
SLURM = "partition=test,time=10,cpus=1"
LIMIT_S = 1200
SIX_RUNS = ["--seeds", "1,2,3", "--set", "train.max_updates=300"]
SEARCH = ["--trials", "2", "--updates", "200"]
SETTINGS = ["--set", "train.valid_every=100", "--set", "train.log_every=50"]
URGENT = ["sbatch", "--partition=urgent", "--output=/dev/null", "--wrap=sleep 1"]
"""A job of a partition whose jobs preempt those of the others."""


class Submission:
    """A command that has submitted its jobs and waits for them."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        """Start the command, and wait until it has submitted its jobs; ``folder`` is printed as "."."""
        self.folder, self.jobs = folder, list[str]()
        self._print(f"\n$ attnbench {' '.join(arguments)} --slurm {SLURM}")
        command = [*ATTNBENCH, *arguments, "--slurm", SLURM]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stderr
        for line in self._process.stderr:
            self._print(line.rstrip())
            if line.startswith("jobs "):
                self.jobs = re.findall(r"\d+_\d+", line)
                break

    def finish(self) -> bool:
        """Print the rest and how often each job was restarted; returns whether the command has succeeded."""
        table, rest = self._process.communicate(timeout=LIMIT_S)
        self._print(f"{rest}\n{table}\nexit status {self._process.returncode}")
        for job in self.jobs:
            restarts = re.search(r"Restarts=(\d+)", output("scontrol", "show", "job", job))
            print(f"job {job}, {restarts[1] if restarts else '?'} restarts")
        return self._process.returncode == 0

    def _print(self, text: str) -> None:
        print(text.replace(str(self.folder), "."), flush=True)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, for twenty minutes at most."""
    end = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def disturb(command: Sequence[str], logs: Sequence[Path]) -> Path:
    """Call a command that stops a job, and print what the job says to that; returns the job's messages."""
    print(f"$ {' '.join(command)}", flush=True)
    subprocess.run(command, check=False, capture_output=True)  # scancel fails once the job is queued again

    def stopped() -> list[Path]:
        return [log for log in logs if log.is_file() and re.search("^stopped", log.read_text(), re.MULTILINE)]

    wait_for(lambda: bool(stopped()))
    (log, *_) = stopped()
    print(f"{log.name}: {re.search('^stopped.*', log.read_text(), re.MULTILINE)[0]}", flush=True)  # type: ignore[index]
    return log


def main(name: str, folder: Path) -> int:
    """Call the command twice and compare the folders; the exit status is 1 if anything differs."""
    folder.mkdir()
    root = write_corpus(folder / "corpus", {"train": 400, "valid": 8, "test": 8})
    (folder / "tiny.toml").write_text(TINY.format(root=root.as_posix()))
    os.environ["OMP_NUM_THREADS"] = "1"
    print(output("slurmctld", "-V"), f"submitit {version('submitit')}, torch {version('torch')}", sep="\n")
    command, options, number = {"six_runs": ("run", SIX_RUNS, 6), "search": ("tune", SEARCH, 4)}[name]
    arguments = [command, str(folder / "tiny.toml"), *options, *SETTINGS, "--out"]
    serial, out = folder / "serial", folder / "array"
    subprocess.run([*ATTNBENCH, *arguments, str(serial), "-q"], check=True, stdout=subprocess.DEVNULL)
    submission = Submission([*arguments, str(out)], folder)
    jobs = submission.jobs
    logs = [out / "slurm" / f"{job}_0_log.err" for job in jobs]

    def two_have_saved() -> bool:  # two jobs run at a time
        states = out.glob(f"*/{CHECKPOINTS}/{STATE}")
        return sum((state.parent.parent / METRICS_FILE).is_file() for state in states) == 2

    wait_for(two_have_saved)
    if command == "run":
        disturb(["scontrol", "requeue", jobs[0]], logs[:1])
        disturb(["scancel", "--signal=USR2", jobs[1]], logs[1:2])
    else:
        preempted = disturb(URGENT, logs).name.removesuffix("_0_log.err")
        state = ["squeue", "--noheader", "--array", "--format=%T", f"--jobs={preempted}"]
        wait_for(lambda: output(*state) == "PENDING")
        output("scontrol", "update", f"JobId={preempted}", "StartTime=now")  # Slurm waits for two minutes
    succeeded = submission.finish()
    differing = differences(read_contents(out), read_contents(serial))
    differing = [name for name in differing if not name.startswith(("slurm/", "experiment.json"))]
    print(f"files that differ from a serial call: {', '.join(differing) or 'none'}")
    print(f"temporary files and locks left: {', '.join(leftovers(out)) or 'none'}")
    return 0 if succeeded and not differing and not leftovers(out) and len(jobs) == number else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
