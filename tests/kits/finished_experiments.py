"""Finished experiments from given texts and translations, without any training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.results.run_folder import RunFolder
from compare.results.store import Result
from data.corpus import Corpus, Pairs
from data.vocabulary import build_pair

Outputs = Mapping[tuple[str, int], Mapping[str, Sequence[str]]]
"""Translations by label and seed, then by test set."""

CONFIG = """
[data]
max_tokens = 100
[decode]
max_ratio = {max_ratio}
[[models]]
preset = "lstm"
label = "{label}"
"""


def pairs(*lines: tuple[str, str]) -> Pairs:
    """Return sentence pairs from tuples of source and target."""
    return Pairs(tuple(src for src, _ in lines), tuple(tgt for _, tgt in lines))


def make_finished(
    folder: Path,
    *,
    train: Pairs,
    tests: Mapping[str, Pairs],
    outputs: Outputs,
    kind: str = "words",
    size: int = 10_000,
    max_ratio: float = 2.0,
    results: Mapping[tuple[str, int], Mapping[str, Any]] | None = None,
    failed: Sequence[tuple[str, int]] = (),
) -> FinishedExperiment:
    """Return a finished experiment whose run folders hold vocabularies and configs only.

    Args:
        folder: where the run folders are written.
        train: training pairs, which also are the validation pairs.
        tests: test sets by name.
        outputs: translations; their keys are the runs.
        kind: kind of the vocabularies.
        size: size of the vocabularies.
        max_ratio: limit of the output length, relative to the source.
        results: further fields of the results of some runs.
        failed: label and seed of runs that failed.
    """
    corpus = Corpus(
        name="made", src_lang="en", tgt_lang="de", splits={"train": train, "valid": train, **tests}
    )
    vocabularies = build_pair(train, kind=kind, size=size, joint=False)
    runs = []
    for (label, seed), translations in outputs.items():
        run_folder = folder / f"{label}-seed{seed}"
        vocabularies.save(run_folder)
        config = CONFIG.format(max_ratio=max_ratio, label=label)
        (run_folder / "config.toml").write_text(config)
        run = RunFolder.read(run_folder).run
        figures = (results or {}).get((label, seed), {})
        result = Result(label=label, preset="lstm", seed=seed, status="done", **figures)
        texts = {test: tuple(lines) for test, lines in translations.items()}
        runs.append(FinishedRun(result=result, folder=run_folder, run=run, outputs=texts))
    lost = (Result(label=label, preset="lstm", seed=seed, status="failed") for label, seed in failed)
    results_of_all = (*(run.result for run in runs), *lost)
    return FinishedExperiment(folder=folder, corpus=corpus, runs=tuple(runs), results=results_of_all)
