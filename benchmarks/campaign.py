"""Train the runs of a queue, one at a time on each core or GPU; the same command again continues.

A queue is a TOML file of ``[[runs]]`` tables, such as configs/campaign/queue.toml: an experiment, seeds, and
the minutes that a run of each model takes on one core. Any number of processes share a queue, also on several
machines with one folder: each takes the next run that has not ended and that no other is working on. As a run
ends, the rows of its experiment are published without weights; once all have ended, its models are timed.
"""

import argparse
import dataclasses
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from compare.config.parse import load_experiment
from compare.config.run import Run, resolve_models
from compare.config.sections import Experiment, run_name
from compare.config.toml_text import read_toml
from compare.experiment.prepare import PreparedData
from compare.experiment.publish import publish_experiment
from compare.experiment.run_all import InTurn, run_experiment
from compare.experiment.timing.time_all import results_to_time
from compare.results.markdown import markdown_table
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, read_results
from compare.system.child import Channel
from compare.system.children import Outcome, Task, run_children
from compare.system.cores import count_cores, usable_processors
from compare.system.hints import did_you_mean
from compare.system.locks import Locked, lock_folder
from compare.system.log import hide_messages, show_messages
from compare.system.progress import Reporter
from compare.system.signals import Interrupted, Terminated, raise_on_sigterm
from compare.system.slots import local_slots, parse_jobs, visible_gpus
from compare.training.metrics_log import read_metrics

QUEUE = Path(__file__).resolve().parent.parent / "configs" / "campaign" / "queue.toml"
WORKER = "benchmarks.campaign:work"
KEYS = dict.fromkeys(("config", "seeds", "minutes")).keys()


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueuedRun:
    """One model and one seed of an experiment."""

    experiment: Experiment
    config: Path
    """The file of the experiment."""
    label: str
    seed: int
    minutes: float
    """Expected time on one core."""
    runs: Path
    """Folder of the experiments' folders."""

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.runs / self.experiment.name / run_name(self.label, self.seed)

    @property
    def name(self) -> str:
        """experiment/label-seed<k>."""
        return f"{self.experiment.name}/{self.folder.name}"

    @property
    def has_ended(self) -> bool:
        """Whether the run is done or has failed."""
        return self.folder.is_dir() and read_result(self.folder).status != "unfinished"

    @property
    def is_taken(self) -> bool:
        """Whether another process is working on the run."""
        try:
            with lock_folder(self.folder) if self.folder.is_dir() else nullcontext():
                return False
        except Locked:
            return True


def read_queue(path: Path, runs: Path, data: str = "") -> list[QueuedRun]:
    """Read a queue.

    Args:
        path: the TOML file; experiments are named relative to its folder.
        runs: folder of the experiments' folders.
        data: folder of the corpora, each under the last part of ``data.root`` of its experiment; empty: where
            the experiments say.

    Raises:
        ValueError: a missing or unknown key, or a model that an experiment does not have.
    """
    queue: list[QueuedRun] = []
    for number, entry in enumerate(read_toml(path).get("runs", [])):
        queue += _read_entry(entry, path.parent, runs, data, context=f"{path}: runs[{number}]")
    if not queue:
        raise ValueError(f"{path} holds no [[runs]]")
    return queue


def _read_entry(entry: Any, folder: Path, runs: Path, data: str, *, context: str) -> list[QueuedRun]:
    """Read one ``[[runs]]`` table: all its models from the first seed, then from the next."""
    if not isinstance(entry, dict) or entry.keys() != KEYS:
        raise ValueError(f"{context} must have {', '.join(KEYS)}, found {', '.join(entry) or 'nothing'}")
    seeds, minutes = entry["seeds"], entry["minutes"]
    if not isinstance(seeds, list) or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise ValueError(f"{context}: seeds must be whole numbers from 0 on, such as [1, 2], found {seeds}")
    if not isinstance(minutes, dict) or not all(type(each) in (int, float) for each in minutes.values()):
        raise ValueError(f"{context}: minutes must hold a number for each model, found {minutes}")
    config = folder / str(entry["config"])
    experiment = load_experiment(config)
    if data and experiment.data.root:
        root = Path(data).resolve() / Path(experiment.data.root).name
        section = dataclasses.replace(experiment.data, root=str(root))
        experiment = dataclasses.replace(experiment, data=section)
    labels = [model.label for model in experiment.models]
    for label in minutes:
        if label not in labels:
            raise ValueError(f"{context}: {config.name} has no model {label}; {did_you_mean(label, labels)}")
    fields: dict[str, Any] = {"experiment": experiment, "config": config, "runs": runs}
    return [
        QueuedRun(label=label, seed=seed, minutes=expected, **fields)
        for seed in seeds
        for label, expected in minutes.items()
    ]


def describe(run: QueuedRun) -> dict[str, Any]:
    """Describe how far a run is, as a row of a table."""
    lines = read_metrics(run.folder / "metrics.jsonl") if (run.folder / "metrics.jsonl").is_file() else []
    validations = [line["bleu"] for line in lines if line["kind"] == "valid" and line["bleu"] is not None]
    last = lines[-1] if lines else {}
    best = last["bleu"] if last.get("kind") == "final" else max(validations, default=None)
    seconds = [last.get(name, 0.0) for name in ("seconds", "validation_s", "checkpoint_s")]
    return {
        "run": run.name,
        "status": _status(run, last),
        "minutes planned": run.minutes,
        "minutes": round(sum(seconds) / 60, 1) if lines else None,
        "validation BLEU": None if best is None else round(best, 2),
    }


def _status(run: QueuedRun, last: dict[str, Any]) -> str:
    """Return done, failed, waiting, or where the run is, ``last`` being the last line of its log."""
    if run.has_ended:
        return str(read_result(run.folder).status)
    if not run.folder.is_dir():
        return "waiting"
    state = "running" if run.is_taken else "stopped"
    return f"{state} at update {last.get('update', 0):,} of {run.experiment.train.max_updates:,}"


class FromQueue(InTurn):
    """Finish a run in this process; its experiment is timed once none of its runs in the queue is left."""

    def __init__(self, queue: Sequence[QueuedRun]) -> None:
        super().__init__()
        self.queue = queue

    def time_all(self, folder: Path, settings: Run, prepared: PreparedData) -> None:
        """Time all models in turn if all runs of the queue in ``folder`` have ended."""
        if all(run.has_ended for run in self.queue if run.folder.parent == folder):
            super().time_all(folder, settings, prepared)


def work(channel: Channel, path: str, runs: str, rows: str, data: str) -> None:
    """Finish the runs of a queue, in a child process, until a pass over it finds nothing to finish.

    Args:
        channel: to the parent.
        path: see ``read_queue``, as are ``runs`` and ``data``.
        runs: folder of the experiments' folders.
        rows: folder of the published rows.
        data: folder of the corpora.

    Raises:
        ValueError: a run could not be finished; all others have been tried.
        Interrupted: a signal arrived; everything is saved.
    """
    queue = read_queue(Path(path), Path(runs), data)
    tried: dict[str, ValueError | None] = {}
    with channel.messages():
        while run := next((run for run in queue if run.name not in tried and _is_open(run, queue)), None):
            if run.is_taken:
                tried[run.name] = None
                continue
            try:
                _finish(run, queue, channel.reporter(run.name))
                publish_rows(run.folder.parent, Path(rows))
            except ValueError as error:
                channel.send("log", level=logging.ERROR, text=f"{run.name}: {error}")
                tried[run.name] = error
                continue
            if _is_open(run, queue):  # such as for lack of memory
                tried[run.name] = None
            else:  # what another process had taken may be free by now
                tried = {name: error for name, error in tried.items() if error}
    if errors := list(filter(None, tried.values())):
        raise errors[0]


def _is_open(run: QueuedRun, queue: Sequence[QueuedRun]) -> bool:
    """Return whether there is something left to do: the run, or the timing of its experiment at the end."""
    if not run.has_ended:
        return True
    folder = run.folder.parent
    return all(each.has_ended for each in queue if each.folder.parent == folder) and bool(
        results_to_time(folder)
    )


def _finish(run: QueuedRun, queue: Sequence[QueuedRun], reporter: Reporter) -> None:
    """Finish a run, or time its experiment; what was begun on another kind of device is left to that."""
    device = resolve_models(run.experiment, str(run.config))[0].train.device
    begun = RunFolder.read(run.folder).run.train.device if (run.folder / "config.toml").is_file() else device
    if begun != device and run.has_ended:
        return
    if begun != device:
        raise ValueError(f"{run.folder} was begun on {begun}, and this is {device}: continue it there")
    run_experiment(
        run.experiment,
        run.folder.parent,
        reporter,
        seeds=[run.seed],
        only=[run.label],
        context=str(run.config),
        launcher=FromQueue(queue),
    )


def publish_rows(folder: Path, rows: Path) -> None:
    """Publish the runs of an experiment that have ended, if there are any."""
    with lock_folder(folder, wait=True):
        if any(result.status != "unfinished" for result in read_results(folder)):
            publish_experiment(folder, rows / folder.name, replace=True, finished_only=True)


def train(options: argparse.Namespace, queue: Sequence[QueuedRun]) -> int:
    """Finish the queue with several processes; returns the exit status."""
    device = resolve_models(queue[0].experiment, str(queue[0].config))[0].train.device
    cores = count_cores(usable_processors())
    jobs = parse_jobs(options.jobs) or (cores if device == "cpu" else max(1, len(visible_gpus())))
    slots = local_slots(device, jobs)
    if device == "cpu":  # so that a run has the same bits wherever it is continued
        slots = [dataclasses.replace(slot, threads=1) for slot in slots]
    arguments = [str(options.queue), str(options.runs), str(options.rows), options.data]
    tasks = [
        Task(name=f"worker {number}", function=WORKER, arguments=arguments) for number in range(1, jobs + 1)
    ]
    outcomes: list[Outcome] = run_children(tasks, slots, Reporter())
    # Those too that a process has left which was killed between the end of a run and its row.
    for folder in dict.fromkeys(run.folder.parent for run in queue if run.folder.parent.is_dir()):
        publish_rows(folder, options.rows)
    failures = [outcome for outcome in outcomes if outcome.kind != "done"]
    for outcome in failures:
        remedy = "" if outcome.kind == "error" else "; the same command again continues"
        print(f"{outcome.name}: {outcome.text}{remedy}", file=sys.stderr)
    return 2 if any(outcome.kind == "error" for outcome in failures) else bool(failures)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or list a queue; the exit status is 0, 1 (a run failed), 2 (a mistake) or 128 + signal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--queue", type=Path, default=QUEUE, help="the queue [default: configs/campaign/queue.toml]"
    )
    parser.add_argument("--data", default="", help="folder of the corpora")
    parser.add_argument("--runs", type=Path, default=Path("runs/campaign"), help="folder of runs and weights")
    parser.add_argument("--rows", type=Path, help="folder of the published rows [default: RUNS/rows]")
    parser.add_argument("--jobs", default="auto", help="runs at a time [default: one per core, or per GPU]")
    parser.add_argument("--list", action="store_true", help="print the state of the queue; train nothing")
    options = parser.parse_args(arguments)
    options.rows = options.rows or options.runs / "rows"
    try:
        queue = read_queue(options.queue, options.runs, options.data)
        if options.list:
            print(markdown_table([describe(run) for run in queue]))
            return 0
        show_messages()
        with raise_on_sigterm():
            return train(options, queue)
    except Interrupted as stop:
        print(f"{stop}; the same command again continues", file=sys.stderr)
        return 128 + stop.signum
    except (KeyboardInterrupt, Terminated):
        print("stopped; the same command again continues", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        hide_messages()


if __name__ == "__main__":
    sys.exit(main())
