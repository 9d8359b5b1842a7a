"""Program: six runs as a Slurm array, two of them sent back to the queue; their rows against a serial run.

Started by run_on_slurm.sh. Prints no name of the machine and no path.
"""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from compare.training.serialization import CHECKPOINTS, STATE
from tests.reliability.commands import write_inputs
from tests.reliability.contents import differences, leftovers, read_contents
from tests.slurm.cluster_commands import ATTNBENCH, Submission, disturb, output, wait_for

SEEDS = "1,2,3"
SETTINGS = ["--set", "train.max_updates=300", "--set", "train.valid_every=100", "--set", "train.log_every=50"]


def main() -> int:
    """Run both experiments and compare them; the exit status is 1 if anything differs."""
    folder = Path(sys.argv[1])
    config = write_inputs(folder, short=False) / "tiny.toml"
    os.environ["OMP_NUM_THREADS"] = "1"
    print(output("slurmctld", "-V"), f"submitit {version('submitit')}, torch {version('torch')}", sep="\n")
    arguments = ["run", str(config), "--seeds", SEEDS, *SETTINGS, "--out"]
    serial, out = folder / "serial", folder / "array"
    subprocess.run([*ATTNBENCH, *arguments, str(serial), "-q"], check=True, stdout=subprocess.DEVNULL)
    submission = Submission([*arguments, str(out)], folder, jobs=6)
    jobs = submission.jobs
    logs = [out / "slurm" / f"{job}_0_log.err" for job in jobs]
    wait_for(lambda: len(list(out.glob(f"*/{CHECKPOINTS}/{STATE}"))) == 2)  # two jobs run at a time
    disturb(["scontrol", "requeue", jobs[0]], logs[:1])
    disturb(["scancel", "--signal=USR2", jobs[1]], logs[1:2])
    succeeded = submission.finish()
    differing = [
        f"{run.name}/{each}"
        for run in serial.glob("*-seed*")
        for each in differences(read_contents(out / run.name), read_contents(run))
    ]
    print(f"files of the 6 runs that differ from a serial run: {', '.join(differing) or 'none'}")
    print(f"temporary files and locks left: {', '.join(leftovers(out)) or 'none'}")
    return 0 if succeeded and not differing and not leftovers(out) and len(jobs) == 6 else 1


if __name__ == "__main__":
    sys.exit(main())
