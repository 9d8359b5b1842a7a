"""The folder of one run: its settings, and where each of its files is."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

from msgspec import Meta

from compare.config.parse import load_experiment
from compare.config.run import Run, resolve_models
from compare.decoding.length_penalty import LengthPenalty, length_penalties
from compare.results.records import SELECTION, read_record, read_selection
from compare.training.serialization import CHECKPOINTS, FINAL, METRICS, WEIGHTS
from data.files import hash_file
from data.text import hash_decompressed, plain_or_gzip
from data.vocabulary import FILE_NAME

REQUIRED = ("config.toml", FILE_NAME, METRICS, "speed.json", WEIGHTS)
"""Files of every finished run; each must have a hash."""
MASKS = ("encoder_mask", "decoder_mask", "cross_mask")
"""Settings of a model that may name a file, which then decides its figures as the settings do."""


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """A run and the folder that keeps its files."""

    run: Run
    folder: Path

    @classmethod
    def read(cls, folder: Path, *, data_root: str = "") -> "RunFolder":
        """Read a run that has begun, from its config.toml.

        Args:
            folder: the folder of the run.
            data_root: where the corpus is now; empty: where config.toml says.

        Raises:
            ValueError: config.toml cannot be read, or describes no run.
        """
        path = folder / "config.toml"
        # Earlier versions wrote data.root as it was given, relative to the working directory.
        runs = resolve_models(load_experiment(path, base=Path()), str(path), other_machine=True)
        if len(runs) > 1:
            raise ValueError(f"{path} has {len(runs)} [[models]] tables, but a run has one")
        run = runs[0]
        if data_root:
            run = dataclasses.replace(run, data=dataclasses.replace(run.data, root=data_root))
        copies = {name: str(folder / f"{name}.npy") for name in _mask_files(run)}
        there = {name: copy for name, copy in copies.items() if Path(copy).exists()}
        return cls(run=dataclasses.replace(run, model=run.model.override(there)), folder=folder)

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
        return self.folder / SELECTION

    @property
    def likelihoods(self) -> Path:
        """The likelihood of the references of the test sets; absent in runs of earlier versions."""
        return self.folder / "perplexity.json"

    @property
    def external(self) -> Path:
        """Scores by metrics from outside; absent where none has scored the run."""
        return self.folder / "external.json"

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
        """The translations of a test set; in a published folder they are compressed."""
        return plain_or_gzip(self.plain_output(test))

    def plain_output(self, test: str) -> Path:
        """The file that translations of a test set are written to."""
        return self.folder / f"{test}.hyp"

    @property
    def tests(self) -> list[str]:
        """The names of the test sets that have been translated, sorted."""
        names = [path.name for pattern in ("*.hyp", "*.hyp.gz") for path in self.folder.glob(pattern)]
        return sorted({name.removesuffix(".gz").removesuffix(".hyp") for name in names})

    def masks(self) -> dict[str, Path]:
        """The files of attention masks that the settings name, by the name of their copy.

        They lie where the settings say; published and saved models have copies in their folder, such as
        ``cross_mask.npy``, which ``read`` puts into the settings.
        """
        return {f"{name}.npy": path for name, path in _mask_files(self.run).items()}

    def files(self) -> dict[str, Path]:
        """Every file that the run's figures come from and that is there, by its path in the folder.

        A published folder has no weights, and compressed files, which stand here under their plain names.
        The files of ``masks`` may be elsewhere and stand here under the names of their copies.
        """
        names = [self.config, self.folder / FILE_NAME, self.metrics, self.speed, self.weights, self.selection]
        names += [self.likelihoods, self.external]
        names += [self.plain_output(test) for test in self.tests]
        files = {name.relative_to(self.folder).as_posix(): plain_or_gzip(name) for name in sorted(names)}
        return {name: path for name, path in (files | self.masks()).items() if path.exists()}

    def hashes(self) -> dict[str, str]:
        """The sha256 of every file of ``files``, of the content if it is compressed."""
        return {name: hash_decompressed(path) for name, path in self.files().items()}


def _mask_files(run: Run) -> dict[str, Path]:
    """Return the files that settings of the model name as attention masks, by setting."""
    settings = run.model.settings()
    return {name: Path(settings[name]) for name in MASKS if str(settings.get(name)).endswith(".npy")}


# The file external.json of a run: scores of its translations by metrics from outside, such as COMET.


@dataclass(frozen=True, kw_only=True)
class SegmentScores:
    """Scores of one text by a metric from outside."""

    segments: Annotated[list[float], Meta(min_length=1)]
    """One score per line."""
    signature: str
    """Version and settings of the metric; scores compare only under the same signature."""

    @property
    def score(self) -> float:
        """The score of the text: the mean of its segments."""
        return fmean(self.segments)

    def columns(self, name: str) -> dict[str, float | str]:
        """Return score and signature under the names of their columns: "comet", "comet_signature"."""
        return {name: self.score, f"{name}_signature": self.signature}


@dataclass(frozen=True, kw_only=True)
class RecordedScores(SegmentScores):
    """Scores of the translations of one test set, as a run keeps them."""

    translations: str
    """sha256 of the translations; those of other translations are not shown."""


External = dict[str, dict[str, RecordedScores]]
"""Content of external.json: scores by test set and name of the metric."""


def read_external(path: Path) -> External:
    """Read an external.json; {} where there is none. Errors are those of ``read_record``."""
    if not path.exists():
        return {}
    remedy = "put the run's own back, or delete it and run attnbench score --external again"
    return read_record(path, External, remedy)


def external_columns(folder: RunFolder, test: str) -> dict[str, float | str]:
    """Return the columns of all metrics from outside that have scored the present translations of a test set.

    Raises:
        ValueError: external.json is damaged.
    """
    found: dict[str, float | str] = {}
    metrics = read_external(folder.external).get(test, {})
    if not metrics or not folder.output(test).is_file():
        return found
    translations = hash_decompressed(folder.output(test))
    for name, recorded in metrics.items():
        if recorded.translations == translations:
            found |= recorded.columns(name)
    return found
