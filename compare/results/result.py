"""What a run has to say for itself: one ``Result``, a row of the comparison.

A figure that is not known (not measured, or the run failed before it) is None, never 0.
"""

import json
import math
from collections import abc
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from compare.config.sections import run_name
from compare.system.hints import abbreviate
from data.text.files import parse_json

Status = Literal["done", "failed", "unfinished"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One row of a comparison; units stand in the names, scores are 0 to 100."""

    # Which run, and how it ended.
    label: str
    preset: str
    seed: int
    status: Status
    reason: str | None = None
    """Why a run failed, in one line."""

    # Size.
    params: int | None = None
    params_no_embedding: int | None = None
    train_flops_per_token: float | None = None

    # Training.
    updates: int | None = None
    epochs: float | None = None
    tokens_seen: int | None = None
    best_update: int | None = None
    valid_loss: float | None = None
    valid_perplexity: float | None = None

    # Quality on the test set, as ``compare.scoring.score.Score`` has it.
    bleu: float | None = None
    bleu_ci_low: float | None = None
    bleu_ci_high: float | None = None
    chrf: float | None = None
    ter: float | None = None
    length_ratio: float | None = None
    bleu_signature: str | None = None
    tests: Mapping[str, Mapping[str, float | str | None]] = field(default_factory=dict)
    """The same scores of further test sets by name; column ``bleu_test_long`` in a frame."""

    # Speed: tokens are source without EOS + target with EOS, padding not counted; latency is of batch 1.
    train_tokens_per_s: float | None = None
    train_tgt_tokens_per_s: float | None = None
    train_mfu: float | None = None
    greedy_sentences_per_s: float | None = None
    beam_sentences_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    latency_ms_p50: float | None = None
    latency_ms_p95: float | None = None
    peak_memory_bytes: int | None = None
    energy_j_per_1k_tokens: float | None = None
    """Joules of training by processor and GPU; None where they cannot be read."""

    # Where the time went.
    data_s: float | None = None
    train_s: float | None = None
    validation_s: float | None = None
    checkpoint_s: float | None = None
    decode_s: float | None = None

    # What the figures hold for.
    beam: int | None = None
    batch_tokens: int | None = None
    precision: str | None = None
    device: str | None = None
    torch: str | None = None
    threads: int | None = None
    data_hash: str | None = None
    batch_hash: str | None = None
    config_hash: str | None = None
    code_version: str | None = None
    budget: str | None = None
    """What was made equal over the models: params, flops or time; None: nothing beside the batches."""
    budget_off: float | None = None
    """Share by which the row misses that budget; positive: over it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of each file that the figures come from, by its path in the run's folder."""

    def __post_init__(self) -> None:
        """Reject a status no view would know how to show."""
        if self.status not in get_args(Status):
            raise ValueError(f"status is {self.status!r}, not one of {', '.join(get_args(Status))}")

    @property
    def run(self) -> str:
        """The name of its folder."""
        return run_name(self.label, self.seed)

    def to_json(self, indent: int | None = 2) -> str:
        """The row as one JSON object; a loss of NaN or infinity is no figure and becomes null."""
        return json.dumps(without_nan(asdict(self)), indent=indent, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, source: str | Path = "result.json") -> "Result":
        """Undo ``to_json``; ``source`` is the file to name where ``text`` is no such row."""
        try:
            row = parse_json(text)
        except ValueError as error:  # of JSON or of UTF-8
            raise ValueError(f"{source}: not a result row: {error}") from None
        _check(row, source)
        return cls(**row)

    def flat(self) -> dict[str, Any]:
        """The row without nesting or hashes of files: score s of further test set t becomes ``s_t``."""
        row = asdict(self)
        del row["files"]
        for test, scores in row.pop("tests").items():
            for name, value in scores.items():
                if f"{name}_{test}" in row:
                    raise ValueError(
                        f"a test set cannot be called {test!r}: {name}_{test} is a field already"
                    )
                row[f"{name}_{test}"] = value
        return row


def without_nan(value: Any) -> Any:
    """``value`` with NaN and infinities, which JSON does not know, replaced by None at any depth."""
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _check(row: Any, source: str | Path) -> None:
    """Refuse what ``Result.to_json`` would not have written."""
    if not isinstance(row, dict):
        raise ValueError(f"{source}: expected one JSON object, found {type(row).__name__}")
    types = {item.name: item.type for item in fields(Result)}
    if unknown := sorted(row.keys() - types.keys()):
        raise ValueError(f"{source}: unknown key {abbreviate(unknown[0])}")
    needed = [item.name for item in fields(Result) if item.default is item.default_factory is MISSING]
    if missing := [name for name in needed if name not in row]:  # earlier versions had fewer figures
        raise ValueError(f"{source}: key {missing[0]!r} is missing")
    if wrong := [name for name, value in row.items() if not _fits(value, types[name])]:
        raise ValueError(f"{source}: {wrong[0]} cannot be {abbreviate(row[wrong[0]])}")
    for test, scores in row.get("tests", {}).items():
        for name, value in scores.items():
            if name in types and not _fits(value, types[name]):
                raise ValueError(
                    f"{source}: {abbreviate(name)} of {abbreviate(test)} cannot be {abbreviate(value)}"
                )


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a value read from JSON may stand in a field annotated so; a whole number is a float too."""
    if get_origin(annotation) is abc.Mapping:
        inner = get_args(annotation)[1]
        return isinstance(value, dict) and all(_fits(item, inner) for item in value.values())
    if get_origin(annotation) is Literal:
        return value in get_args(annotation)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return False  # no column of a frame could hold it
    kinds = get_args(annotation) or (annotation,)
    return not isinstance(value, bool) and isinstance(value, kinds + (int,) * (float in kinds))
