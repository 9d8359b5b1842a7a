"""The folder of one run: its settings, and where each of its files is."""

from dataclasses import dataclass
from pathlib import Path

from compare.config.parse import load_experiment
from compare.config.run import Run, resolve_models
from compare.decoding.length_penalty import LengthPenalty, length_penalties
from compare.results.selection import read_selection
from compare.training.file_names import CHECKPOINTS, FINAL, METRICS
from data.text.files import hash_file


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """A run and the folder that keeps its files."""

    run: Run
    folder: Path

    @classmethod
    def read(cls, folder: Path) -> "RunFolder":
        """Read a run that has begun, from its config.toml.

        Raises:
            ValueError: config.toml cannot be read, or describes no run.
        """
        path = folder / "config.toml"
        # Earlier versions wrote data.root as it was given, relative to the working directory.
        runs = resolve_models(load_experiment(path, base=Path()), str(path))
        if len(runs) > 1:
            raise ValueError(f"{path} has {len(runs)} [[models]] tables, but a run has one")
        return cls(run=runs[0], folder=folder)

    @property
    def name(self) -> str:
        """<label>-seed<k>."""
        return self.folder.name

    @property
    def config(self) -> Path:
        """All settings, as TOML."""
        return self.folder / "config.toml"

    @property
    def config_hash(self) -> str:
        """The sha256 of config.toml."""
        return hash_file(self.config)

    @property
    def weights(self) -> Path:
        """The chosen weights."""
        return self.folder / CHECKPOINTS / FINAL

    @property
    def metrics(self) -> Path:
        """The training log, one JSON object per line."""
        return self.folder / METRICS

    @property
    def speed(self) -> Path:
        """The raw repeats of the timings, and the peak memory."""
        return self.folder / "speed.json"

    @property
    def selection(self) -> Path:
        """The length penalties that were tried on validation; absent if the config names only one."""
        return self.folder / "selection.json"

    def penalty(self) -> LengthPenalty:
        """Return the length penalty of the run: the one chosen on validation, or the only one of its config.

        Raises:
            ValueError: none is chosen yet, or selection.json is damaged or of another grid.
        """
        penalties = length_penalties(self.run.decode)
        if len(penalties) == 1:
            return penalties[0]
        return read_selection(self.selection, penalties).penalty

    def output(self, test: str) -> Path:
        """The translations of a test set."""
        return self.folder / f"{test}.hyp"

    def hashes(self) -> dict[str, str]:
        """The sha256 of every file that the run's figures come from, by its path in the folder."""
        files = [self.config, self.folder / "vocabulary.json"]
        files += [self.metrics, self.speed, self.weights, *self.folder.glob("*.hyp")]
        files += [self.selection] if len(length_penalties(self.run.decode)) > 1 else []
        return {path.relative_to(self.folder).as_posix(): hash_file(path) for path in sorted(files)}
