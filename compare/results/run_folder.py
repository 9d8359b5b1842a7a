"""The folder of one run: its settings, its files, and the trained model in it."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from compare.config.parse import load_experiment
from compare.config.resolve import Run, resolve_models
from compare.decoding.search import Ensemble, LengthPenalty, length_penalties
from compare.decoding.translator import Translator
from compare.models.registry import build
from compare.results.records import SELECTION, read_external, read_likelihoods, read_selection
from compare.results.store import read_result
from compare.system.device import set_numerics
from compare.system.messages import ensure_folder, first_line
from compare.training.checkpoints import CHECKPOINTS, FINAL, SAVED, WEIGHTS, load_weights, set_weights
from compare.training.log import METRICS_FILE
from data.files import as_paths
from data.text import hash_decompressed, plain_or_gzip
from data.vocabulary import FILE_NAME, load_pair

if TYPE_CHECKING:
    from compare.models.registry import Model

MASKS = ("encoder_mask", "decoder_mask", "cross_mask")
"""Settings of a model that may name a file."""


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """A run and the folder that keeps its files."""

    run: Run
    folder: Path

    @classmethod
    def read(cls, folder: Path, *, data_root: str = "") -> "RunFolder":
        """Read a run that has begun, from its config.toml; ValueError if that is damaged or no run."""
        path = folder / "config.toml"
        # A relative data.root, as of published runs, is relative to the working directory.
        runs = resolve_models(load_experiment(path, base=Path()), str(path), other_machine=True)
        if len(runs) > 1:
            raise ValueError(f"{path} has {len(runs)} [[models]] tables; a run has exactly one")
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
    def weights(self) -> Path:
        """The chosen weights, which ``save_pretrained`` writes under another name."""
        saved = self.folder / SAVED
        return saved if saved.exists() else self.folder / CHECKPOINTS / FINAL

    @property
    def metrics(self) -> Path:
        """The training log, one JSON object per line."""
        return self.folder / METRICS_FILE

    @property
    def speed(self) -> Path:
        """Raw repeats of the timings, and peak memory."""
        return self.folder / "speed.json"

    @property
    def selection(self) -> Path:
        """Length penalties tried on validation; absent if the config names only one."""
        return self.folder / SELECTION

    @property
    def likelihoods(self) -> Path:
        """Likelihood of the references; absent in runs of early versions."""
        return self.folder / "perplexity.json"

    @property
    def external(self) -> Path:
        """Scores by external metrics, if there are any."""
        return self.folder / "external.json"

    def penalty(self) -> LengthPenalty:
        """Return the length penalty chosen on validation, or the config's only one; ValueError if none is."""
        penalties = length_penalties(self.run.decode)
        if len(penalties) == 1:
            return penalties[0]
        return read_selection(self.selection, penalties).penalty

    def output(self, test: str) -> Path:
        """Return the translations of a test set, compressed in a published folder."""
        return plain_or_gzip(self.plain_output(test))

    def plain_output(self, test: str) -> Path:
        """Return the file that translations of a test set are written to."""
        return self.folder / f"{test}.hyp"

    @property
    def tests(self) -> list[str]:
        """Names of the translated test sets, sorted."""
        names = [path.name for pattern in ("*.hyp", "*.hyp.gz") for path in self.folder.glob(pattern)]
        return sorted({name.removesuffix(".gz").removesuffix(".hyp") for name in names})

    def masks(self) -> dict[str, Path]:
        """Return the files of attention masks by the name of their copy, such as ``cross_mask.npy``."""
        return {f"{name}.npy": path for name, path in _mask_files(self.run).items()}

    def files(self) -> dict[str, Path]:
        """Return the existing files behind the run's figures; masks stand under the names of copies."""
        names = [self.config, self.folder / FILE_NAME, self.metrics, self.speed, self.weights, self.selection]
        names += [self.likelihoods, self.external]
        names += [self.plain_output(test) for test in self.tests]
        files = {name.relative_to(self.folder).as_posix(): plain_or_gzip(name) for name in sorted(names)}
        return {name: path for name, path in (files | self.masks()).items() if path.exists()}

    def model_figures(self, test: str) -> dict[str, float | int | None]:
        """Return perplexities and translations at the limit of a test set, if measured."""
        if not self.likelihoods.exists():
            return {}
        measured = read_likelihoods(self.likelihoods)
        if test not in measured.tests:
            return {}
        sums, at_limit = measured.tests[test], measured.at_limit.get(test)
        return {
            "perplexity": sums.perplexity,
            "char_perplexity": sums.char_perplexity,
            **({} if at_limit is None else {"at_limit": at_limit}),
        }

    def external_columns(self, test: str) -> dict[str, float | str]:
        """Return the columns of external metrics for the present translations of a test set."""
        columns: dict[str, float | str] = {}
        metrics = read_external(self.external).get(test, {})
        if metrics and self.output(test).is_file():
            translations = hash_decompressed(self.output(test))
            for name, recorded in metrics.items():
                if recorded.translations == translations:
                    columns |= recorded.columns(name)
        return columns

    def hashes(self) -> dict[str, str]:
        """Return the sha256 of the decompressed content of ``files``."""
        return {name: hash_decompressed(path) for name, path in self.files().items()}


def _mask_files(run: Run) -> dict[str, Path]:
    settings = run.model.settings()
    return {name: Path(settings[name]) for name in MASKS if str(settings.get(name)).endswith(".npy")}


# The model of a finished run, or those of several as an ensemble.


def find_run(folder: Path) -> Path:
    """Return the folder of a run; without a budget in its name, the largest that has weights."""
    if not folder.exists() and folder.parent.is_dir():
        stem = f"{folder.name}-budget"
        budgets = [
            int(number)
            for path in folder.parent.glob("*-budget*")
            if (number := path.name.removeprefix(stem)).isdigit()
        ]
        paths = [folder.with_name(f"{stem}{budget}") for budget in sorted(budgets)]
        folder = next((path for path in reversed(paths) if (path / WEIGHTS).is_file()), folder)
    ensure_folder(folder)
    if not (folder / "config.toml").is_file():
        runs = sorted(path.parent for path in folder.glob("*/config.toml"))
        example = runs[0] if runs else "runs/demo/bahdanau-seed1"
        raise ValueError(f"{folder} has no config.toml: name the folder of one run, such as {example}")
    return folder


def load_model(run: str | Path, device: str = "cpu") -> Translator:
    """Load the model of a finished run, or one that ``save_pretrained`` wrote.

    Args:
        run: the folder of one run, such as runs/demo/bahdanau-seed1; without a budget in its name, the
            largest.
        device: where the model computes, such as cpu, cuda or cuda:1.

    Returns:
        A translator: ``translate(lines)`` gives strings, ``attend(line)`` attention weights.

    Raises:
        ValueError: the folder is no run, a file is missing, damaged or not the recorded one, no length
            penalty is chosen, or the device cannot be used.
    """
    folder = find_run(Path(run))
    trained = RunFolder.read(folder)
    vocabularies, recorded = load_pair(folder), read_result(folder).files
    for name, path in {FILE_NAME: plain_or_gzip(folder / FILE_NAME), **trained.masks()}.items():
        _ensure_recorded(path, recorded.get(name), "is not the file that this run was trained with")
    sizes = len(vocabularies.src), len(vocabularies.tgt)
    architecture, weights = trained.run.model.architecture, trained.weights
    if not weights.parent.is_dir():
        raise ValueError(
            f"{folder} has no weights (published runs may lack them): "
            "train it again to translate or to see attention"
        )
    model = build(architecture, *sizes)
    set_weights(model, load_weights(weights), str(weights))
    _ensure_recorded(weights, recorded.get(WEIGHTS), "are not the weights of this run's result")
    penalty = trained.penalty()
    try:
        set_numerics(torch.device(device), deterministic=torch.are_deterministic_algorithms_enabled())
        model.to(device)
    except (RuntimeError, AssertionError) as error:  # torch: no such device, or no support for it
        raise ValueError(f"device {device!r} cannot be used: {first_line(error)}") from None
    where, decode, label = torch.device(device), trained.run.decode, trained.run.label
    return Translator(model, vocabularies, decode, where, penalty, folder=folder.resolve(), label=label)


def _ensure_recorded(path: Path, recorded: str | None, problem: str) -> None:
    if recorded is not None and (actual := hash_decompressed(path)) != recorded:
        raise ValueError(
            f"{path} {problem} (sha256 {actual[:12]}, not {recorded[:12]}): restore the original file"
        )


def load_ensemble(runs: Sequence[str | Path], device: str = "cpu") -> Translator:
    """Load the models of two or more finished runs as one that averages their probabilities.

    Decoding and the length penalty are those of the first run; vocabularies must be equal.
    """
    folders = as_paths(runs)
    if len({folder.resolve() for folder in folders}) < max(2, len(folders)):
        raise ValueError("an ensemble needs at least two different runs")
    first, *others = (load_model(folder, device) for folder in folders)
    for folder, other in zip(folders[1:], others, strict=True):
        if other.vocabularies.content_hash != first.vocabularies.content_hash:
            raise ValueError(
                f"{folder} and {folders[0]} have different vocabularies; an ensemble needs the same one"
            )
    ensemble = Ensemble([translator.model for translator in (first, *others)])
    return Translator(cast("Model", ensemble), first.vocabularies, first.decode, first.device, first.penalty)
