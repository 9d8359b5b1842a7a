"""The folder of one run: its settings, and where each of its files lies."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from compare.config.parse import load_experiment, to_toml
from compare.config.sections import Experiment, ModelConfig
from compare.training.file_names import CHECKPOINTS, FINAL, METRICS


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """One model and seed of an experiment with every setting written out, and where it is kept."""

    experiment: Experiment
    """The experiment with this one model."""
    folder: Path

    @classmethod
    def read(cls, folder: Path) -> "RunFolder":
        """A run that has begun, from its config.toml."""
        return cls(experiment=load_experiment(folder / "config.toml"), folder=folder)

    @property
    def model(self) -> ModelConfig:
        """The run's model."""
        return self.experiment.models[0]

    @property
    def name(self) -> str:
        """<label>-seed<k>."""
        return self.folder.name

    @property
    def config(self) -> str:
        """All settings as TOML, what config.toml holds."""
        return to_toml(self.experiment)

    @property
    def config_hash(self) -> str:
        """The sha256 of all settings."""
        return hashlib.sha256(self.config.encode()).hexdigest()

    @property
    def weights(self) -> Path:
        """The chosen weights."""
        return self.folder / CHECKPOINTS / FINAL

    @property
    def metrics(self) -> Path:
        """The log of training, a JSON object a line."""
        return self.folder / METRICS

    @property
    def speed(self) -> Path:
        """The raw repeats of what was timed, and the peak of memory."""
        return self.folder / "speed.json"

    def output(self, test: str) -> Path:
        """The translations of a test set."""
        return self.folder / f"{test}.hyp"

    def hashes(self) -> dict[str, str]:
        """The sha256 of every file that the run's figures come from, by its path in the folder."""
        files = [self.folder / "config.toml", self.folder / "vocabulary.json"]
        files += [self.metrics, self.speed, self.weights, *self.folder.glob("*.hyp")]
        return {
            path.relative_to(self.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(files)
        }
