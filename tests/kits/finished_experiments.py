"""Finished experiments made by hand: texts and translations without any training."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.config.parse import load_experiment
from compare.results.store import Result
from data.corpus import Corpus, Pairs
from data.vocabulary import build_pair

Outputs = Mapping[tuple[str, int], Mapping[str, Sequence[str]]]
"""Translations by label and seed, then by test set."""

CONFIG = """
[data]
max_tokens = {max_tokens}
[decode]
max_ratio = {max_ratio}
[[models]]
preset = "lstm"
label = "{label}"
"""


def pairs(*lines: tuple[str, str]) -> Pairs:
    """Sentence pairs from source and target of each."""
    return Pairs(tuple(src for src, _ in lines), tuple(tgt for _, tgt in lines))


def make_finished(
    folder: Path,
    *,
    train: Pairs,
    tests: Mapping[str, Pairs],
    outputs: Outputs,
    kind: str = "words",
    size: int = 10_000,
    max_tokens: int = 100,
    max_ratio: float = 2.0,
    results: Mapping[tuple[str, int], Mapping[str, Any]] | None = None,
) -> FinishedExperiment:
    """An experiment on ``train`` and ``tests``; ``results`` are figures of some of its runs."""
    corpus = Corpus(
        name="made", src_lang="en", tgt_lang="de", splits={"train": train, "valid": train, **tests}
    )
    vocabularies = build_pair(train, kind=kind, size=size, joint=False)
    runs = []
    for (label, seed), translated in outputs.items():
        place = folder / f"{label}-seed{seed}"
        vocabularies.save(place)
        config = CONFIG.format(max_tokens=max_tokens, max_ratio=max_ratio, label=label)
        (place / "config.toml").write_text(config)
        experiment = load_experiment(place / "config.toml")
        figures = (results or {}).get((label, seed), {})
        result = Result(label=label, preset="lstm", seed=seed, status="done", **figures)
        texts = {test: tuple(lines) for test, lines in translated.items()}
        runs.append(FinishedRun(result=result, folder=place, experiment=experiment, outputs=texts))
    return FinishedExperiment(folder=folder, corpus=corpus, runs=tuple(runs))


def write_metrics(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write ``lines`` as a run's metrics.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
