"""An experiment of any size made by script: every file that a report reads but the weights."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compare.attention.viewer import AttendedModel, AttendedSentence, AttentionViewer
from compare.config.parse import load_experiment
from compare.experiment.prepare import load_corpus
from compare.results.store import Result, read_result, save_result
from compare.scoring import score_texts
from data.vocabulary import build_pair
from tests.conftest import WORDS, write_corpus

CONFIG = """
[data]
root = "{root}"
[vocabulary]
kind = "words"
[train]
seed = {seed}
[[models]]
preset = "{preset}"
label = "{label}"
dropout = 0.{place}
"""
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


def write_experiment(
    folder: Path,
    labels: Sequence[str] = ("lstm", "rnn", "transformer"),
    seeds: Sequence[int] = (1, 2),
    sentences: int = 24,
    validations: int = 4,
) -> Path:
    """Write the runs of ``labels``, each better than the one before, and return their folder.

    The corpus lies beside them in <folder>-corpus.
    """
    root = folder.with_name(f"{folder.name}-corpus")
    write_corpus(root, {"train": 60, "valid": 6, "test": sentences, "test_long": sentences})
    for place, label in enumerate(labels):
        for seed in seeds:
            _write_run(folder / f"{label}-seed{seed}", label, seed, root, place, len(labels), validations)
    names = [f"{label}-seed{seed}" for label in labels for seed in seeds]
    (folder / "experiment.json").write_text(json.dumps({"runs": names}))
    return folder


def _write_run(
    place: Path, label: str, seed: int, root: Path, rank: int, models: int, validations: int
) -> None:
    place.mkdir(parents=True)
    preset = label if label in ("rnn", "transformer") else "lstm"
    config = CONFIG.format(root=root.as_posix(), seed=seed, preset=preset, label=label, place=rank)
    (place / "config.toml").write_text(config)
    corpus = load_corpus(load_experiment(place / "config.toml").data)
    train = corpus.splits["train"]
    build_pair(train, kind="words", size=100, joint=False, min_count=1).save(place)
    rng, scores = random.Random(f"{rank} {seed}"), {}
    for test in corpus.tests:
        lines = [_spoil(line, rng, (rank + 1) / (models + 1)) for line in corpus.splits[test].tgt]
        (place / f"{test}.hyp").write_text("".join(f"{line}\n" for line in lines))
        scores[test] = score_texts(lines, corpus.splits[test].tgt, n_bootstrap=50).columns()
    headline, further = scores["test"], {"test_long": scores["test_long"]}
    known = {name: value for name, value in headline.items() if name in Result.__dataclass_fields__}
    updates = [10 * (number + 1) for number in range(validations)]
    (place / "metrics.jsonl").write_text("".join(f"{line}\n" for line in _log(updates, known["bleu"], rank)))
    result = Result(
        label=label,
        preset=preset,
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
        **known,
    )
    save_result(place, result)


def _spoil(line: str, rng: random.Random, share: float) -> str:
    """``line`` with each word kept by a chance of ``share``."""
    return " ".join(
        word if rng.random() < share else rng.choice(list(WORDS.values())) for word in line.split()
    )


def _log(updates: Sequence[int], bleu: float, rank: int) -> list[str]:
    lines: list[dict[str, Any]] = []
    for number, update in enumerate(updates, start=1):
        share, seconds = number / len(updates), number * (rank + 1.0)
        line = {"kind": "train", "update": update, "updates": 1, "src_tokens": 100, "tgt_tokens": 90}
        lines.append(line | {"tokens_per_s": 95.0, "data_s": 0.5, "train_s": 1.5})
        found = {"loss": 5 - 4 * share, "bleu": bleu * share}
        lines.append({"kind": "valid", "update": update, "seconds": seconds, **found})
    return [json.dumps(line) for line in lines]


def change_result(folder: Path, run: str, **changes: Any) -> None:
    """Rewrite some fields of a run's row."""
    save_result(folder / run, replace(read_result(folder / run), **changes))
