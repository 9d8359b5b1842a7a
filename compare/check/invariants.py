"""A run to check with its data, and the invariants between its files: what holds where no one has edited.

Each function compares some files with each other; ``INVARIANTS`` lists those of one run.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from compare.config.parse import load_experiment
from compare.config.resolve import Run, resolve_models, settings_hash
from compare.config.sections import SETTINGS, SHARED, run_name
from compare.decoding.search import length_penalties
from compare.experiment.likelihood import count_characters
from compare.experiment.prepare import PreparedData, prepare_data
from compare.results.records import SELECTION, read_external, read_likelihoods, read_selection
from compare.results.run_folder import RunFolder
from compare.results.store import REGISTRY, Registry, Result
from compare.system.plugins import plugin_problem
from compare.training.checkpoints import EMA, WEIGHTS, TrainerState, Validation
from compare.training.log import read_metrics
from compare.training.trainer import must_stop
from data.files import hash_file
from data.text import hash_decompressed, plain_or_gzip
from data.vocabulary import UNK, load_pair

# Findings, and runs with the data that their configs describe.


class ComparedValue(NamedTuple):
    """A recorded value, and the value that the other files of the experiment give."""

    context: str
    """Name of the run's folder, or of a file of the experiment."""
    name: str
    """Name of the figure, or path of the file in the run's folder."""
    recorded: Any
    recomputed: Any
    relative: float = 1e-9
    """Largest relative difference of floats that are equal: sums may be taken in another order."""
    absolute: float = 0.0
    """Largest difference of floats that are equal."""

    @property
    def same(self) -> bool:
        """Whether both values agree, floats within one of the tolerances."""
        if isinstance(self.recorded, float) and isinstance(self.recomputed, float):
            return math.isclose(self.recorded, self.recomputed, rel_tol=self.relative, abs_tol=self.absolute)
        return bool(self.recorded == self.recomputed)

    def __str__(self) -> str:
        """Describe the values in one line."""
        return f"{self.context}: {self.name}: recorded {self.recorded}, found {self.recomputed}"


class Gap(NamedTuple):
    """Something that could not be checked of a run."""

    subject: str
    run: str
    """Name of the run's folder."""


Findings = Iterator[ComparedValue | Gap]


def join_differences(findings: Iterable[ComparedValue]) -> Iterator[ComparedValue]:
    """Give the values that agree, and of those that do not the first, which says how many more there are.

    Args:
        findings: values of one figure, such as the learning rate of every line of a log.
    """
    compared = list(findings)
    yield from (finding for finding in compared if finding.same)
    differences = [finding for finding in compared if not finding.same]
    if differences:
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        yield differences[0]._replace(name=differences[0].name + more)


@dataclass(frozen=True, kw_only=True)
class CheckedRun:
    """A run of the experiment, as recorded, and its data, prepared again."""

    folder: RunFolder
    result: Result
    lines: Sequence[Mapping[str, Any]]
    """Lines of metrics.jsonl; empty if there is none, or it cannot be read."""
    prepared: PreparedData | None
    """Corpus, vocabularies and batches by the run's own config; None where the corpus cannot be read."""
    problems: Sequence[ComparedValue | Gap]
    """Files that are damaged, or that cannot be checked because they are not there."""

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.folder.name

    @property
    def final(self) -> Mapping[str, Any] | None:
        """The last line of a complete log."""
        return next((line for line in self.lines if line["kind"] == "final"), None)

    @property
    def weights_hash(self) -> str:
        """The sha256 of the weights, or the recorded one where they are not in the folder."""
        weights = self.folder.weights
        return hash_file(weights) if weights.is_file() else self.result.files.get(WEIGHTS, "no hash")


class DataCache:
    """The prepared data of each distinct setting of the runs."""

    def __init__(self, encoded: Path, data_root: str) -> None:
        """Begin without data.

        Args:
            encoded: folder of the encoded splits.
            data_root: folder of the corpus; empty: that of each config.
        """
        self._encoded, self.data_root = encoded, data_root
        self._found: dict[object, PreparedData] = {}

    def prepare(self, run: Run, folder: Path) -> PreparedData:
        """Return the data that the sections of ``run`` describe.

        The vocabularies are built again from the training split, unless the run started from the weights of
        another one, whose vocabularies it has.

        Raises:
            ValueError, OSError: the corpus cannot be read or used.
        """
        own = load_pair(folder) if run.train.init_from is not None else None
        sections = (run.data, run.vocabulary, run.regularization, run.train.batch_tokens)
        settings = (*sections, run.task, own.content_hash if own else None)
        if settings not in self._found:
            self._found[settings] = prepare_data(run, self._encoded, vocabularies=own)
        return self._found[settings].for_seed(run.train.seed)


def read_run(folder: Path, result: Result, cache: DataCache) -> CheckedRun:
    """Read a run and prepare its data.

    Args:
        folder: the folder of the run, which has a config.toml.
        result: its recorded result.
        cache: the data of the runs read before.

    Raises:
        ValueError: config.toml cannot be read.
    """
    run = RunFolder.read(folder, data_root=cache.data_root)
    problems: list[ComparedValue | Gap] = []
    lines: list[dict[str, Any]] = []
    prepared = None
    try:
        lines = read_metrics(run.metrics) if run.metrics.exists() else []
    except (ValueError, OSError) as error:
        problems.append(ComparedValue(run.name, "metrics.jsonl", "a log", str(error)))
    try:
        prepared = cache.prepare(run.run, folder)
    except OSError as error:
        problems.append(Gap(f"data, batches and scores: {error}", run.name))
    except ValueError as error:
        problems.append(ComparedValue(run.name, "data", "as config.toml says", str(error)))
    return CheckedRun(folder=run, result=result, lines=lines, prepared=prepared, problems=problems)


# Invariants of one run.


def _check_status(run: CheckedRun) -> Findings:
    """Report a run of another folder, and one that is not done, although its files say that it is.

    A run that failed diverged in training, so its log has no final line.
    """
    yield ComparedValue(run.name, "label and seed in config.toml", run.folder.run.name, run.name)
    status = run.result.status
    ended = run.final is not None and (status == "failed" or run.folder.speed.exists())
    yield ComparedValue(run.name, "status", status, "done" if ended else status)


def _check_log(run: CheckedRun) -> Findings:
    """Compare learning rates with the schedule; epochs and tokens with the batches of the run's seed."""
    windows = [line for line in run.lines if line["kind"] == "train"]
    optim, train = run.folder.run.model.optim, run.folder.run.train
    most = train.max_updates
    expected: dict[str, tuple[Sequence[Mapping[str, Any]], Sequence[Any]]] = {
        "learning_rate": (
            windows,
            [optim.learning_rate_at(line["update"], most, train.decay) for line in windows],
        )
    }
    if run.prepared is not None and windows:
        # Not more updates than log and config both name: one of them could have a number of any size.
        last = min(windows[-1]["update"], most)
        batches = np.zeros((1, 3), dtype=np.int64)  # epoch, source and target tokens by update
        for epoch in range(1, last + 1):
            tokens = run.prepared.stream.token_counts(epoch)
            batches = np.concatenate([batches, np.insert(tokens, 0, epoch, axis=1)])
            if len(batches) > last:
                break
        ends = [0, *(min(line["update"], last) for line in windows)]
        src, tgt = np.diff(batches[:, 1:].cumsum(axis=0)[ends], axis=0).T.tolist()
        dated = [line for line in run.lines if "epoch" in line]
        epochs = batches[[min(line["update"], last) for line in dated], 0].tolist()
        expected |= {"src_tokens": (windows, src), "tgt_tokens": (windows, tgt), "epoch": (dated, epochs)}
    for name, (lines, values) in expected.items():
        yield from join_differences(
            ComparedValue(
                run.name, f"metrics.jsonl: {name} of update {line['update']}", line.get(name), value
            )
            for line, value in zip(lines, values, strict=True)
        )


def _check_choice(run: CheckedRun) -> Findings:
    """Compare the final line of the log with the best validation or average, and with its early stop."""
    if run.final is None:
        return
    train, state = run.folder.run.train, TrainerState()
    stop, best, chosen = train.max_updates, state.best, ""
    for line in run.lines:
        if line["kind"] == "valid":
            state.update = line["update"]
            state.add_validation(Validation(line["loss"], line["bleu"]))
            best, chosen = state.best, f"update {state.best_update}"
            if must_stop(state, train):
                stop = min(stop, state.update)
        elif line["kind"] in ("average", "ema"):
            scores = Validation(line["loss"], line["bleu"])
            if scores.quality > best.quality:
                best, chosen = scores, EMA if line["kind"] == "ema" else "average"
    expected = {"update": stop, "best_update": state.best_update, "chosen": chosen}
    for name, value in (expected | {"loss": best.loss, "bleu": best.bleu}).items():
        recorded = run.final[name]
        if name == "chosen" and str(recorded).startswith("average"):
            recorded = "average"  # without the updates that it is of
        yield ComparedValue(run.name, f"metrics.jsonl: {name} of the final line", recorded, value)


def _check_hashes(run: CheckedRun) -> Findings:
    """Compare the recorded hash of each file with the file; every file that a figure comes from has one."""
    tests = run.prepared.corpus.tests if run.prepared is not None else ()
    yield from _compare_hashes(run.result, run.folder.hashes(), run.folder.required(tests))


def check_hashes_alone(folder: Path, result: Result) -> Findings:
    """Compare the hashes of a run whose plug-ins are not here: nothing else of it can be computed again.

    Args:
        folder: the folder of the run.
        result: its recorded result.
    """
    files = {name: plain_or_gzip(folder / name) for name in result.files}
    found = {name: hash_decompressed(path) for name, path in files.items() if path.is_file()}
    yield from _compare_hashes(result, found)
    yield Gap(f"all but the hashes of files, and all tables: {plugin_problem(folder)}", result.run)


def _compare_hashes(result: Result, found: Mapping[str, str], required: Iterable[str] = ()) -> Findings:
    """Compare hashes; weights that are not there are no difference: published folders leave them out."""
    recorded = result.files
    for name in sorted({*recorded, *required, *found}):
        if name == WEIGHTS and name in recorded and name not in found:
            yield Gap("the hash of the weights, which are not in the folder", result.run)
        else:
            yield ComparedValue(
                result.run, name, recorded.get(name, "no hash"), found.get(name, "no such file")
            )


def _check_vocabulary(run: CheckedRun) -> Findings:
    """Compare the saved vocabularies with those that the run's training text gives."""
    if run.folder.run.train.init_from is not None:
        yield Gap("vocabularies, which are those of the run that training started from", run.name)
    elif run.prepared is not None:
        recorded = load_pair(run.folder.folder).content_hash
        yield ComparedValue(run.name, "vocabulary", recorded, run.prepared.vocabularies.content_hash)


def _check_selection(run: CheckedRun) -> Findings:
    """Compare grid, choice and weights of selection.json with config, rule and result."""
    penalties = length_penalties(run.folder.run.decode)
    if SELECTION in run.folder.required(()):
        selection = read_selection(run.folder.selection, penalties)  # checks the grid and the rule
        yield ComparedValue(run.name, f"{SELECTION}: weights", selection.weights, run.weights_hash)


def _check_likelihoods(run: CheckedRun) -> Findings:
    """Count the tokens and characters of each test set again, and compare the hash of the weights.

    The log-likelihood itself needs the weights; ``check_weights`` computes it again.
    """
    path, result = run.folder.likelihoods, run.result
    if not path.exists() and result.perplexity is None and result.char_perplexity is None:
        yield Gap("the perplexity of the test sets, which was not measured", run.name)
        return
    likelihoods = read_likelihoods(path)
    yield ComparedValue(run.name, f"{path.name}: weights", likelihoods.weights, run.weights_hash)
    if run.prepared is None:
        return
    for test in likelihoods.tests.keys() & set(run.prepared.corpus.tests):
        references = run.prepared.corpus.splits[test].tgt
        ids = run.prepared.vocabularies.tgt.encode_all(references)
        counts = {
            "tokens": sum(map(len, ids)) + len(ids),
            "characters": count_characters(run.folder.run.readable(references)),
            "unknown": sum(sentence.count(UNK) for sentence in ids),
        }
        for key, value in counts.items():
            recorded = getattr(likelihoods.tests[test], key)
            yield ComparedValue(run.name, f"{path.name}: {key} of {test}", recorded, value)
        if (sentences := likelihoods.sentences.get(test)) is not None:
            total, rounding = -math.fsum(sentences), 1e-4 * len(ids)
            context = f"{path.name}: sum over the sentences of {test}"
            yield ComparedValue(run.name, context, likelihoods.tests[test].nll, total, absolute=rounding)
            yield ComparedValue(run.name, f"{path.name}: sentences of {test}", len(sentences), len(ids))


def _check_external(run: CheckedRun) -> Findings:
    """Compare the translations that external metrics have scored with those that are there."""
    for test, metrics in read_external(run.folder.external).items():
        output = run.folder.output(test)
        found = hash_decompressed(output) if output.is_file() else "no such file"
        for name, scores in metrics.items():
            context = f"{run.folder.external.name}: {name} of {test}: translations"
            yield ComparedValue(run.name, context, scores.translations, found)
            yield Gap(f"the segment scores of {name}, an external metric: only their mean", run.name)


Check = Callable[[CheckedRun], Findings]
"""Check of one run."""
INVARIANTS: tuple[tuple[str, bool, Check], ...] = (
    ("status", False, _check_status),
    ("metrics.jsonl", False, _check_log),
    ("metrics.jsonl: final line", False, _check_choice),
    ("hashes", True, _check_hashes),
    ("vocabulary", True, _check_vocabulary),
    (SELECTION, True, _check_selection),
    ("perplexity.json", True, _check_likelihoods),
    ("external.json", True, _check_external),
)
"""The subject, which is named where files cannot be read; whether the run must be done; and the check."""


# Invariants of the whole experiment.


def check_published_settings(path: Path, runs: Sequence[CheckedRun]) -> Findings:
    """Compare the settings of every model's run with those of experiment.toml, which people run.

    Its sections are those of one run: settings in which rows may differ are left out.
    """
    published = {
        run.label: run.settings()
        for run in resolve_models(load_experiment(path), str(path), other_machine=True)
    }
    for run in (each.folder.run for each in runs if not each.folder.run.is_external):
        written = published.get(run.label, {})
        other = [
            f"{name} = {written.get(name)}, not {value}"
            for name, value in run.settings().items()
            if (name in SHARED or name not in SETTINGS)  # those of a model too
            and not _means_the_same(written.get(name), value)
        ]
        yield ComparedValue(path.name, run.name, "; ".join(other) or "as the run", "as the run")


def _means_the_same(written: Any, value: Any) -> bool:
    """Compare two settings; files of attention masks by their names, as they are in folders of their own."""
    paths = isinstance(value, str) and value.endswith(".npy") and isinstance(written, str)
    return bool(Path(written).name == Path(value).name if paths else written == value)


def check_experiment_files(
    registry: Registry, runs: Sequence[CheckedRun], present: Sequence[str]
) -> Findings:
    """Compare experiment.json with the folders of runs, the seeds asked for, and the data.

    Args:
        registry: the content of experiment.json.
        runs: the runs that are there and can be read.
        present: names of all runs that are there.
    """
    listed = registry.runs
    asked = [run_name(label, seed) for label, seeds in registry.asked_seeds.items() for seed in seeds]
    for name in dict.fromkeys([*asked, *listed, *present]):
        recorded = "listed" if name in listed else "not listed"
        expected = "listed" if name in present else "no such folder"
        if name in asked and name not in listed:
            expected = "asked for"
        yield ComparedValue(REGISTRY, f"runs, {name}", recorded, expected)
    for run in runs:
        found = "asked for" if run.name in asked else "not asked for"
        yield ComparedValue(REGISTRY, f"asked_seeds, {run.name}", found, "asked for")
        hashes = {"settings_hash": settings_hash(run.folder.run)}
        if run.prepared is not None:
            hashes["data_hash"] = run.prepared.corpus.content_hash
            hashes["vocabulary_hash"] = run.prepared.vocabularies.content_hash
        for key, value in hashes.items():
            yield ComparedValue(REGISTRY, f"{key} of {run.name}", getattr(registry, key), value)
