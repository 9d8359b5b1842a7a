"""What a finished experiment left: its rows, what each translated, and the corpus it was tested on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compare.config.run import Run
from compare.experiment.prepare import load_corpus
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_results
from data.corpus import Corpus
from data.text.lines import read_lines


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """One row with its translations."""

    result: Result
    folder: Path
    run: Run
    """All settings."""
    outputs: Mapping[str, tuple[str, ...]]
    """The translations of each test set, by its name."""


@dataclass(frozen=True, kw_only=True)
class FinishedExperiment:
    """The finished runs of an experiment, in the order of its table."""

    folder: Path
    corpus: Corpus
    runs: tuple[FinishedRun, ...]

    @property
    def labels(self) -> dict[str, list[FinishedRun]]:
        """The runs of each label, one a seed."""
        found: dict[str, list[FinishedRun]] = {}
        for run in self.runs:
            found.setdefault(run.result.label, []).append(run)
        return found

    @property
    def named(self) -> dict[str, FinishedRun]:
        """The runs by label, or by the name of their folders where there are several seeds."""
        several = len({run.result.seed for run in self.runs}) > 1
        return {run.folder.name if several else run.result.label: run for run in self.runs}


def load_finished(folder: Path) -> FinishedExperiment:
    """Read the finished runs of an experiment's folder, and its corpus again from where it was.

    Raises:
        ValueError: no finished run, or translations that do not fit the test sets.
    """
    done = [row for row in read_results(folder) if row.status == "done"]
    if not done:
        raise ValueError(f"{folder} holds no finished run: run the experiment to its end first")
    places = [folder / row.run for row in done]
    settings = [RunFolder.read(place).run for place in places]
    corpus = load_corpus(settings[0].data)
    runs = tuple(
        FinishedRun(result=row, folder=place, run=run, outputs=_outputs(place, corpus))
        for row, place, run in zip(done, places, settings, strict=True)
    )
    return FinishedExperiment(folder=folder, corpus=corpus, runs=runs)


def _outputs(place: Path, corpus: Corpus) -> dict[str, tuple[str, ...]]:
    """The translations of every test set; an empty line is one that the model ended at once."""
    found = {}
    for test in corpus.tests:
        path = place / f"{test}.hyp"
        lines = read_lines(path, allow_blank=True)
        if len(lines) != len(corpus.splits[test].src):
            raise ValueError(
                f"{path} has {len(lines)} lines, but {test} {len(corpus.splits[test].src)}: "
                "data.root has changed since"
            )
        found[test] = lines
    return found
