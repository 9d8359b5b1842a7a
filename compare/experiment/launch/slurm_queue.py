"""The jobs of an experiment on a cluster: their submission by submitit, and which of them have not ended."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compare.experiment.launch.slurm_options import SlurmOptions
from compare.system.messages import first_line
from data.files import parse_json, read_bytes, write_atomically

FOLDER = "slurm"
"""In the folder of the experiment: what submitit writes, and the ids of the jobs."""
JOBS = "jobs.json"
MAX_BYTES = 10_000_000
MAX_TIMEOUTS = 1_000
"""How often a job that has reached its time limit is queued again."""


def ensure_cluster(options: SlurmOptions) -> None:
    """Raise ValueError if jobs cannot be submitted from here."""
    if find_spec("submitit") is None:
        raise ValueError("--slurm needs submitit, which is not installed: pip install 'attnbench[slurm]'")
    if options.cluster == "slurm" and (shutil.which("sbatch") is None or shutil.which("srun") is None):
        raise ValueError("--slurm: no sbatch here: run this on a machine that submits jobs to the cluster")


class SlurmQueue:
    """The jobs of one experiment."""

    def __init__(self, experiment: Path, options: SlurmOptions) -> None:
        """Describe the jobs; nothing is read.

        Args:
            experiment: the folder of the experiment, on a file system that the nodes share.
            options: what each job asks for.
        """
        self.folder, self.options = experiment / FOLDER, options
        place = hashlib.sha256(os.fsencode(self.folder.resolve())).hexdigest()
        self.name = f"attnbench-{place[:12]}"
        """Name of all jobs of the experiment, and of no others of this user."""
        self._local: list[Any] = []

    def submit(self, works: Mapping[str, Callable[[], str]]) -> dict[str, str]:
        """Submit an array of jobs, or a single job; returns the ids by name, which jobs.json keeps.

        Raises:
            ValueError: the cluster refuses them.
        """
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        waiting = self.queued()
        try:
            executor = submitit.AutoExecutor(
                self.folder.resolve(), cluster=self.options.cluster, slurm_max_num_timeout=MAX_TIMEOUTS
            )
            executor.update_parameters(name=self.name, **self.options.for_submitit())
            jobs = executor.submit_array(list(works.values()))
        except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as error:
            raise ValueError(f"--slurm: the jobs are refused: {first_line(error)}") from None
        self._local += jobs if self.options.cluster == "local" else []
        ids = dict(zip(works, (str(job.job_id) for job in jobs), strict=True))
        write_atomically(self.folder / JOBS, json.dumps(waiting | ids, indent=2) + "\n")
        return ids

    def queued(self) -> dict[str, str]:
        """Return the ids of the jobs, of earlier calls too, that have not ended, by name.

        Hold the lock of ``folder``: another process may be submitting jobs.

        Raises:
            ValueError: jobs.json is damaged, jobs are queued that it does not name, or the cluster does not
                answer.
        """
        jobs = self._read_jobs()
        if self.options.cluster == "slurm" and (unknown := self._listed() - set(jobs.values())):
            raise ValueError(
                f"--slurm: jobs {', '.join(sorted(unknown))} were submitted by a call that was killed before "
                f"it noted what they work on: end them by `scancel --name={self.name}` and run this again"
            )
        active = self.active(jobs.values())
        return {name: job for name, job in jobs.items() if job in active}

    def active(self, jobs: Iterable[str]) -> set[str]:
        """Return those ids whose jobs have not ended.

        Raises:
            ValueError: the cluster does not answer.
        """
        if self.options.cluster == "slurm":
            return self._listed().intersection(jobs)
        for job in self._local:
            job.done()  # else a child that has ended still counts as a process
        return {job for job in jobs if _is_process(job)}

    def _read_jobs(self) -> dict[str, str]:
        """Read jobs.json: the ids of jobs by name."""
        path = self.folder / JOBS
        if not path.is_file():
            return {}
        try:
            jobs = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
        except ValueError:
            jobs = None
        if not isinstance(jobs, dict) or not all(isinstance(job, str) for job in jobs.values()):
            raise ValueError(f"{path}: expected the ids of jobs by name: delete it if none of them is queued")
        return jobs

    def _listed(self) -> set[str]:
        """Return the ids of all jobs of the experiment that the cluster has not ended."""
        command = ["squeue", "--noheader", "--array", "--format=%i", f"--name={self.name}"]
        try:
            listed = subprocess.run(
                [*command, f"--user={os.getuid()}"], capture_output=True, text=True, check=True
            ).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            reason = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
            raise ValueError(f"--slurm: squeue does not answer: {' '.join(reason.split())}") from None
        return set(listed.split())

    def log(self, job: str) -> Path:
        """The messages of a job."""
        return self.folder / f"{job}_0_log.err"

    def remove(self) -> None:
        """Delete the files of the jobs, all of which have ended."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_process(job: str) -> bool:
    """Return whether the process of this id is running; one that ended and was not waited for is not."""
    try:
        os.kill(int(job), 0)
        status = Path(f"/proc/{int(job)}/stat")
        return not status.is_file() or ") Z " not in status.read_text()
    except (OSError, ValueError, OverflowError):
        return False
