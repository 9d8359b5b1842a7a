"""Program: six runs as a Slurm array, two of them sent back to the queue; their rows against a serial run.

Started by run_on_slurm.sh. Prints no name of the machine and no path.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from compare.training.file_names import CHECKPOINTS, STATE
from tests.reliability.commands import write_inputs
from tests.reliability.contents import differences, leftovers, read_contents

SEEDS = "1,2,3"
SETTINGS = ["--set", "train.max_updates=300", "--set", "train.valid_every=100", "--set", "train.log_every=50"]
SLURM = "partition=test,time=10,cpus=1"
LIMIT_S = 1200


def main() -> int:
    """Run both experiments and compare them; the exit status is 1 if anything differs."""
    folder = Path(sys.argv[1])
    config = write_inputs(folder, short=False) / "tiny.toml"
    os.environ["OMP_NUM_THREADS"] = "1"
    print(_output("slurmctld", "-V"), f"submitit {version('submitit')}, torch {version('torch')}", sep="\n")
    command = [sys.executable, "-m", "compare", "run", str(config), "--seeds", SEEDS, *SETTINGS]
    subprocess.run([*command, "--out", str(folder / "serial"), "-q"], check=True, stdout=subprocess.DEVNULL)
    out = folder / "array"
    print(f"\n$ attnbench run tiny.toml --seeds {SEEDS} {' '.join(SETTINGS)} --slurm {SLURM}", flush=True)
    begin = time.monotonic()
    parent = subprocess.Popen(
        [*command, "--out", str(out), "--slurm", SLURM],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stderr
    jobs: dict[str, str] = {}
    for line in parent.stderr:
        print(line.rstrip().replace(str(folder), "."), flush=True)
        if match := re.fullmatch(r"(\S+): job (\d+_\d+)", line.rstrip()):
            jobs[match[1]] = match[2]
        if len(jobs) == 6:
            break
    first, _, third, *_ = jobs  # two run at a time; Slurm starts one again after two minutes
    for name, command in ((first, ["scontrol", "requeue"]), (third, ["scancel", "--signal=USR2"])):
        _disturb(out / name, [*command, jobs[name]], out / "slurm" / f"{jobs[name]}_0_log.err")
    table, rest = parent.communicate(timeout=LIMIT_S)
    print(rest.replace(str(folder), "."), table.replace(str(folder), "."), sep="\n")
    print(f"exit status {parent.returncode} after {time.monotonic() - begin:.0f} s")
    for name, job in jobs.items():
        restarts = re.search(r"Restarts=(\d+)", _output("scontrol", "show", "job", job))
        print(f"{name}: job {job}, {restarts[1] if restarts else '?'} restarts")
    differing = [
        f"{name}/{each}"
        for name in jobs
        for each in differences(read_contents(out / name), read_contents(folder / "serial" / name))
    ]
    print(f"files of the 6 runs that differ from a serial run: {', '.join(differing) or 'none'}")
    print(f"temporary files and locks left: {', '.join(leftovers(out)) or 'none'}")
    return 1 if parent.returncode or differing or leftovers(out) or len(jobs) != 6 else 0


def _disturb(run: Path, command: list[str], log: Path) -> None:
    """Send a job back to the queue once its run has saved a state; print what it says to that."""
    _wait_for((run / CHECKPOINTS / STATE).exists)
    print(f"$ {' '.join(command)}", flush=True)
    subprocess.run(command, check=False, capture_output=True)  # scancel fails once the job is queued again
    said: list[str] = []

    def has_stopped() -> bool:
        said[:] = [line for line in log.read_text().splitlines() if line.startswith("stopped at update")]
        return bool(said)

    _wait_for(has_stopped)
    print(f"{run.name}: {' '.join(said)}", flush=True)


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
