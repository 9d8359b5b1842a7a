"""Measure whether the models of an experiment were still improving when they stopped.

For the lowest seed of each model the same run is trained again with more updates, in a folder of its own
below the experiment. Only validation is used; no test set is decoded.
"""

import dataclasses
import logging
from pathlib import Path
from typing import Any

from compare.experiment.budget import with_updates
from compare.experiment.convergence_file import Convergence, read_convergence, write_convergence
from compare.experiment.folder import begin_run, lowest_seeds
from compare.experiment.prepare import PreparedData, prepare_data
from compare.experiment.run import train_model
from compare.experiment.task import task_of
from compare.results.run_folder import RunFolder
from compare.results.store import read_result, read_results, refuse_writing, save_result, write_json_lines
from compare.system.cpu import tune_cpu
from compare.system.log import Reporter, log_to_file
from compare.system.measure import is_out_of_memory
from compare.system.messages import first_line
from compare.system.signals import Locked, lock_folder
from compare.training.metrics_log import read_metrics
from compare.training.trainer import TrainingDiverged
from data.files import remove_leftovers

logger = logging.getLogger(__name__)

LONGER = "longer"
"""Folder of the longer runs, in that of the experiment; it holds no results, so it is no experiment."""
MAX_FACTOR = 100


def measure_convergence(
    folder: str | Path, reporter: Reporter | None = None, *, factor: float = 1.5
) -> list[Convergence]:
    """Train the lowest seed of each finished model longer, and compare the validation BLEU.

    Warm-up, learning-rate schedule and validations are stretched with the updates. The longer runs are kept
    in ``folder``/longer; the same call continues what was stopped. convergence.json and the fields
    ``longer_gain`` and ``longer_factor`` of the results are written as each run ends.

    Args:
        folder: the folder of an experiment.
        reporter: shows the progress of training; by default log messages do.
        factor: how many times the updates the longer runs get.

    Returns:
        One entry per model that is measured, in the order of the results. A model whose longer run diverged
        or ran out of memory, or is being trained by another process, is left out with a message.

    Raises:
        ValueError: no finished run, a published or read-only folder, other data than those of the runs, or
            longer runs with other settings.
        Interrupted: a signal arrived; everything is saved.
    """
    folder, reporter = Path(folder), reporter or Reporter(quiet=True)
    planned = plan_convergence(folder, factor=factor)
    tune_cpu(batch_tokens=planned[0].run.train.batch_tokens)
    with lock_folder(folder, wait=True):
        remove_leftovers(folder)
        prepared = prepare_data(planned[0].run, folder / "encoded")
    measured = []
    for number, longer in enumerate(planned, start=1):
        position = f"[{number}/{len(planned)}] {LONGER}/{longer.name}"
        try:
            with lock_folder(longer.folder):
                _train(longer, prepared.for_seed(longer.run.train.seed), reporter, position)
            measured.append(_record(folder, longer, factor))
        except Locked as locked:
            logger.warning(f"{position}: left out: {locked}")
        except TrainingDiverged as error:
            logger.error(f"{position}: not measured: {error}")
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            logger.error(f"{position}: not measured: out of memory: {first_line(error)}")
    return measured


def plan_convergence(folder: str | Path, *, factor: float = 1.5) -> list[RunFolder]:
    """List the longer runs that ``measure_convergence`` would finish.

    Args:
        folder: the folder of an experiment.
        factor: how many times the updates the longer runs get.

    Raises:
        ValueError: as ``measure_convergence``, except for the data, which are not read.
    """
    folder = Path(folder)
    refuse_writing(folder, "measure in the folder of the experiment itself")
    if not 1 < factor <= MAX_FACTOR:
        raise ValueError(f"--factor {factor:g}: must be above 1 and at most {MAX_FACTOR}, such as 1.5")
    finished = [result for result in read_results(folder) if result.status == "done"]
    if not finished:
        raise ValueError(f"{folder} holds no finished run: run the experiment to its end first")
    runs = [RunFolder.read(folder / result.run) for result in lowest_seeds(finished).values()]
    if not task_of(runs[0].run).translates:
        raise ValueError(
            f"{folder}: gains of longer training are measured in validation BLEU, which language models do "
            "not have: train them again with a larger train.max_updates"
        )
    planned = [_longer(run, factor) for run in runs]
    for longer in planned:
        if longer.config.is_file() and RunFolder.read(longer.folder).run != longer.run:
            raise ValueError(
                f"{longer.folder} was begun with other settings: give the same --factor, or delete the "
                f"folder {LONGER}"
            )
    return planned


def recompute_convergence(folder: Path, name: str, factor: float) -> Convergence | None:
    """Compute an entry of convergence.json from the logs of the run and of its longer run.

    Args:
        folder: the folder of the experiment.
        name: name of the run.
        factor: the recorded factor.

    Returns:
        The entry; None if there is no such longer run here, or it has not ended.

    Raises:
        ValueError: a log or config cannot be read.
    """
    given = RunFolder.read(folder / name)
    longer = _longer(given, factor)
    if not longer.config.is_file() or RunFolder.read(longer.folder).run != longer.run:
        return None
    if (after := _final_line(longer)) is None or (before := _final_line(given)) is None:
        return None
    return Convergence(
        label=given.run.label,
        seed=given.run.train.seed,
        factor=factor,
        updates=before["update"],
        longer_updates=after["update"],
        bleu=before["bleu"],
        longer_bleu=after["bleu"],
        gain=after["bleu"] - before["bleu"],
        config_hash=given.config_hash,
    )


def ended_longer_runs(folder: Path) -> list[str]:
    """List the runs of an experiment whose longer training has ended, by name."""
    logs = sorted((folder / LONGER).glob("*/metrics.jsonl"))
    return [path.parent.name for path in logs if any(line["kind"] == "final" for line in read_metrics(path))]


def _longer(given: RunFolder, factor: float) -> RunFolder:
    """Return the run with more updates, in its folder below the experiment."""
    run = with_updates(given.run, round(factor * given.run.train.max_updates))
    return RunFolder(run=run, folder=given.folder.parent / LONGER / given.folder.name)


def _train(longer: RunFolder, prepared: PreparedData, reporter: Reporter, position: str) -> None:
    """Train a longer run to its end, unless it has ended."""
    given = longer.folder.parents[1] / longer.name
    recorded = read_result(given)
    if (recorded.data_hash, recorded.batch_hash) != (prepared.corpus.content_hash, prepared.batch_hash):
        raise ValueError(f"{given} was trained with other data or batches: restore the corpus of data.root")
    if longer.metrics.is_file() and _final_line(longer) is not None:
        logger.info(f"{position}: already finished")
        return
    logger.info(f"{position}: start")
    begin_run(longer, prepared)
    with log_to_file(longer.folder / "log.txt"):
        train_model(longer, prepared, reporter)


def _record(folder: Path, longer: RunFolder, factor: float) -> Convergence:
    """Write the measured gain to convergence.json and to the result of the run."""
    entry = recompute_convergence(folder, longer.name, factor)
    assert entry is not None, "the longer run has just ended"
    run = folder / longer.name
    with lock_folder(run, wait=True), lock_folder(folder, wait=True):
        write_convergence(folder, {**read_convergence(folder), longer.name: entry})
        result = read_result(run)
        save_result(run, dataclasses.replace(result, longer_gain=entry.gain, longer_factor=entry.factor))
        write_json_lines(folder)
    logger.info(f"{longer.name}: {entry.gain:+.2f} validation BLEU from {factor:g} times the updates")
    return entry


def _final_line(folder: RunFolder) -> dict[str, Any] | None:
    """Return the last line of a log, with update and BLEU of the chosen weights; None before the end."""
    lines = [line for line in read_metrics(folder.metrics) if line["kind"] == "final"]
    return lines[-1] if lines and lines[-1].get("bleu") is not None else None
