"""Findings of a check, and the runs to check, each with the data that its own config describes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from compare.config.run import Run
from compare.experiment.prepare import PreparedData, prepare_data, training_batches
from compare.results.result import Result
from compare.results.run_folder import RunFolder
from compare.system.log import no_messages
from compare.training.metrics_log import read_metrics
from compare.training.serialization import WEIGHTS
from data.files import hash_file
from data.vocabulary import load_pair


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
        self._found: dict[object, PreparedData | Exception] = {}

    def prepare(self, run: Run, folder: Path) -> PreparedData:
        """Return the data that the sections of ``run`` describe.

        The vocabularies are built again from the training split, unless the run started from the weights of
        another one, whose vocabularies it has.

        Raises:
            ValueError, OSError: the corpus cannot be read or used.
        """
        own = load_pair(folder) if run.train.init_from is not None else None
        settings = (run.data, run.vocabulary, run.task, own.content_hash if own else None)
        corpus = self._once(settings, lambda: prepare_data(run, self._encoded, vocabularies=own))

        def with_batches() -> PreparedData:
            stream = training_batches(corpus.train, corpus.vocabularies, run)
            return replace(corpus, stream=stream, batch_hash=stream.stream_hash(1))

        batches = (settings, run.regularization, run.train.batch_tokens, run.train.seed)
        return self._once(batches, with_batches)

    def _once(self, key: object, make: Callable[[], PreparedData]) -> PreparedData:
        """Return what ``make`` returns, or raise what it raises, when it is first called for ``key``."""
        if key not in self._found:
            try:
                with no_messages(prepare_data.__module__):
                    self._found[key] = make()
            except (ValueError, OSError) as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, Exception):
            raise found
        return found


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
