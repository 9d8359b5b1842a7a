"""Commands with --slurm on the cluster of run_on_slurm.sh; their output without paths."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ATTNBENCH = [sys.executable, "-m", "compare"]
SLURM = "partition=test,time=10,cpus=1"
LIMIT_S = 1200


class Submission:
    """A command that has submitted its jobs and waits for them."""

    def __init__(self, arguments: Sequence[str], folder: Path, jobs: int) -> None:
        """Start the command, and wait until it has submitted its jobs.

        Args:
            arguments: of attnbench, without --slurm.
            folder: what is printed as "."; below it is everything that the command reads and writes.
            jobs: their number.
        """
        self.folder, self.jobs = folder, list[str]()
        self._begin = time.monotonic()
        self._print(f"\n$ attnbench {' '.join(arguments)} --slurm {SLURM}")
        self._process = subprocess.Popen(
            [*ATTNBENCH, *arguments, "--slurm", SLURM],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr
        for line in self._process.stderr:
            self._print(line.rstrip())
            if line.startswith("jobs "):
                self.jobs = re.findall(r"\d+_\d+", line)
                assert len(self.jobs) == jobs
                break

    def finish(self) -> bool:
        """Print the rest and how often each job was restarted; returns whether the command has succeeded."""
        table, rest = self._process.communicate(timeout=LIMIT_S)
        self._print(f"{rest}\n{table}")
        status = self._process.returncode
        print(f"exit status {status} after {time.monotonic() - self._begin:.0f} s")
        for job in self.jobs:
            restarts = re.search(r"Restarts=(\d+)", output("scontrol", "show", "job", job))
            print(f"job {job}, {restarts[1] if restarts else '?'} restarts")
        return status == 0

    def _print(self, text: str) -> None:
        print(text.replace(str(self.folder), "."), flush=True)


def disturb(command: Sequence[str], logs: Sequence[Path]) -> Path:
    """Call a command that sends a job back to the queue, and print what the job says to that.

    Args:
        command: the command.
        logs: the messages of the jobs that it may send back.

    Returns:
        The messages of the job that has stopped.
    """
    print(f"$ {' '.join(command)}", flush=True)
    subprocess.run(command, check=False, capture_output=True)  # scancel fails once the job is queued again
    stopped: list[Path] = []

    def has_stopped() -> bool:
        for log in logs:
            for line in log.read_text().splitlines() if log.is_file() else []:
                if line.startswith("stopped"):
                    print(f"{log.name}: {line}", flush=True)
                    stopped.append(log)
        return bool(stopped)

    wait_for(has_stopped)
    return stopped[0]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, for twenty minutes at most."""
    end = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)


def output(*command: str) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
