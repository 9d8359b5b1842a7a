"""The runs that one call asks for: some or all models of an experiment, each with one or several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from compare.config.model_grid import is_of_grid
from compare.config.run import Run
from compare.experiment.initial_weights import with_initial_weights
from compare.results.run_folder import RunFolder
from compare.system.hints import abbreviate, did_you_mean


@dataclass(frozen=True, kw_only=True)
class RequestedRuns:
    """What a call asks for; ``of`` gives the runs."""

    folder: Path
    """Folder of the experiment."""
    seeds: Sequence[int] = ()
    """Seeds of each model; empty: that of ``[train]``."""
    only: Sequence[str] = ()
    """As for ``choose_models``."""

    def of(self, models: Sequence[Run]) -> list[RunFolder]:
        """Return the runs, ordered by seed.

        Args:
            models: all models of the experiment.

        Raises:
            ValueError: ``only`` has a label that no model has, and the message suggests the nearest; or the
                weights that ``[train] init_from`` names are not there.
        """
        chosen = choose_models(models, self.only)
        runs = [run.with_seed(seed) for seed in self.seeds or (models[0].train.seed,) for run in chosen]
        runs = [with_initial_weights(run) for run in runs]
        return [RunFolder(run=run, folder=self.folder / run.name) for run in runs]


def choose_models(models: Sequence[Run], only: Sequence[str]) -> list[Run]:
    """Return the models that ``--only`` names.

    Args:
        models: all models of the experiment.
        only: labels, in which * stands for any text; that of a table with lists of values, if no model has
            it, stands for all models of the table; empty: all models.

    Raises:
        ValueError: no model has such a label; the message suggests the nearest.
    """
    if not only:
        return list(models)
    labels = [run.label for run in models]
    chosen: set[str] = set()
    for label in only:
        matches = {each for each in labels if fnmatchcase(each, label)}
        matches = matches or {
            run.label for run in models if is_of_grid(run.label, label, run.model.settings())
        }
        if not matches:
            raise ValueError(
                f"--only: no model is labelled {abbreviate(label)}; {did_you_mean(label, labels)}"
            )
        chosen |= matches
    return [run for run in models if run.label in chosen]
