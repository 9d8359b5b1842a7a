"""The folder of an experiment: the runs that a call asks for, what they start from, whose folder it is."""

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from difflib import unified_diff
from fnmatch import fnmatchcase
from pathlib import Path

from compare.config.resolve import Run, find_difference, settings_hash
from compare.experiment.prepare import PreparedData
from compare.models.registry import build_meta_model
from compare.optim import ENDLESS
from compare.results.run_folder import RunFolder
from compare.results.store import REGISTRY, Registry, read_registry, read_result
from compare.system.locks import lock_folder
from compare.system.messages import abbreviate, did_you_mean
from compare.training.checkpoints import CHECKPOINTS, STATE, WEIGHTS, load_weights, set_weights
from data.files import hash_file, remove_leftovers, write_atomically
from data.vocabulary import load_pair

logger = logging.getLogger(__name__)


def request_runs(
    models: Sequence[Run], folder: Path, seeds: Sequence[int] = (), only: Sequence[str] = ()
) -> list[RunFolder]:
    """Return the runs that a call asks for, ordered by seed.

    Args:
        models: all models of the experiment.
        folder: of the experiment.
        seeds: of each model; by default that of ``[train]``.
        only: as for ``choose_models``.

    Raises:
        ValueError: ``only`` has a label that no model has, and the message suggests the nearest; or the
            weights that ``[train] init_from`` names are not there.
    """
    chosen = choose_models(models, only)
    runs = [run.with_seed(seed) for seed in seeds or (models[0].train.seed,) for run in chosen]
    runs = [with_initial_weights(run) for run in runs]
    return [RunFolder(run=run, folder=folder / run.name) for run in runs]


def choose_models(models: Sequence[Run], only: Sequence[str]) -> list[Run]:
    """Return the models that ``--only`` names.

    Args:
        models: all models of the experiment.
        only: labels, in which * stands for any text; empty: all models.

    Raises:
        ValueError: no model has such a label; the message suggests the nearest.
    """
    if not only:
        return list(models)
    labels = [run.label for run in models]
    chosen: set[str] = set()
    for label in only:
        matches = {each for each in labels if fnmatchcase(each, label)}
        if not matches:
            raise ValueError(
                f"--only: no model is labelled {abbreviate(label)}; {did_you_mean(label, labels)}"
            )
        chosen |= matches
    return [run for run in models if run.label in chosen]


def has_ended(run: RunFolder) -> bool:
    """Return whether a run is done or has failed."""
    return run.folder.is_dir() and read_result(run.folder).status != "unfinished"


# Fine-tuning: ``[train] init_from`` names the run whose weights and vocabularies training starts from.


def with_initial_weights(run: Run) -> Run:
    """Decide which run ``run`` starts from, and the hash of its weights; without ``init_from``, nothing.

    Args:
        run: a run with its own seed. If ``init_from`` is the folder of an experiment, the run of the same
            label and seed there is meant.

    Raises:
        ValueError: there is no such run, it is not finished or has no weights, its vocabulary has other
            settings, or its weights are not those of an ``init_hash`` that is given.
    """
    train = run.train
    if train.init_from is None:
        return run
    root = Path(train.init_from).expanduser().absolute()
    folder = root / run.name if (root / REGISTRY).is_file() else root
    if not (folder / "config.toml").is_file():
        raise ValueError(
            f"train.init_from: {folder} is no run: give the folder of a finished run, or of an experiment "
            "with a run of the same label and seed"
        )
    source = RunFolder.read(folder)
    if read_result(folder).status != "done" or not source.weights.is_file():
        raise ValueError(
            f"train.init_from: {folder} is not finished, or has no weights (published runs may have none)"
        )
    for name, value in vars(source.run.vocabulary).items():
        if (here := getattr(run.vocabulary, name)) != value:
            text = str(value).lower() if isinstance(value, bool) else value
            raise ValueError(
                f"train.init_from: {folder} has vocabulary.{name} = {text}, here {here}: its weights need "
                f"its vocabularies: --set vocabulary.{name}={text}"
            )
    return replace(
        run, train=replace(train, init_from=str(folder), init_hash=initial_hash(run, source.weights))
    )


def initial_hash(run: Run, weights: Path) -> str:
    """Return the sha256 of the weights that ``run`` starts from; ValueError if it is not ``init_hash``."""
    found, expected = hash_file(weights), run.train.init_hash
    if expected not in (None, found):
        raise ValueError(
            f"{weights} are not the weights of train.init_hash (sha256 {found[:12]}, not "
            f"{str(expected)[:12]}): restore them"
        )
    return found


def ensure_initial_weights_fit(runs: Sequence[RunFolder], vocabulary_sizes: tuple[int, int]) -> None:
    """Raise ValueError if the weights that a run starts from have other names or shapes than its model."""
    for run in runs:
        if run.run.train.init_from is not None:
            path = Path(run.run.train.init_from) / WEIGHTS
            model = build_meta_model(run.run.model.architecture, *vocabulary_sizes)
            try:
                set_weights(model, load_weights(path), f"train.init_from of {run.run.label}: {path}")
            except ValueError as error:
                raise ValueError(
                    f"{error}; --only trains the models that they fit, the folder of an experiment has "
                    "weights for each"
                ) from None


# Whose folder it is.


def find_shorter(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Return those of ``runs`` that were begun with a smaller ``train.max_updates``, which they continue.

    A run that is continued at update N, with a learning rate that does not depend on the length of training,
    has at update M the weights that training to M from the start gives. Only such runs are continued, and
    all of a folder, whose rows share their updates.

    Raises:
        ValueError: a run folder was made with other settings: it is not continued or overwritten; or runs of
            the folder that are not among ``runs`` have other shared settings.
    """
    shorter = [run for run in runs if is_begun_shorter(run)]
    first, names = runs[0], {run.name for run in shorter}
    for config in sorted(first.folder.parent.glob("*/config.toml")):
        if config.parent.name not in names:
            other = RunFolder.read(config.parent)
            if not other.run.is_external and (difference := find_difference(first.run, other.run)):
                raise _other_settings(first.folder.parent, f"{other.name} has {difference}")
    return shorter


def is_begun_shorter(run: RunFolder) -> bool:
    """Return whether a run was begun with fewer updates; ValueError if with other settings."""
    if not run.config.exists():
        if (run.folder / CHECKPOINTS).exists():
            raise ValueError(
                f"{run.folder} has checkpoints but no config.toml of theirs: move the folder away"
            )
        return False
    existing, train = RunFolder.read(run.folder, data_root=run.run.data.root).run, run.run.train
    if existing.train.init_hash == train.init_hash:  # these weights may have moved, as the corpus
        existing = replace(existing, train=replace(existing.train, init_from=train.init_from))
    existing = replace(existing, bench=run.run.bench)  # timings may be repeated with others
    if existing == run.run:
        return False
    if not _is_shorter(existing, run.run):
        old, new = (each.to_toml().splitlines() for each in (existing, run.run))
        changes = list(unified_diff(old, new, lineterm="", n=0))
        was, now = (next((c[1:] for c in changes[2:] if c[0] == sign), "nothing") for sign in "-+")
        raise ValueError(
            f"{run.folder} holds another experiment ({was} there, {now} here): "
            "choose another folder with --out, or delete this one"
        )
    _ensure_can_continue(run, existing)
    return True


def _is_shorter(existing: Run, run: Run) -> bool:
    """Return whether two runs differ in ``train.max_updates`` alone, and the existing one has fewer."""
    updates = run.train.max_updates
    longer = replace(existing, train=replace(existing.train, max_updates=updates))
    return longer == run and existing.train.max_updates < updates


def _ensure_can_continue(run: RunFolder, existing: Run) -> None:
    """Raise ValueError if continued training would differ from training from the start."""
    train, schedule = existing.train, existing.model.optim.schedule
    problem = ""
    if schedule not in ENDLESS:
        problem = f"schedule = '{schedule}' has lowered the learning rate in view of its end"
    elif train.max_updates % train.valid_every:
        problem = f"its last validation is no multiple of train.valid_every = {train.valid_every}"
    elif read_result(run.folder).status == "done" and not (run.folder / CHECKPOINTS / STATE).is_file():
        problem = f"it has no {CHECKPOINTS}/{STATE}"
    if problem:
        raise ValueError(
            f"{run.folder} was trained with train.max_updates = {train.max_updates} and cannot be continued "
            f"to {run.run.train.max_updates}: {problem}: choose another folder with --out"
        )


def _other_settings(folder: Path, difference: str) -> ValueError:
    return ValueError(
        f"{folder} holds runs with other settings ({difference}), and the rows of one table share all "
        "settings but those of [[models]]: choose another folder with --out"
    )


# Writing into the folder: its lock, experiment.json, and the folders of runs.


@contextmanager
def locked_for_setup(folder: Path) -> Iterator[None]:
    """Lock the folder of an experiment while data are prepared in it.

    If data or vocabulary cannot be used, what was encoded, and every folder made for it, is removed.
    """
    encoded = folder / "encoded"
    absent = [path for path in (encoded, folder, *folder.parents) if not path.exists()]
    try:
        with lock_folder(folder, wait=True):
            before = set(encoded.glob("*"))
            try:
                remove_leftovers(folder)
                yield
            except (ValueError, OSError):
                for path in set(encoded.glob("*")) - before:
                    shutil.rmtree(path, ignore_errors=True)
                raise
    except (ValueError, OSError):
        for path in absent:
            with suppress(OSError):
                path.rmdir()  # only empty folders
        raise


def open_registry(folder: Path, prepared: PreparedData) -> Registry:
    """Read experiment.json, or make its initial content; reject a folder begun with other data."""
    registry = read_registry(folder)
    data = {"data_hash": prepared.corpus.content_hash, "vocabulary_hash": prepared.vocabularies.content_hash}
    for key, value in data.items():
        if (old := getattr(registry, key) or value) != value:
            raise ValueError(
                f"{folder} was begun with other data ({key} {old[:12]}, now {value[:12]}): "
                "choose another folder with --out"
            )
        setattr(registry, key, value)
    return registry


def begin_experiment(
    folder: Path,
    registry: Registry,
    runs: Sequence[RunFolder],
    external: Sequence[RunFolder] = (),
) -> None:
    """Add the runs to experiment.json, and lengthen shorter runs.

    Raises:
        ValueError: another process has begun runs with other shared settings since the first check.
        Locked: another process works on a run that was begun with fewer updates.
    """
    shorter, shared = find_shorter(runs), settings_hash(runs[0].run)
    if not shorter and registry.settings_hash not in ("", shared):
        raise _other_settings(folder, f"settings_hash {registry.settings_hash[:12]}, here {shared[:12]}")
    registry.settings_hash = shared
    registry.runs = list(dict.fromkeys([*registry.runs, *(run.name for run in (*runs, *external))]))
    for run in (*runs, *external):
        asked = registry.asked_seeds.get(run.run.label, [])
        registry.asked_seeds[run.run.label] = sorted({*asked, run.run.train.seed})
    with ExitStack() as locks:
        for run in shorter:
            locks.enter_context(lock_folder(run.folder))
        registry.write(folder)
        for run in shorter:
            _lengthen(run)


def _lengthen(run: RunFolder) -> None:
    """Give a run its longer training, and remove what was made from its former last weights.

    The settings are written last, so that the same call goes on with what a killed process has left.
    """
    logger.info(f"{run.name}: continues to {run.run.train.max_updates:,} updates")
    (run.folder / "result.json").unlink(missing_ok=True)
    translations = [run.plain_output(test) for test in run.tests]
    for made in (run.weights, run.selection, run.likelihoods, run.external, run.speed, *translations):
        made.unlink(missing_ok=True)
    write_atomically(run.config, run.run.to_toml())


def begin_run(run: RunFolder, prepared: PreparedData) -> None:
    """Create a run's folder; config.toml is written last, so its presence means that the rest is complete."""
    is_begun_shorter(run)  # refuses what another process may have begun since the first check
    for folder in (run.folder, run.folder / CHECKPOINTS):
        remove_leftovers(folder)
    if not run.config.is_file():
        prepared.vocabularies.save(run.folder)
        write_atomically(run.config, run.run.to_toml())
        return
    if load_pair(run.folder).content_hash != prepared.vocabularies.content_hash:
        raise ValueError(
            f"{run.folder} has the vocabulary of another run: restore its own, or delete the folder"
        )
    write_atomically(run.config, run.run.to_toml())  # the corpus may have moved
