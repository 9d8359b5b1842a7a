"""Train the runs of a queue, one at a time on each core or GPU; the same command again continues.

A queue is a TOML file such as configs/campaign/queue.toml; benchmarks/queue_file.py reads it. Any number of
processes share a queue, also on several machines with one folder: each takes the next run that has not ended
and that no other is working on. As a run ends, the rows of its experiment are published without weights,
beside those of other machines; a run that has a row is not trained again. Speeds are measured at the end,
once no run of the queue is being trained, by one process alone.
"""

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.queue_file import QueuedRun, describe, describe_error, read_queue
from compare.experiment.launch import run_processes
from compare.experiment.publish import publish_experiment, with_config_hash
from compare.experiment.run import run_experiment
from compare.experiment.timing import results_to_time, write_timings
from compare.results.records import read_speed
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_result, read_results
from compare.results.text import markdown_table
from compare.system.log import Reporter, hide_messages, show_messages
from compare.system.signals import Interrupted, Terminated, lock_folder, raise_on_signals

logger = logging.getLogger(__name__)

QUEUE = Path(__file__).resolve().parent.parent / "configs" / "campaign" / "queue.toml"


def work(path: str, runs: str, rows: str, data: str, only: Sequence[str] = ()) -> None:
    """Finish the runs of a queue, until a pass over it finds nothing to finish.

    Args:
        path: see ``read_queue``, as are ``runs`` and ``data``.
        runs: folder of the experiments' folders.
        rows: folder of the published rows.
        data: folder of the corpora.
        only: see ``read_queue``.

    Raises:
        ValueError: a run could not be finished; all others have been tried.
        OSError: likewise.
        Interrupted: a signal arrived; everything is saved.
    """
    queue = read_queue(Path(path), Path(runs), data, Path(rows), only)
    failed: dict[str, ValueError | OSError] = {}
    too_large: set[str] = set()  # for the memory that there is
    position = 0
    while position < len(queue):
        run = queue[position]
        position += 1
        with _noting(failed, run):
            left_out = run.name in failed or run.name in too_large
            if left_out or run.status != "unfinished" or run.is_locked:
                continue
            begun, here = run.begun_on, run.device
            if begun != here:
                raise ValueError(f"{run.folder} was begun on {begun}, and this is {here}: continue it there")
            _run(run, timing=False)
            publish_rows(run.folder.parent, Path(rows))
            if run.status != "unfinished":  # what another process had taken may be free by now
                position = 0
            elif read_result(run.folder).reason:
                too_large.add(run.name)
    for error in failed.values():
        raise error


def time_models(path: str, runs: str, rows: str, data: str, only: Sequence[str] = ()) -> None:
    """Time the models of each experiment in turn, beside which nothing is trained.

    Args:
        path: see ``work``, as are the others.
        runs: locked meanwhile, so that two commands do not time models at once.
        rows: see ``work``.
        data: see ``work``.
        only: see ``work``.

    Raises:
        ValueError: the models of an experiment could not be timed; all others have been tried.
        OSError: likewise.
    """
    queue = read_queue(Path(path), Path(runs), data, Path(rows), only)
    failed: dict[str, ValueError | OSError] = {}
    with lock_folder(Path(runs), wait=True):
        for run in runs_to_time(queue):
            with _noting(failed, run):
                _run(run, timing=True)
                publish_rows(run.folder.parent, Path(rows))
    for error in failed.values():
        raise error


@contextmanager
def _noting(failed: dict[str, ValueError | OSError], run: QueuedRun) -> Iterator[None]:
    """Let an error of a block be a message, and the entry of the run in ``failed``."""
    try:
        yield
    except (ValueError, OSError) as error:
        logger.error(f"{run.name}: {describe_error(error)}")
        failed[run.name] = error


def _run(run: QueuedRun, *, timing: bool) -> None:
    """Do what is left to do of a run, and with ``timing``, of the timing of its experiment."""
    run_experiment(
        run.experiment,
        run.folder.parent,
        Reporter(),
        seeds=[run.seed],
        only=[run.label],
        context=str(run.config),
        timing=timing,
    )


def runs_to_time(queue: Sequence[QueuedRun]) -> list[QueuedRun]:
    """Find a run of each experiment that is to be timed; none while a run of the queue is being trained.

    An experiment with runs of another machine is not timed, for speeds of two machines are not comparable.
    """
    found: list[QueuedRun] = []
    if any(run.is_locked for run in queue):
        return found
    for folder in dict.fromkeys(run.folder.parent for run in queue):
        with suppress(ValueError, OSError):  # a worker has named what is damaged
            of_experiment = [run for run in queue if run.folder.parent == folder]
            if results_to_time(folder) and not any(run.is_done_elsewhere for run in of_experiment):
                done = [run for run in of_experiment if run.status == "done"]
                found += [run for run in done if run.begun_on == run.device][:1]
    return found


def publish_rows(folder: Path, rows: Path) -> None:
    """Add the runs of an experiment that have ended to ``rows``, unless their results are there already."""
    out = rows / folder.name
    with lock_folder(folder, wait=True):
        _adopt_timings(folder, out)
        ended = _comparable([each for each in read_results(folder) if each.status != "unfinished"])
        published = _comparable(read_results(out)) if (out / "experiment.json").is_file() else {}
        if any(published.get(name) != result for name, result in ended.items()):
            publish_experiment(folder, out, add=True, finished_only=True)


def _adopt_timings(folder: Path, out: Path) -> None:
    """Give the runs of a model the timing of a seed that a like machine has published.

    One timed seed stands for all seeds of a model, as in ``time_all``.
    """
    published = read_results(out) if (out / "experiment.json").is_file() else []
    timed = {
        (each.label, each.device, each.torch, each.threads): out / each.run
        for each in published
        if each.timed_together and not (folder / each.run).exists()
    }
    for result in read_results(folder):
        other = timed.get((result.label, result.device, result.torch, result.threads))
        if result.status != "done" or result.timed_together or other is None:
            continue
        if timings := read_speed(RunFolder.read(other).speed).timings:
            write_timings(RunFolder.read(folder / result.run), result, timings)


def _comparable(results: Sequence[Result]) -> dict[str, Result]:
    """Return results by run, without the hash of the settings, which publication renews."""
    return {result.run: with_config_hash(result, b"") for result in results}


def in_process(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function in a process of its own, with messages and with one thread.

    So a run has the same bits wherever it is continued.
    """
    show_messages()
    torch.set_num_threads(1)
    function(*arguments)


def train(options: argparse.Namespace, queue: Sequence[QueuedRun]) -> int:
    """Finish the queue with several processes, then time its models; returns the exit status."""
    device = queue[0].device
    number = int(options.jobs) if options.jobs.isdigit() else torch.get_num_threads()
    number = number if device == "cpu" or options.jobs.isdigit() else max(1, torch.cuda.device_count())
    arguments = [str(options.queue), str(options.runs), str(options.rows), options.data, options.only]
    statuses = run_processes(partial(in_process, work, *arguments), number, device)
    if runs_to_time(queue):
        statuses += run_processes(partial(in_process, time_models, *arguments), 1, device)
    errors = []
    # Those too that a process has left which was killed between the end of a run and its row.
    for folder in dict.fromkeys(run.folder.parent for run in queue):
        try:
            if (folder / "experiment.json").is_file():
                publish_rows(folder, options.rows)
        except (ValueError, OSError) as error:
            errors.append(describe_error(error))
    for text in dict.fromkeys(errors):
        print(f"error: {text}", file=sys.stderr)
    died = [status for status in statuses if status not in (0, 2)]
    for status in died:
        print(f"a process has ended with status {status}; the same command again continues", file=sys.stderr)
    return 2 if errors or 2 in statuses else int(bool(died) | _name_what_is_not_done(queue))


def _name_what_is_not_done(queue: Sequence[QueuedRun]) -> bool:
    """Name the runs that are not done and that no other process works on; returns whether there are any."""
    left = [run for run in queue if not run.is_locked and run.status != "done"]
    for run in left:
        result = read_result(run.folder)
        print(": ".join(filter(None, [run.name, result.status, result.reason])), file=sys.stderr)
    return bool(left)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or list a queue.

    Returns:
        The exit status: 0; 1 if a run has failed or is not finished, except by another process that works
        on it; 2 for a mistake or a damaged file; 128 + signal.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--queue", type=Path, default=QUEUE, help="the queue [default: configs/campaign/queue.toml]"
    )
    parser.add_argument(
        "--data", default="", help="folder of the corpora: the parent of multi30k, not itself"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/campaign"), help="folder of runs and weights")
    parser.add_argument("--rows", type=Path, help="folder of the published rows [default: RUNS/rows]")
    parser.add_argument("--only", default="", help="names of experiments, separated by commas [default: all]")
    parser.add_argument("--jobs", default="auto", help="runs at a time [default: one per core, or per GPU]")
    parser.add_argument("--list", action="store_true", help="print the state of the queue; train nothing")
    options = parser.parse_args(arguments)
    options.rows = options.rows or options.runs / "rows"
    options.only = [name for name in options.only.split(",") if name]
    try:
        queue = read_queue(options.queue, options.runs, options.data, options.rows, options.only)
        if options.list:
            print(markdown_table([describe(run) for run in queue]))
            return 0
        show_messages()
        with raise_on_signals():
            return train(options, queue)
    except Interrupted as stop:
        print(f"{stop}; the same command again continues", file=sys.stderr)
        return 128 + stop.signum
    except (KeyboardInterrupt, Terminated) as stop:
        print("stopped; the same command again continues", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)
    except (ValueError, OSError) as error:
        print(f"error: {describe_error(error)}", file=sys.stderr)
        return 2
    finally:
        hide_messages()


if __name__ == "__main__":
    from benchmarks import campaign  # by its own name, under which the processes that it starts find it

    sys.exit(campaign.main())
