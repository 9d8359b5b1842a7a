"""Program: a search as a Slurm array, one of whose trials is preempted; its files against a serial search.

Started by run_on_slurm.sh. Prints no name of the machine and no path.
"""

import os
import subprocess
import sys
from pathlib import Path

from compare.training.serialization import CHECKPOINTS, METRICS, STATE
from tests.reliability.commands import write_inputs
from tests.reliability.contents import differences, leftovers, read_contents
from tests.slurm.cluster_commands import ATTNBENCH, Submission, disturb, output, wait_for

EFFORT = ["--trials", "2", "--updates", "200"]
SETTINGS = ["--set", "train.valid_every=100", "--set", "train.log_every=25"]
URGENT = ["sbatch", "--partition=urgent", "--output=/dev/null", "--wrap=sleep 1"]
"""A job of a partition whose jobs preempt those of the others."""


def main() -> int:
    """Search twice and compare the folders; the exit status is 1 if anything differs."""
    folder = Path(sys.argv[1])
    config = write_inputs(folder, short=False) / "tiny.toml"
    os.environ["OMP_NUM_THREADS"] = "1"
    arguments = ["tune", str(config), *EFFORT, *SETTINGS, "--out"]
    serial, out = folder / "serial", folder / "array"
    subprocess.run([*ATTNBENCH, *arguments, str(serial), "-q"], check=True, stdout=subprocess.DEVNULL)
    submission = Submission([*arguments, str(out)], folder, jobs=4)
    jobs = submission.jobs

    def both_have_saved() -> bool:
        states = out.glob(f"*/{CHECKPOINTS}/{STATE}")
        return sum((state.parent.parent / METRICS).is_file() for state in states) == 2

    wait_for(both_have_saved)  # two jobs run at a time, and have come beyond the first updates
    stopped = disturb(URGENT, [out / "slurm" / f"{job}_0_log.err" for job in jobs])
    preempted = stopped.name.removesuffix("_0_log.err")
    state = ["squeue", "--noheader", "--array", "--format=%T", f"--jobs={preempted}"]
    wait_for(lambda: output(*state) == "PENDING")
    output("scontrol", "update", f"JobId={preempted}", "StartTime=now")  # Slurm waits for two minutes
    succeeded = submission.finish()
    differing = differences(read_contents(out), read_contents(serial))
    print(f"files of the search that differ from a serial search: {', '.join(differing) or 'none'}")
    print(f"temporary files and locks left: {', '.join(leftovers(out)) or 'none'}")
    complete = (out / "best.toml").is_file()
    print(f"best.toml is {'complete' if complete else 'missing'}")
    return 0 if succeeded and complete and not differing and not leftovers(out) and len(jobs) == 4 else 1


if __name__ == "__main__":
    sys.exit(main())
