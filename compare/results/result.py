"""Result record of one run.

An unknown figure (not measured, or the run failed before it) is None, never 0.
"""

import json
import math
import re
from collections import abc
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from compare.config.sections import run_name
from compare.system.hints import abbreviate
from data.text.files import parse_json

FILE_IN_RUN = re.compile(r"(?!/)[^\x00-\x1f\x7f\\:]{1,200}")
"""Path in a run's folder, relative, with / between folders."""
SHA256 = re.compile("[0-9a-f]{64}")
Status = Literal["done", "failed", "unfinished"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one run; units are part of the names, and ``compare.results.columns`` explains the fields."""

    # Identity and outcome.
    label: str
    preset: str
    seed: int
    status: Status
    reason: str | None = None
    """Cause of a failure, in one line."""

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

    # Quality on the first test set, 0 to 100, as in ``compare.scoring.score.SystemScores``.
    bleu: float | None = None
    bleu_ci_low: float | None = None
    bleu_ci_high: float | None = None
    chrf: float | None = None
    ter: float | None = None
    length_ratio: float | None = None
    bleu_signature: str | None = None
    tests: Mapping[str, Mapping[str, float | str | None]] = field(default_factory=dict)
    """Score columns of each further test set by its name; column ``bleu_test_long`` in a frame."""
    scores: Mapping[str, float | str | None] = field(default_factory=dict)
    """Score columns, as in ``tests``, of metrics without a field above; left out of JSON where empty."""

    # Speed: tokens are source without EOS + target with EOS, without padding; latency is of batch size 1.
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
    """Joules of CPU and GPU in training; None where they cannot be read."""

    # Seconds of each activity.
    data_s: float | None = None
    train_s: float | None = None
    validation_s: float | None = None
    checkpoint_s: float | None = None
    decode_s: float | None = None

    # Conditions.
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
    """Quantity made equal over the models: params, flops or time; None: only the batches are equal."""
    budget_off: float | None = None
    """Relative deviation from that budget; positive: above it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """sha256 of each file that the figures come from, by its path in the run's folder."""

    def __post_init__(self) -> None:
        """Reject an unknown status."""
        if self.status not in get_args(Status):
            raise ValueError(f"status is {self.status!r}, not one of {', '.join(get_args(Status))}")

    @property
    def run(self) -> str:
        """Name of the run's folder."""
        return run_name(self.label, self.seed)

    def to_json(self, indent: int | None = 2) -> str:
        """Format as one JSON object; NaN and infinity become null."""
        record = without_nan(asdict(self))
        if not self.scores:
            del record["scores"]  # as written by versions without that field
        return json.dumps(record, indent=indent, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, source: str | Path = "result.json") -> "Result":
        """Parse the output of ``to_json``.

        Args:
            text: JSON.
            source: file to name in error messages.

        Raises:
            ValueError: ``text`` is not a result.
        """
        try:
            record = parse_json(text)
        except ValueError as error:  # of JSON or of UTF-8
            raise ValueError(f"{source}: not a result row: {error}") from None
        _check(record, source)
        return cls(**record)

    def flat(self) -> dict[str, Any]:
        """Return one value per column, without hashes of files; score s of further test set t is ``s_t``.

        Raises:
            ValueError: two values have the same column name.
        """
        row = asdict(self)
        del row["files"]
        tests = row.pop("tests")
        for name, value in row.pop("scores").items():
            if name in row:
                raise ValueError(f"a metric cannot have the column {name!r}: it is a field already")
            row[name] = value
        for test, scores in tests.items():
            for name, value in scores.items():
                if f"{name}_{test}" in row:
                    raise ValueError(
                        f"a test set cannot be called {test!r}: {name}_{test} is a field already"
                    )
                row[f"{name}_{test}"] = value
        return row


def without_nan(value: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, by None at any depth of ``value``."""
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _check(record: Any, source: str | Path) -> None:
    """Reject a record that ``Result.to_json`` cannot have written."""
    if not isinstance(record, dict):
        raise ValueError(f"{source}: expected one JSON object, found {type(record).__name__}")
    types = {item.name: item.type for item in fields(Result)}
    if unknown := sorted(record.keys() - types.keys()):
        raise ValueError(f"{source}: unknown key {abbreviate(unknown[0])}")
    required = [item.name for item in fields(Result) if item.default is item.default_factory is MISSING]
    if missing := [name for name in required if name not in record]:  # earlier versions had fewer figures
        raise ValueError(f"{source}: key {missing[0]!r} is missing")
    if wrong := [name for name, value in record.items() if not _fits(value, types[name])]:
        raise ValueError(f"{source}: {wrong[0]} cannot be {abbreviate(record[wrong[0]])}")
    _check_names(record, source)
    if record.get("budget") is not None and record.get("budget_off") is None:
        raise ValueError(f"{source}: budget is {abbreviate(record['budget'])} but budget_off is missing")
    for test, scores in record.get("tests", {}).items():
        for name, value in scores.items():
            if name in types and not _fits(value, types[name]):
                raise ValueError(
                    f"{source}: {abbreviate(name)} of {abbreviate(test)} cannot be {abbreviate(value)}"
                )


def _check_names(record: Mapping[str, Any], source: str | Path) -> None:
    """Reject names that lead out of the run's folder or cannot be drawn, and hashes that are none."""
    if not record["label"] or set("/\\\0") & set(record["label"]) or record["label"].startswith("."):
        raise ValueError(f"{source}: label {abbreviate(record['label'])} cannot name a folder")
    names = [*record.get("scores", {}), *record.get("tests", {})]
    names += [name for scores in record.get("tests", {}).values() for name in scores]
    for name in [record["label"], record["preset"], *names]:
        if not name.isprintable():
            raise ValueError(f"{source}: {abbreviate(name)} has characters that cannot be printed")
    for path, digest in record.get("files", {}).items():
        if not FILE_IN_RUN.fullmatch(path) or ".." in path.split("/"):
            raise ValueError(f"{source}: files names {abbreviate(path)}, which is no file of a run")
        if not SHA256.fullmatch(digest):
            raise ValueError(f"{source}: files[{path!r}] is {abbreviate(digest)}, not a sha256")


def _fits(value: Any, annotation: Any) -> bool:
    """Return whether a value from JSON matches a field's annotation; an integer is a valid float."""
    if get_origin(annotation) is abc.Mapping:
        inner = get_args(annotation)[1]
        return isinstance(value, dict) and all(_fits(item, inner) for item in value.values())
    if get_origin(annotation) is Literal:
        return value in get_args(annotation)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return False  # beyond the 64 bits of a data frame's column
    kinds = get_args(annotation) or (annotation,)
    return not isinstance(value, bool) and isinstance(value, kinds + (int,) * (float in kinds))
