"""Read an experiment for its report, even where its texts are missing or have changed."""

from dataclasses import dataclass
from pathlib import Path

from compare.analysis.finished_experiment import (
    NO_TRANSLATIONS,
    FinishedExperiment,
    FinishedRun,
    failed_among,
    load_finished,
)
from compare.config.sections import DataConfig
from compare.experiment.task import task_of
from compare.results.columns import further_tests
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_results
from compare.system.messages import explain
from data.corpus import Corpus, Pairs


@dataclass(frozen=True, kw_only=True)
class LoadedExperiment:
    """Results of an experiment and the files of its finished runs."""

    rows: tuple[Result, ...]
    """Results of all runs, failed and unfinished ones included."""
    finished: FinishedExperiment
    """Finished runs; without texts, the test sets are empty and the runs have no outputs."""
    no_texts: str | None = None
    """Reason why corpus or translations cannot be read; None if they can."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in the order of the table."""
        return tuple(dict.fromkeys(row.label for row in self.rows))


def load_for_report(folder: Path, *, data_root: str = "") -> LoadedExperiment:
    """Read an experiment's folder, and its corpus where it is still there.

    Args:
        folder: the folder.
        data_root: the folder of the corpus, which must then be readable; empty: that of the config.

    Raises:
        OSError: ``data_root`` cannot be read.
        ValueError: no finished run, a result or its settings cannot be read, or ``data_root`` is not the
            corpus of the runs.
    """
    rows = tuple(read_results(folder))
    done = [result for result in rows if result.status == "done"]
    if not done:
        raise ValueError(f"{folder} holds no finished run: run the experiment to its end first")
    without_texts = _without_texts(folder, done, failed_among(rows))
    if not all(task_of(run.run).translates for run in without_texts.runs):
        return LoadedExperiment(rows=rows, finished=without_texts, no_texts=f"These are {NO_TRANSLATIONS}.")
    try:
        finished = load_finished(folder, data_root=data_root)
    except (OSError, ValueError) as error:
        if data_root:
            raise
        return LoadedExperiment(rows=rows, finished=without_texts, no_texts=explain(error))
    return LoadedExperiment(rows=rows, finished=finished)


def _without_texts(folder: Path, done: list[Result], failed: tuple[Result, ...]) -> FinishedExperiment:
    """Return what can be read from the run folders without corpus and translations."""
    folders = [RunFolder.read(folder / result.run) for result in done]
    runs = tuple(
        FinishedRun(result=result, folder=run.folder, run=run.run, outputs={})
        for result, run in zip(done, folders, strict=True)
    )
    first, *_ = folders
    further = further_tests(done[0].flat())
    corpus = _empty_corpus(first.run.data, first.tests or ["test", *further])
    return FinishedExperiment(folder=folder, corpus=corpus, runs=runs, failed=failed)


def _empty_corpus(data: DataConfig, tests: list[str]) -> Corpus:
    """Return a corpus with the names of the test sets and no sentences."""
    return Corpus(
        name=Path(data.root).name or "embedded",
        src_lang=data.src,
        tgt_lang=data.tgt,
        splits={test: Pairs((), ()) for test in tests},
    )
