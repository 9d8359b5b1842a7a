"""Run an experiment in several processes: on this machine, as jobs of a Slurm cluster, or by torchrun.

Processes of ``--jobs`` and ``--slurm`` all do the same: they finish each run that has not ended and is not
locked. The process that has started them waits, and shows their progress from the files of the runs.
Processes of torchrun train each run together instead.
"""

import _thread
import hashlib
import json
import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compare.config.resolve import Run, resolve_models
from compare.config.sections import Experiment
from compare.experiment.open_runs import PlannedRun
from compare.experiment.prepare import PreparedData, sides, training_batches
from compare.experiment.run_model import RunModel, build_trainer, run_model
from compare.experiment.timing import results_to_time
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_result
from compare.system.log import Reporter, ShowMetrics, show_messages
from compare.system.messages import did_you_mean, first_line
from compare.system.plugins import VERSIONS, load_plugins
from compare.system.processes import (
    Interrupted,
    Processes,
    Terminated,
    raise_on_signals,
    stop_on_signals,
)
from data.corpus import Corpus, Pairs
from data.encode import open_split
from data.vocabulary import VocabularyPair

logger = logging.getLogger(__name__)

START = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from compare.experiment.launch import main
sys.exit(main())"""
"""Program of a process on this machine, with the module path of this process."""
POLL_S = 0.2
CORES_PER_JOB = 2
"""Threads per process of ``--jobs auto``; small models gain little from a third thread."""
ALL_GPUS = ("cuda", "cuda:0")
"""Devices with which each process gets its own GPU."""
VISIBLE = "CUDA_VISIBLE_DEVICES"


def _minutes(text: str) -> int:
    hours, _, minutes = text.rpartition(":")
    return int(minutes) + 60 * int(hours or 0)


SLURM_KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    **{
        key: (f"slurm_{key}", str)
        for key in ("partition", "qos", "account", "constraint", "nodelist", "exclude")
    },
    "gpus": ("gpus_per_node", int),
    "cpus": ("cpus_per_task", int),
    "time": ("timeout_min", _minutes),
    "mem": ("mem_gb", float),
    "cluster": ("cluster", str),
}
"""Keys of ``--slurm``: submitit's name, and the function that reads the value."""
MAX_TIMEOUTS = 1_000
"""Largest number of times that a job is queued again after its time limit."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Processes that share the runs of an experiment."""

    jobs: int = 0
    """Number of processes; 0: one per GPU or per two threads of this machine, on a cluster one per run."""
    slurm: Mapping[str, Any] | None = None
    """Values of ``SLURM_KEYS`` for jobs of a cluster; None: processes on this machine."""

    def resolve_models(self, experiment: Experiment, context: str) -> list[Run]:
        """Resolve the settings of each model for the machine of the processes.

        Raises:
            ValueError: there is no cluster, or only the node of a job could decide a setting.
        """
        if self.slurm is None:
            return resolve_models(experiment, context)
        if find_spec("submitit") is None:
            raise ValueError("--slurm needs submitit, which is not installed: pip install 'attnbench[slurm]'")
        if self.slurm.get("cluster") != "local" and shutil.which("sbatch") is None:
            raise ValueError(
                "--slurm: no sbatch here: run this on a machine that submits jobs to the cluster"
            )
        train = experiment.train
        if train.device == "auto":
            train = replace(train, device="cuda" if self.slurm.get("gpus") else "cpu")
        if train.device != "cpu" and train.precision == "auto":
            raise ValueError(
                f"{context}: train.precision = 'auto' depends on the GPU of the job: "
                "with --slurm, add --set train.precision=bf16 or fp32"
            )
        return resolve_models(replace(experiment, train=train), context, other_machine=True)

    def share_runs(
        self,
        call: Callable[..., object],
        experiment: Experiment,
        runs: Sequence[PlannedRun],
        reporter: Reporter,
        *,
        timing: bool,
    ) -> bool:
        """Let several processes run an experiment, and wait for all of them.

        Args:
            call: ``run_experiment`` with all arguments but the first; it can be pickled.
            experiment: the first argument.
            runs: the requested runs.
            reporter: shows the progress of the runs.
            timing: submit one more job that times the models.

        Returns:
            True if nothing is left to do. Without a cluster, this process finishes what a killed process has
            left, and times the models.

        Raises:
            Interrupted: a signal arrived. The processes on this machine have saved their states and ended;
                jobs of a cluster go on.
            ValueError: the cluster refuses the jobs.
        """
        resolved, folder = runs[0].run.train, runs[0].folder.parent
        train = replace(experiment.train, device=resolved.device, precision=resolved.precision)
        call = partial(call, replace(experiment, train=train))
        unfinished = [run for run in runs if not run.has_ended]
        train_only = partial(call, timing=False)
        with reporter.trainings() as show:
            watch = _Watch(unfinished, show)
            if self.slurm is not None:
                if unfinished:
                    _run_on_cluster(Work(train_only), self.jobs or len(unfinished), self.slurm, folder, watch)
                if timing and results_to_time(folder):
                    _run_on_cluster(Work(call), 1, self.slurm, folder, watch)
                if all(read_result(run.folder).status != "unfinished" for run in runs):
                    shutil.rmtree(folder / "slurm", ignore_errors=True)
                else:
                    logger.warning(
                        f"some runs have not ended: see the output of their jobs in {folder}/slurm"
                    )
            elif unfinished:
                number = min(self.jobs or _suitable_jobs(resolved.device), len(unfinished))
                logger.info(f"{number} processes share the runs")
                _run_processes(Work(train_only), number, resolved.device, watch)
            watch()
        return self.slurm is not None


def parse_launch(jobs: str, slurm: str = "") -> Launch | None:
    """Read the values of ``--jobs`` and ``--slurm``; None if this process does everything.

    Args:
        jobs: number of processes, or auto; empty: 1, on a cluster one per run.
        slurm: options such as partition=gpu,gpus=1,time=2:00,cpus=8,mem=32 (time is HH:MM or minutes, memory
            in GB); empty: no cluster.

    Raises:
        ValueError: a key is unknown, or a value has another form.
    """
    if jobs not in ("", "auto") and not (jobs.isascii() and jobs.isdigit() and int(jobs) >= 1):
        raise ValueError(f"--jobs {jobs}: must be auto, or a whole number of at least 1")
    number = int(jobs) if jobs.isdigit() else 0
    if slurm:
        return Launch(jobs=number, slurm=_parse_slurm(slurm))
    return None if jobs in ("", "1") else Launch(jobs=number)


def _parse_slurm(text: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in text.split(","):
        key, _, value = map(str.strip, part.partition("="))
        if key not in SLURM_KEYS:
            raise ValueError(f"--slurm {text}: unknown key {key!r}; {did_you_mean(key, SLURM_KEYS)}")
        with suppress(ValueError):
            options[key] = SLURM_KEYS[key][1](value)
        if not options.get(key):
            raise ValueError(
                f"--slurm {text}: {key} needs a value, such as time=90, time=12:00, mem=32, gpus=1"
            )
    return options


@dataclass(frozen=True)
class Work:
    """Work of one process; it is pickled."""

    call: Callable[[], object]
    plugins: tuple[str, ...] = field(default_factory=lambda: tuple(VERSIONS))
    """Modules that the process imports first."""

    def __call__(self) -> None:
        """Do the work."""
        with _save_before_time_limit():
            load_plugins(self.plugins)
            self.call()

    def checkpoint(self) -> Any:
        """Return the work of the job that submitit queues after the time limit."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


@contextmanager
def _save_before_time_limit() -> Iterator[None]:
    """Save the state and end on SIGTERM or SIGUSR2, in a job of a cluster.

    Slurm sends SIGTERM when it ends or preempts a job, and queues a preempted job again. Submitit asks for
    SIGUSR2 before the time limit; its handler queues the job again.
    """
    if "SUBMITIT_EXECUTOR" not in os.environ:
        yield
        return
    show_messages()
    queue_again, warned = signal.getsignal(signal.SIGUSR2), threading.Event()

    def stop(_signum: int, _frame: object) -> None:
        warned.set()
        signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGUSR2, stop)
    try:
        with raise_on_signals():
            yield
    except (Interrupted, Terminated) as stopped:
        print(str(stopped) or "stopped", file=sys.stderr, flush=True)
        if warned.is_set() and callable(queue_again):
            queue_again(signal.SIGUSR2, None)
        raise SystemExit(128 + signal.SIGTERM) from None


class _Watch:
    """Progress display of runs in other processes, from the files in their folders."""

    def __init__(self, runs: Sequence[RunFolder], show: ShowMetrics) -> None:
        self._show, self._begun = show, time.time()
        self._runs = {run.name: run for run in runs}
        self._positions = {run.name: run.metrics.stat().st_size for run in runs if run.metrics.exists()}

    def __call__(self) -> None:
        for name, run in list(self._runs.items()):
            with suppress(OSError, ValueError):  # a file may be incomplete at this moment
                self._show_lines(run)
                if (run.folder / "result.json").stat().st_mtime >= self._begun:
                    result = read_result(run.folder)
                    logger.info(": ".join(filter(None, [name, result.status, result.reason])))
                    del self._runs[name]

    def _show_lines(self, run: RunFolder) -> None:
        if not run.metrics.exists():
            return
        with run.metrics.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(min(self._positions.get(run.name, 0), size))  # resuming may have cut the log
            content = file.read()
        end = content.rfind(b"\n") + 1
        self._positions[run.name] = start + end
        for line in content[:end].splitlines():
            self._show(run.name, run.run.train.max_updates, json.loads(line))


# Processes on this machine.


def _suitable_jobs(device: str) -> int:
    import torch

    if device == "cpu":
        return max(1, torch.get_num_threads() // CORES_PER_JOB)
    return max(1, torch.cuda.device_count()) if device in ALL_GPUS else 1


def _environments(number: int, device: str) -> Iterator[dict[str, str]]:
    """Divide the threads and GPUs of this process; several processes may share a GPU."""
    import torch

    threads = max(1, torch.get_num_threads() // number)
    count = torch.cuda.device_count() if device in ALL_GPUS else 0
    gpus = [gpu for gpu in os.environ.get(VISIBLE, "").split(",") if gpu] or list(map(str, range(count)))
    for index in range(number):
        gpu = {VISIBLE: gpus[index % count]} if count else {}
        yield {**os.environ, "OMP_NUM_THREADS": str(threads), **gpu}


def _run_processes(work: Work, number: int, device: str, watch: _Watch) -> None:
    """Let ``number`` processes on this machine do the same work, and wait for them.

    After the first signal, or if this process is killed, they save their states and end; a second signal
    kills them.
    """
    command, workers = (
        [sys.executable, "-P", "-c", START, json.dumps(sys.path)],
        list[subprocess.Popen[bytes]](),
    )
    with stop_on_signals() as stop, ExitStack() as pipes:
        try:
            for environment in _environments(number, device):
                worker = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    env=environment,
                    bufsize=0,
                    # Ctrl-C must reach the first process only.
                    start_new_session=True,
                    creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                )
                workers.append(worker)
                assert worker.stdin
                pipes.enter_context(worker.stdin)
                with suppress(BrokenPipeError):
                    worker.stdin.write(pickle.dumps(work))
            while any(worker.poll() is None for worker in workers):
                time.sleep(POLL_S)
                watch()
                if stop.signum:
                    pipes.close()
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    if stop.signum:
        raise Interrupted(stop.signum, "stopped, and all processes have saved their states")
    for worker in workers:
        if worker.returncode not in (0, 2):  # 2: a ValueError or OSError, which this process meets too
            logger.warning(
                f"a process has ended with status {worker.returncode}: its run is finished in this process"
            )


def main() -> int:
    """Do the work that is pickled on standard input, which the parent keeps open while it lives."""
    logging.root.addHandler(logging.NullHandler())  # log.txt of each run has the messages
    work = pickle.load(sys.stdin.buffer)

    def end_with_parent() -> None:
        os.read(0, 1)
        _thread.interrupt_main(signal.SIGTERM)

    try:
        with raise_on_signals():
            threading.Thread(target=end_with_parent, daemon=True).start()
            work()
    except (Interrupted, Terminated, KeyboardInterrupt):
        return 143
    except (ValueError, OSError):  # the parent meets the same error and prints it
        return 2
    return 0


# Jobs of a cluster.


def job_name(work: Work, experiment: Path) -> str:
    """Return a name by which the same call finds its jobs again."""
    text = re.sub(" at 0x[0-9a-f]+", "", f"{experiment.resolve()} {work.call}")  # without memory addresses
    return f"attnbench-{hashlib.sha256(os.fsencode(text)).hexdigest()[:12]}"


def _run_on_cluster(
    work: Work, number: int, options: Mapping[str, Any], experiment: Path, watch: _Watch
) -> None:
    """Submit jobs until there are ``number``, including those of an earlier call, and wait for them."""
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    parameters = {SLURM_KEYS[key][0]: value for key, value in options.items() if key != "cluster"}
    name = job_name(work, experiment)
    cluster, folder = options.get("cluster", "slurm"), experiment / "slurm"
    queued = _queued(name) if cluster == "slurm" else []
    jobs: list[Any] = []
    if number > len(queued):
        try:
            executor = submitit.AutoExecutor(
                folder.resolve(), cluster=cluster, slurm_max_num_timeout=MAX_TIMEOUTS
            )
            executor.update_parameters(name=name, **{"timeout_min": 60, **parameters})
            with executor.batch():
                jobs = [executor.submit(work) for _ in range(number - len(queued))]
        except (FailedJobError, FailedSubmissionError, subprocess.CalledProcessError) as error:
            raise ValueError(f"--slurm: the cluster refuses the jobs: {first_line(error)}") from None
    ids = [*queued, *(str(job.job_id) for job in jobs)]
    logger.info(f"jobs {', '.join(ids)} share the runs; their output is in {folder}")
    absences, last_query = 0, 0.0
    with stop_on_signals() as stop:
        while absences < 2:  # Slurm does not list a job in the moment in which it is queued again
            time.sleep(POLL_S)
            if stop.signum:
                raise Interrupted(stop.signum, f"stopped waiting for jobs {', '.join(ids)}, which go on")
            watch()
            if cluster == "local":
                absences = 2 if all(job.done() for job in jobs) else 0
            elif time.monotonic() - last_query > 10:
                last_query = time.monotonic()
                with suppress(ValueError):  # try again later
                    absences = 0 if _queued(name) else absences + 1


def _queued(name: str) -> list[str]:
    """List the unfinished jobs of this name; ValueError if the cluster does not answer."""
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--name={name}", f"--user={os.getuid()}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(f"--slurm: squeue does not answer: {first_line(error)}") from None


# Processes of torchrun train each run together: process 0 announces it, and the others take part.


def _open_data(
    run: Run, vocabularies: VocabularyPair, train: Path, valid: Path, batch_hash: str
) -> PreparedData:
    split = sides(open_split(train), run)
    return PreparedData(
        corpus=Corpus(name="", src_lang="", tgt_lang="", splits={"valid": Pairs((), ())}),
        vocabularies=vocabularies,
        train=split,
        valid=sides(open_split(valid), run),
        stream=training_batches(split, vocabularies, run),
        batch_hash=batch_hash,
    )


def train_together(
    processes: Processes, launch: Launch | None, finish_all: Callable[[RunModel], list[Result]]
) -> list[Result]:
    """Run an experiment in processes of torchrun; only process 0 calls ``finish_all``."""
    if launch is not None:
        raise ValueError("torchrun starts processes, and so do --jobs and --slurm: use only one of them")
    if not processes.is_main:
        _take_part(processes)
        return []
    try:
        return finish_all(partial(_run_announced, processes))
    finally:
        processes.dismiss()


def _run_announced(
    processes: Processes, folder: RunFolder, prepared: PreparedData, reporter: Reporter
) -> Result:
    assert prepared.train.folder
    assert prepared.valid.folder
    splits = prepared.train.folder.resolve(), prepared.valid.folder.resolve()
    open_data = partial(_open_data, folder.run, prepared.vocabularies, *splits, prepared.batch_hash)
    with processes.task():
        processes.broadcast((replace(folder, folder=folder.folder.resolve()), open_data))
        processes.use_device(folder.run.train.device)
        logger.info(
            f"{folder.run.label}: {processes.size} processes on {processes.devices} devices "
            f"of {processes.nodes} hosts train together"
        )
        processes.gather(lambda: None)  # wait until the others have opened the data
        return run_model(folder, prepared, reporter, processes)


def _take_part(processes: Processes) -> None:
    """Train each run that process 0 announces, until it dismisses the others."""
    announcement: Any
    while (announcement := processes.broadcast(None)) is not None:
        try:
            with processes.task():
                _train_announced(*announcement, processes)
        except Exception:
            if not processes.together:
                raise


def _train_announced(folder: RunFolder, open_data: Callable[[], PreparedData], processes: Processes) -> None:
    processes.use_device(folder.run.train.device)
    opened: list[PreparedData] = []
    processes.gather(lambda: opened.append(open_data()))
    trainer, translator = build_trainer(folder, opened[0], lambda _: None, processes)
    trainer.run()
    translator.lead(lambda: None)
