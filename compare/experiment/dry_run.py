"""What a call would run: settings, folder and data are checked, and nothing is written."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from compare.config.run import Run
from compare.config.sections import Experiment
from compare.experiment.budget.match import match_budget
from compare.experiment.estimate import RunEstimate, estimate_runs
from compare.experiment.experiment_folder import open_registry, refuse_other_settings
from compare.experiment.initial_weights import ensure_initial_weights_fit
from compare.experiment.prepare import PreparedData, ensure_models_fit, prepare_data
from compare.experiment.requested_runs import RequestedRuns
from compare.experiment.run_all import InTurn, Launcher, check_settings
from compare.results.run_folder import RunFolder
from compare.system.cpu import tune_cpu


def dry_run(
    experiment: Experiment,
    folder: str | Path,
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
    launcher: Launcher | None = None,
) -> list[Run]:
    """Check settings, folder and data as ``run_experiment`` would, without writing any file.

    Args:
        experiment: as for ``run_experiment``.
        folder: where the runs would be kept.
        seeds: as for ``run_experiment``.
        only: as for ``run_experiment``.
        context: the file that error messages name.
        launcher: as for ``run_experiment``.

    Returns:
        The runs that ``run_experiment`` would finish; a budget of time, which needs a calibration, is not yet
        matched in them.

    Raises:
        ValueError: bad settings or data, or ``folder`` holds another experiment.
    """
    requested = RequestedRuns(folder=Path(folder), seeds=seeds, only=only)
    with _planned(experiment, requested, context, launcher) as (runs, _):
        return [run.run for run in runs]


def estimate_experiment(
    experiment: Experiment,
    folder: str | Path,
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
    launcher: Launcher | None = None,
) -> list[RunEstimate]:
    """Estimate the size, memory and training time of the runs of ``dry_run``.

    Some updates of each model are timed on this machine; see ``RunEstimate`` for what the figures include.

    Args:
        experiment: as for ``run_experiment``.
        folder: where the runs would be kept.
        seeds: as for ``run_experiment``.
        only: as for ``run_experiment``.
        context: the file that error messages name.
        launcher: as for ``run_experiment``.

    Raises:
        ValueError, OSError: as for ``dry_run``.
    """
    tune_cpu(batch_tokens=experiment.train.batch_tokens)
    requested = RequestedRuns(folder=Path(folder), seeds=seeds, only=only)
    with _planned(experiment, requested, context, launcher) as (runs, prepared):
        return estimate_runs(runs, prepared)


@contextmanager
def _planned(
    experiment: Experiment, requested: RequestedRuns, context: str, launcher: Launcher | None
) -> Iterator[tuple[list[RunFolder], PreparedData]]:
    """Yield the runs and their data, which are encoded in a folder that is removed again."""
    models = (launcher or InTurn()).resolve(experiment, context)
    check_settings(models, requested.folder)
    if experiment.budget.match == "none":
        refuse_other_settings(requested.of(models))
    with TemporaryDirectory() as encoded:
        prepared = prepare_data(experiment, Path(encoded))
        open_registry(requested.folder, prepared)
        if experiment.budget.match in ("params", "flops"):
            models = match_budget(models, prepared, {})
        ensure_models_fit(models, prepared.vocabulary_sizes)
        runs = requested.of(models)
        ensure_initial_weights_fit(runs, prepared.vocabulary_sizes)
        yield runs, prepared
