"""Finished experiments as the analyses read them: results, translations and corpus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from compare.analysis.seeds import seed_mean
from compare.config.sections import ScoringConfig
from compare.experiment.prepare import load_corpus
from compare.models.styles import Style, styles_of
from compare.results.columns import further_tests
from compare.results.records import read_speed
from compare.results.run_folder import RunFolder
from compare.results.store import Result, are_trials, of_budget, read_results
from compare.scoring import outcome_tests
from compare.system.messages import explain
from compare.system.timer import Speed
from data.corpus import Corpus, Pairs
from data.text import read_lines

OWN_COPY = "point to your copy of the corpus with --set data.root=FOLDER"
"""Remedy for a missing or different corpus."""


@dataclass(frozen=True, kw_only=True)
class FinishedRun(RunFolder):
    """Folder, result and translations of a finished run."""

    result: Result
    outputs: Mapping[str, tuple[str, ...]]
    """Translations by test set, line by line; empty without texts."""

    @property
    def names(self) -> dict[str, Any]:
        """Label and seed, the first columns of tables."""
        return {"label": self.result.label, "seed": self.result.seed}


@dataclass(frozen=True, kw_only=True)
class FinishedExperiment:
    """An experiment with at least one finished run."""

    folder: Path
    corpus: Corpus
    """Without texts, its test sets are empty."""
    runs: tuple[FinishedRun, ...]
    """Finished runs, in the order of the table."""
    results: tuple[Result, ...]
    """Results of all runs, failed and unfinished ones included."""
    budgets: tuple[int, ...] = ()
    """Budgets with a finished run, rising."""
    no_texts: str = ""
    """Reason why corpus or translations cannot be read; empty if they can."""

    @property
    def trained(self) -> "FinishedExperiment":
        """The experiment without external systems."""
        return replace(self, runs=tuple(run for run in self.runs if not run.run.is_external))

    @property
    def budget(self) -> int | None:
        """Budget of these runs; None unless the experiment has several."""
        return max(run.result.budget or 0 for run in self.runs) if len(self.budgets) > 1 else None

    @property
    def is_largest_budget(self) -> bool:
        """True at the largest of several budgets, where the outcome covers them all."""
        return self.budget is not None and self.budget == self.budgets[-1]

    def at_budget(self, budget: int) -> "FinishedExperiment":
        """Return this experiment at one of its budgets."""
        other = load_runs(self.folder, budget=budget)
        if not self.no_texts:
            runs = tuple(replace(run, outputs=_outputs(run, self.corpus)) for run in other.runs)
            other = replace(other, runs=runs)
        return replace(other, corpus=self.corpus, no_texts=self.no_texts)

    @property
    def failed_seeds(self) -> dict[str, list[int]]:
        """Failed seeds by label."""
        seeds: dict[str, list[int]] = {}
        for result in self.results:
            if result.status == "failed":
                seeds.setdefault(result.label, []).append(result.seed)
        return seeds

    @property
    def scoring(self) -> ScoringConfig:
        """Settings of the scores, which all runs share."""
        return self.runs[0].run.scoring

    @property
    def planned_pairs(self) -> list[tuple[str, str]]:
        """Pairs of models to test: each with the baseline and those of ``scoring.pairs``, or else all."""
        labels, scoring = [*self.labels], self.scoring
        if not scoring.baseline:
            return [(first, second) for second, first in combinations(labels, 2)]
        further = [pair for pair in scoring.pairs if {*pair} <= {*labels}]
        return [(label, scoring.baseline) for label in labels if label != scoring.baseline] + further

    @property
    def outcome_name(self) -> str:
        """Name of the decisive test set, or "the mean of 3 test sets"."""
        names = outcome_tests(self.scoring.outcome, self.corpus.tests)
        return names[0] if len(names) == 1 else f"the mean of {len(names)} test sets"

    def outcome_bleu(self, result: Result) -> float | None:
        """Return the decisive BLEU of a result, or None."""
        first, *_ = tests = self.corpus.tests
        scores: dict[str, Any] = {test: figures.get("bleu") for test, figures in result.tests.items()}
        scores[first] = result.bleu
        bleu: float | None = seed_mean(
            [scores.get(test) for test in outcome_tests(self.scoring.outcome, tests)]
        )
        return bleu

    def sources(self, split: str) -> Sequence[str]:
        """Return the source sentences of a split as people read them."""
        return self.runs[0].run.readable(self.corpus.splits[split].src)

    def references(self, split: str) -> Sequence[str]:
        """Return the target sentences of a split as people read them."""
        return self.runs[0].run.readable(self.corpus.splits[split].tgt)

    @property
    def labels(self) -> dict[str, list[FinishedRun]]:
        """Finished runs by label."""
        runs_by_label: dict[str, list[FinishedRun]] = {}
        for run in self.runs:
            runs_by_label.setdefault(run.result.label, []).append(run)
        return runs_by_label

    @property
    def styles(self) -> dict[str, Style]:
        """Styles of the models in pictures, by label."""
        return styles_of({label: runs[0].run.model.architecture for label, runs in self.labels.items()})


def load_runs(folder: str | Path, *, data_root: str = "", budget: int | None = None) -> FinishedExperiment:
    """Read the results of an experiment and the settings of its finished runs, but no texts.

    An empty ``data_root`` means that of the config; ``budget`` is that of ``of_budget``. Raises ValueError if
    no run is finished or a file is damaged.
    """
    folder = Path(folder)
    every = read_results(folder)
    results = tuple(of_budget(every, budget))
    done = [result for result in results if result.status == "done"]
    if not done:
        raise ValueError(f"{folder} has no finished run: run the experiment first")
    runs = []
    for result in done:
        read = RunFolder.read(folder / result.run, data_root=data_root)
        runs.append(FinishedRun(run=read.run, folder=read.folder, result=result, outputs={}))
    first, data = runs[0], runs[0].run.data
    corpus = Corpus(
        name=Path(data.root).name or "embedded",
        src_lang=data.src,
        tgt_lang=data.tgt,
        splits={test: Pairs((), ()) for test in first.tests or ["test", *further_tests(done[0].flat())]},
    )
    budgets = sorted({run.budget for run in every if run.budget and run.status == "done"})
    return FinishedExperiment(
        folder=folder, corpus=corpus, runs=tuple(runs), results=results, budgets=tuple(budgets)
    )


def load_finished(
    folder: str | Path, *, data_root: str = "", needs_texts: bool = True, budget: int | None = None
) -> FinishedExperiment:
    """Read results, settings and translations of the finished runs, and the corpus.

    Args:
        folder: the folder of the experiment, also a published one.
        data_root: the folder of the corpus, which must then be readable; empty: that of the config.
        needs_texts: whether corpus and translations must be readable; if not, ``no_texts`` has the reason.
        budget: one of several budgets, as for ``of_budget``.

    Raises:
        OSError: corpus or translations cannot be read.
        ValueError: no run is finished, the runs are of language models or of a search, or the corpus or the
            translations are not those of the runs.
    """
    finished = load_runs(folder, data_root=data_root, budget=budget)
    reason = ""
    if not all(run.run.translates for run in finished.runs):
        reason = f"{folder} has language models: they have perplexities, but no translations"
    elif are_trials(finished.results):
        reason = f"{folder} is a search, whose trials do not translate test sets: run its best.toml"
    if reason:
        if needs_texts:
            raise ValueError(reason)
        return replace(finished, no_texts=f"{reason}.")
    try:
        corpus = _corpus_of(finished.runs)
        runs = tuple(replace(run, outputs=_outputs(run, corpus)) for run in finished.runs)
        return replace(finished, corpus=corpus, runs=runs)
    except (OSError, ValueError) as error:
        if needs_texts or data_root:
            raise
        return replace(finished, no_texts=explain(error))


def _corpus_of(runs: Sequence[FinishedRun]) -> Corpus:
    roots = [run.run.data for run in runs]
    data = next((root for root in roots if Path(root.root).is_dir()), roots[0])  # the corpus may have moved
    try:
        corpus = load_corpus(data)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; {OWN_COPY}") from None
    for run in runs:
        recorded = run.result.data_hash
        if recorded is not None and recorded != corpus.content_hash:
            raise ValueError(
                f"{data.root or 'built in'}: the corpus is not that of the runs (sha256 "
                f"{corpus.content_hash[:12]}, not {recorded[:12]}); {OWN_COPY}"
            )
    return corpus


def _outputs(run: FinishedRun, corpus: Corpus) -> dict[str, tuple[str, ...]]:
    outputs = {}
    for test in corpus.tests:
        path = run.output(test)
        lines = read_lines(path, allow_blank=True)
        if len(lines) != len(corpus.splits[test].src):
            raise ValueError(
                f"{path} has {len(lines)} lines, but {test} has {len(corpus.splits[test].src)} sentences: "
                "restore the file"
            )
        outputs[test] = lines
    return outputs


# Spread of a model's speed over the timed repeats: smaller differences mean nothing.


class Spread(NamedTuple):
    """Lowest and highest value."""

    low: float
    high: float

    def is_above(self, other: "Spread") -> bool:
        """Return whether all values are higher than those of ``other``."""
        return self.low > other.high


def timed_spread(runs: Sequence[FinishedRun], speed: str) -> Spread | None:
    """Return the spread of a speed over all repeats of a model, if it was timed in turn."""
    lows, highs = ([getattr(run.result, f"{speed}_{end}") for run in runs] for end in ("low", "high"))
    return None if None in (*lows, *highs) else Spread(min(lows), max(highs))


def speed_ratios(one: Sequence[FinishedRun], other: Sequence[FinishedRun]) -> dict[str, list[float]]:
    """Compute, by phase and round, how many times as fast a model is as another.

    Phases with fewer than two rounds are left out, as are models that did not take turns.
    """
    paths = one[0].speed, other[0].speed
    if not are_timed_together([*one, *other]) or not all(path.is_file() for path in paths):
        return {}
    first, second = (read_speed(path).timings for path in paths)
    ratios = {}
    for phase in ("train", "greedy", "beam"):
        speeds: list[Speed | None] = [getattr(timings, phase, None) for timings in (first, second)]
        rates = [[speed.sentences / seconds for seconds in speed.seconds] for speed in speeds if speed]
        if len(rates) == 2 and len(rates[0]) > 1:
            ratios[phase] = [a / b for a, b in zip(*rates, strict=True)]
    return ratios


def are_timed_together(runs: Sequence[FinishedRun]) -> bool:
    """Return whether models were timed in turn, so that their speeds compare."""
    ids = {run.result.timed_together for run in runs}
    return len(ids) == 1 and None not in ids
