"""Journal of a search: an optuna study per model in one file, to which each ended trial adds one line.

A trial that is not in the journal has not ended. Who works on it is decided by the lock of its folder, which
a killed process gives up, so that the journal needs no states of unfinished trials.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compare.experiment.tune.description import DESCRIPTION, key_of, read_description
from compare.experiment.tune.space import Space, draw_settings
from compare.experiment.tune.trial_log import MAX_BYTES, TrialKey, TrialResult
from compare.system.messages import abbreviate
from compare.system.signals import lock_folder
from data.files import read_bytes, sync_file

if TYPE_CHECKING:
    import optuna

JOURNAL = "journal.log"
"""Name of the file, which optuna and optuna-dashboard read."""


def trial_folder(search: Path, label: str, number: int, seed: int | None = None) -> Path:
    """Return the folder of a trial in the folder of its search; ``seed``: if it is not the search's first."""
    return search / "trials" / f"{label}-{number}{'' if seed is None else f'-seed{seed}'}"


class Journal:
    """The journal in the folder of a search; every method takes the lock of the folder."""

    def __init__(
        self, folder: Path, space: Space, seed: int, keys: Mapping[str, str], first_seed: int = 1
    ) -> None:
        """Describe the search that the journal must be of; nothing is read.

        Args:
            folder: the folder of the search.
            space: the tuned settings.
            seed: seed of the draws.
            keys: hash of all that the trials of a model share, by label; it is in each entry of that model.
            first_seed: seed of weights and batches in all trials that are not repeated; entries of earlier
                versions, which do not name it, have this.
        """
        self.folder, self.path, self.space, self.seed, self.keys = folder, folder / JOURNAL, space, seed, keys
        self.first_seed = first_seed

    def folder_of(self, key: TrialKey) -> Path:
        """Return the folder of a trial."""
        label, number, seed = key
        return trial_folder(self.folder, label, number, None if seed == self.first_seed else seed)

    def read(self) -> dict[TrialKey, TrialResult]:
        """Read the ended trials.

        Raises:
            ValueError: the journal is damaged, or one of another search; or the settings of a model have
                changed since this process began.
        """
        if not self.path.exists():
            return {}
        with lock_folder(self.folder, wait=True):
            trials = [self._check(*entry) for entry in self._entries()]
        last = max((trial.trial for trial in trials), default=0)
        draws = draw_settings(self.space, last, self.seed)
        for trial in trials:
            if dict(trial.settings) != draws[trial.trial - 1]:
                raise self._forged(trial, "other settings than this search drew")
        return {trial.key: trial for trial in trials}

    def labels(self) -> set[str]:
        """Read the labels of the models of which a trial has ended, whatever search the journal is of.

        Raises:
            ValueError: the journal is damaged.
        """
        if not self.path.exists():
            return set()
        with lock_folder(self.folder, wait=True):
            return {str(attributes.get("label")) for _, attributes, _ in self._entries()}

    def add(self, trial: TrialResult) -> None:
        """Append an ended trial.

        Raises:
            ValueError: the settings of its model have changed since this process began.
        """
        import optuna

        values = dataclasses.asdict(trial)
        settings = values.pop("settings")
        done = trial.status == "done"
        entry = optuna.trial.create_trial(
            state=optuna.trial.TrialState.COMPLETE if done else optuna.trial.TrialState.FAIL,
            value=trial.bleu,
            params=settings,
            distributions={name: self.space[name].distribution() for name in settings},
            user_attrs={**values, "key": self.keys[trial.label]},
        )
        with lock_folder(self.folder, wait=True):
            self.refuse_changed_settings(trial.label)
            storage = self._storage()
            if trial.label in _names(storage):
                study = optuna.load_study(study_name=trial.label, storage=storage)
            else:
                study = optuna.create_study(study_name=trial.label, storage=storage, direction="maximize")
            study.add_trial(entry)
            sync_file(self.path)  # and its folder, in which it may be new

    def refuse_changed_settings(self, label: str) -> None:
        """Raise ValueError if another process has changed the settings of a model since this one began."""
        with lock_folder(self.folder, wait=True):
            if self._key_now(label) != self.keys[label]:
                raise self._changed(label)

    def _entries(self) -> list[tuple[dict[str, Any], dict[str, Any], float | None]]:
        """Read parameters, attributes and value of every trial of every study."""
        import optuna

        try:
            storage = self._storage()
            studies = [optuna.load_study(study_name=name, storage=storage) for name in _names(storage)]
            trials = [trial for study in studies for trial in study.get_trials(deepcopy=False)]
            return [(trial.params, trial.user_attrs, trial.value) for trial in trials]
        except OSError:
            raise
        except Exception as error:  # optuna raises many types for damaged files
            raise ValueError(
                f"{self.path}: not a journal of attnbench tune ({type(error).__name__} "
                f"{abbreviate(str(error))}): move it away"
            ) from None

    def _storage(self) -> "optuna.storages.JournalStorage":
        """Open the file; a last line that was cut short, as by a full disk, is removed first."""
        import optuna
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)  # else it prints a line for every study
        if self.path.exists():
            content = read_bytes(self.path, max_bytes=MAX_BYTES)
            if content and not content.endswith(b"\n"):
                with self.path.open("r+b") as file:
                    file.truncate(content.rfind(b"\n") + 1)
        backend = JournalFileBackend(str(self.path), lock_obj=_HeldLock())  # type: ignore[arg-type]
        return optuna.storages.JournalStorage(backend)

    def _check(
        self, settings: dict[str, Any], attributes: dict[str, Any], value: float | None
    ) -> TrialResult:
        """Check that an entry is of this search, and return its result."""
        values = {"seed": self.first_seed, **attributes}
        key, label = values.pop("key", None), str(values.get("label"))
        if key is None or key != self.keys.get(label):
            if key == self._key_now(label):
                raise self._changed(label)
            raise ValueError(
                f"{self.path} is the journal of another search, or was begun by an earlier version: choose "
                "another folder with --out"
            )
        result = TrialResult.from_dict({**values, "settings": settings}, str(self.path))
        if result.bleu != value:
            raise self._forged(result, f"two scores, {result.bleu} and {value}")
        return result

    def _key_now(self, label: str) -> str:
        """Return the key that tune.json gives now, after other processes may have changed it."""
        return key_of(read_description(self.folder / DESCRIPTION)["settings"], label)

    def _changed(self, label: str) -> ValueError:
        return ValueError(
            f"{self.folder}: the settings of {abbreviate(label)} have changed since this process began: "
            "start it again"
        )

    def _forged(self, trial: TrialResult, what: str) -> ValueError:
        return ValueError(
            f"{self.path}: trial {trial.trial} of {abbreviate(trial.label)} has {what}: "
            "put the journal's own entry back, or choose another folder with --out"
        )


def _names(storage: "optuna.storages.JournalStorage") -> list[str]:
    import optuna

    return list(optuna.get_all_study_names(storage))


class _HeldLock:
    """Lock of optuna's file backend that does nothing: ``Journal`` holds the lock of the folder.

    Optuna's own lock outlives a killed process by half a minute.
    """

    def acquire(self) -> bool:
        """Do nothing."""
        return True

    def release(self) -> None:
        """Do nothing."""
