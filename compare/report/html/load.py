"""Read an experiment for its report; where its texts are gone or others, the rest is shown all the same."""

from dataclasses import dataclass
from pathlib import Path

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, load_finished
from compare.config.sections import DataConfig
from compare.report.html.parts import explain
from compare.results.run_folder import RunFolder
from compare.results.store import Result, read_results
from data.corpus import Corpus, Pairs


@dataclass(frozen=True, kw_only=True)
class LoadedExperiment:
    """Every row of an experiment, and what its finished runs left."""

    rows: tuple[Result, ...]
    """Failed and unfinished ones too."""
    finished: FinishedExperiment
    """Without texts, its test sets are empty and its runs have no outputs."""
    no_texts: str | None = None
    """Why corpus or translations cannot be read."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label, in the order of the table."""
        return tuple(dict.fromkeys(row.label for row in self.rows))


def load_for_report(folder: Path) -> LoadedExperiment:
    """Read an experiment's folder, and its corpus if that is where it was.

    Raises:
        ValueError: no finished run, or a result or its settings cannot be read.
    """
    rows = tuple(read_results(folder))
    done = [row for row in rows if row.status == "done"]
    if not done:
        raise ValueError(f"{folder} holds no finished run: run the experiment to its end first")
    bare = _without_texts(folder, done)
    try:
        finished = load_finished(folder)
    except (OSError, ValueError) as error:
        return LoadedExperiment(rows=rows, finished=bare, no_texts=explain(error))
    trained_on, found = done[0].data_hash, finished.corpus.content_hash
    if trained_on is not None and trained_on != found:
        changed = f"the corpus is another than that of the runs (data {trained_on[:12]}, now {found[:12]})."
        return LoadedExperiment(rows=rows, finished=bare, no_texts=changed)
    return LoadedExperiment(rows=rows, finished=finished)


def _without_texts(folder: Path, done: list[Result]) -> FinishedExperiment:
    """What the run folders alone say."""
    places = [folder / row.run for row in done]
    runs = tuple(
        FinishedRun(result=row, folder=place, run=RunFolder.read(place).run, outputs={})
        for row, place in zip(done, places, strict=True)
    )
    first = runs[0]
    tests = sorted(path.stem for path in first.folder.glob("*.hyp")) or ["test"]
    return FinishedExperiment(folder=folder, corpus=_empty_corpus(first.run.data, tests), runs=runs)


def _empty_corpus(data: DataConfig, tests: list[str]) -> Corpus:
    return Corpus(
        name=Path(data.root).name or "embedded",
        src_lang=data.src,
        tgt_lang=data.tgt,
        splits={test: Pairs((), ()) for test in tests},
    )
