"""Experiments made without training, and edits of their files."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun
from compare.analysis.summary import summarise
from compare.attention.viewer import AttendedModel, AttendedSentence, AttentionViewer
from compare.config.parse import load_experiment
from compare.experiment.prepare import load_corpus
from compare.report.result_table import render_views
from compare.results.run_folder import RunFolder
from compare.results.store import (
    SUMMARY,
    Result,
    read_result,
    read_results,
    save_result,
    stored_summary,
    write_record,
)
from compare.scoring import score_texts
from data.corpus import Corpus, Pairs
from data.vocabulary import build_pair
from tests.conftest import WORDS, write_corpus

Outputs = Mapping[tuple[str, int], Mapping[str, Sequence[str]]]
"""Translations by label and seed, then by test set."""

OUTPUTS_CONFIG = """
[data]
max_tokens = 100
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
    results: Mapping[tuple[str, int], Mapping[str, Any]] | None = None,
    failed: Sequence[tuple[str, int]] = (),
) -> FinishedExperiment:
    """Return a finished experiment whose run folders hold vocabularies and configs only.

    Args:
        folder: where the run folders are written.
        train: training pairs, which also are the validation pairs.
        tests: test sets by name.
        outputs: translations; their keys are the runs.
        results: further fields of the results of some runs.
        failed: label and seed of runs that failed.
    """
    corpus = Corpus(
        name="made", src_lang="en", tgt_lang="de", splits={"train": train, "valid": train, **tests}
    )
    vocabularies = build_pair(train, kind="words", size=10_000, joint=False)
    runs = []
    for (label, seed), translations in outputs.items():
        run_folder = folder / f"{label}-seed{seed}"
        vocabularies.save(run_folder)
        (run_folder / "config.toml").write_text(OUTPUTS_CONFIG.format(label=label))
        run = RunFolder.read(run_folder).run
        figures = (results or {}).get((label, seed), {})
        result = Result(label=label, preset="lstm", seed=seed, status="done", **figures)
        texts = {test: tuple(lines) for test, lines in translations.items()}
        runs.append(FinishedRun(result=result, folder=run_folder, run=run, outputs=texts))
    lost = (Result(label=label, preset="lstm", seed=seed, status="failed") for label, seed in failed)
    results_of_all = (*(run.result for run in runs), *lost)
    return FinishedExperiment(folder=folder, corpus=corpus, runs=tuple(runs), results=results_of_all)


RUN_CONFIG = """
[data]
root = "{root}"
[vocabulary]
kind = "words"
[train]
seed = {seed}
[[models]]
preset = "{label}"
dropout = 0.{rank}
"""
LABELS = ("lstm", "rnn", "transformer")
VIEWER = AttentionViewer(
    models=[
        AttendedModel(name="lstm, seed 1", heads=[], chosen=0),
        AttendedModel(name="rnn, seed 1", heads=["head 1"], chosen=0),
        AttendedModel(name="transformer, seed 1", heads=["layer 1, head 1", "layer 1, mean"], chosen=1),
    ],
    sentences=[
        AttendedSentence(
            number=3,
            src=["red", "dog"],
            tgt=["rot", "Hund", "!"],
            links=[[0, 0], [1, 1]],
            weights=[[], [[97, 3, 4, 96, 50, 50]], [[100, 0, 0, 100, 0, 100], [60, 40, 30, 70, 1, 99]]],
        ),
        AttendedSentence(number=7, src=["tree"], tgt=["Baum"], links=[], weights=[[], [[88]], [[11], [22]]]),
    ],
)
"""Three models of two sentences, the second longer than its source."""


def write_experiment(folder: Path, seeds: Sequence[int] = (1, 2)) -> Path:
    """Write runs of ``LABELS``, each better than the one before, and return their folder.

    The corpus lies beside them in <folder>-corpus.
    """
    root = folder.with_name(f"{folder.name}-corpus")
    write_corpus(root, {"train": 60, "valid": 6, "test": 24, "test_long": 24})
    for rank, label in enumerate(LABELS):
        for seed in seeds:
            _write_run(folder / f"{label}-seed{seed}", label, seed, root, rank)
    names = [f"{label}-seed{seed}" for label in LABELS for seed in seeds]
    (folder / "experiment.json").write_text(json.dumps({"runs": names}))
    return folder


def _write_run(folder: Path, label: str, seed: int, root: Path, rank: int) -> None:
    folder.mkdir(parents=True)
    models, updates = len(LABELS), [10, 20, 30, 40]
    config = RUN_CONFIG.format(root=root.as_posix(), seed=seed, label=label, rank=rank)
    (folder / "config.toml").write_text(config)
    corpus = load_corpus(load_experiment(folder / "config.toml").data)
    train = corpus.splits["train"]
    build_pair(train, kind="words", size=100, joint=False, min_count=1).save(folder)
    rng, scores = random.Random(f"{rank} {seed}"), {}
    for test in corpus.tests:
        lines = [_spoil(line, rng, (rank + 1) / (models + 1)) for line in corpus.splits[test].tgt]
        (folder / f"{test}.hyp").write_text("".join(f"{line}\n" for line in lines))
        scores[test] = score_texts(lines, corpus.splits[test].tgt, n_bootstrap=50).columns()
    headline, further = scores["test"], {"test_long": scores["test_long"]}
    figures = {name: value for name, value in headline.items() if name in Result.__dataclass_fields__}
    (folder / "metrics.jsonl").write_text(
        "".join(f"{line}\n" for line in _log(updates, figures["bleu"], rank))
    )
    result = Result(
        label=label,
        preset=label,
        seed=seed,
        status="done",
        params=1_000_000 * (rank + 1),
        train_flops_per_token=1e6,
        train_tokens_per_s=900.0 * (models - rank) + seed,
        timed_tokens_per_s=1000.0 * (models - rank) + seed,
        beam_sentences_per_s=100.0 * (models - rank) + seed,
        latency_ms_p50=10.0 + rank,
        train_s=60.0 * (rank + 1),
        device="a machine",
        torch="2.0",
        threads=1,
        settings={"train.precision": "fp32"},
        data_hash=corpus.content_hash,
        batch_hash=f"batches of seed {seed}",
        settings_hash="5" * 64,
        code_version="0.1.0+abc",
        files={"checkpoints/final.safetensors": f"{rank:032x}{seed:032x}"},
        tests=further,
        **figures,
    )
    save_result(folder, result)


def _spoil(line: str, rng: random.Random, share: float) -> str:
    """Keep each word of ``line`` with probability ``share``; replace the others."""
    return " ".join(
        word if rng.random() < share else rng.choice(list(WORDS.values())) for word in line.split()
    )


def _log(updates: Sequence[int], bleu: float, rank: int) -> list[str]:
    lines: list[dict[str, Any]] = []
    for number, update in enumerate(updates, start=1):
        share, seconds = number / len(updates), number * (rank + 1.0)
        line = {"kind": "train", "update": update, "updates": 1, "src_tokens": 100, "tgt_tokens": 90}
        lines.append(line | {"tokens_per_s": 95.0, "data_s": 0.5, "train_s": 1.5})
        scores = {"loss": 5 - 4 * share, "bleu": bleu * share}
        lines.append({"kind": "valid", "update": update, "seconds": seconds, **scores})
    return [json.dumps(line) for line in lines]


def change_result(folder: Path, run: str, **changes: Any) -> None:
    """Rewrite some fields of the result of a run."""
    save_result(folder / run, replace(read_result(folder / run), **changes))


def edit_text(path: Path, old: str, new: str) -> None:
    """Replace ``old``, which must be there, by ``new``."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the object in a JSON file in place."""
    content = json.loads(path.read_text(encoding="utf-8"))
    before = json.dumps(content)
    change(content)
    assert json.dumps(content) != before
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def renew_hashes(folder: Path) -> None:
    """Write the hashes of all files that are there, and of the config, into every result of an experiment."""
    for record in sorted(folder.glob("*/result.json")):
        result = read_result(record.parent)
        if result.files:
            run = RunFolder.read(record.parent)
            hashes = {name: digest for name, digest in run.hashes().items() if name in result.files}
            save_result(run.folder, replace(result, files={**result.files, **hashes}))


def renew_views(folder: Path) -> None:
    """Write summary, results.jsonl and tables again, if the results can be read."""
    with suppress(ValueError):
        results = read_results(folder)
        with suppress(OSError):
            write_record(folder / SUMMARY, summarise(folder))
        for name, text in render_views(folder, results, stored_summary(folder, results)).items():
            (folder / name).write_text(text, encoding="utf-8")
