"""Result record of one run.

An unknown figure (not measured, or the run failed before it) is None, never 0.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from compare.config.sections import is_shared, run_name
from compare.results.columns import FIGURES, of_test

Status = Literal["done", "failed", "unfinished"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one run; columns.toml explains the figures. Units are part of the names."""

    # Identity and outcome.
    label: str
    seed: int
    preset: str
    status: Status
    reason: str | None = None
    warnings: str | None = None

    # Size.
    params: int | None = None
    params_no_embedding: int | None = None
    train_flops_per_token: float | None = None
    budget_off: float | None = None
    budget: str | None = None
    width_multiple: int | None = None

    # Quality on the first test set, 0 to 100.
    bleu: float | None = None
    bleu_ci_low: float | None = None
    bleu_ci_high: float | None = None
    chrf: float | None = None
    ter: float | None = None
    perplexity: float | None = None
    char_perplexity: float | None = None
    length_ratio: float | None = None
    brevity_penalty: float | None = None
    length_penalty: float | None = None
    length_normalization: str | None = None
    bleu_signature: str | None = None
    tests: Mapping[str, Mapping[str, float | str | None]] = field(default_factory=dict)
    scores: Mapping[str, float | str | None] = field(default_factory=dict)

    # Speed: medians, lowest and highest of timed repeats in which all models took turns; and seconds of each
    # activity. Tokens are source without EOS + target with EOS, without padding; latency is of batch size 1.
    # The seeds of a model share the timings of its lowest finished one.
    train_tokens_per_s: float | None = None
    together_tokens_per_s: float | None = None
    together_tokens_per_s_per_device: float | None = None
    processes: int | None = None
    devices: int | None = None
    nodes: int | None = None
    train_tgt_tokens_per_s: float | None = None
    train_mfu: float | None = None
    greedy_sentences_per_s: float | None = None
    beam_sentences_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    latency_ms_p50: float | None = None
    latency_ms_p95: float | None = None
    cpu_share: float | None = None
    train_tokens_per_s_low: float | None = None
    train_tokens_per_s_high: float | None = None
    greedy_sentences_per_s_low: float | None = None
    greedy_sentences_per_s_high: float | None = None
    beam_sentences_per_s_low: float | None = None
    beam_sentences_per_s_high: float | None = None
    latency_ms_p50_low: float | None = None
    latency_ms_p50_high: float | None = None
    peak_memory_bytes: int | None = None
    train_s: float | None = None
    energy_j_per_1k_tokens: float | None = None
    data_s: float | None = None
    validation_s: float | None = None
    checkpoint_s: float | None = None
    decode_s: float | None = None

    # Training.
    updates: int | None = None
    stopped_by: str | None = None
    late_gain: float | None = None
    epochs: float | None = None
    tokens_seen: int | None = None
    best_update: int | None = None
    valid_loss: float | None = None
    valid_perplexity: float | None = None
    init_hash: str | None = None

    # Conditions.
    files: Mapping[str, str] = field(default_factory=dict)
    beam: int | None = None
    batch_tokens: int | None = None
    accumulate: int | None = None
    max_ratio: float | None = None
    valid_every: int | None = None
    average: int | None = None
    average_every: int | None = None
    ema: float | None = None
    label_smoothing: float | None = None
    consistency: str | None = None
    subword_sampling: str | None = None
    clip_norm: float | None = None
    precision: str | None = None
    recurrent_precision: str | None = None
    reproducible: str | None = None
    decode_precision: str | None = None
    device: str | None = None
    torch: str | None = None
    threads: int | None = None
    cores: int | None = None
    clock_mhz: float | None = None
    timed_together: str | None = None
    data_hash: str | None = None
    batch_hash: str | None = None
    settings_hash: str | None = None
    config_hash: str | None = None
    code_version: str | None = None

    @property
    def run(self) -> str:
        """Name of the run's folder."""
        return run_name(self.label, self.seed)

    def to_json(self, indent: int | None = 2) -> str:
        """Format as one JSON object, without what is unknown or empty; NaN and infinity become null.

        Args:
            indent: spaces per level; None gives one line.
        """
        record = {name: value for name, value in asdict(self).items() if value is not None and value != {}}
        return json.dumps(without_nan(record), indent=indent, ensure_ascii=False, allow_nan=False)

    def flat(self) -> dict[str, Any]:
        """Return one value per column, without hashes of files; score s of further test set t is ``s_t``.

        Raises:
            ValueError: two values have the same column name.
        """
        row = asdict(self)
        del row["files"]
        for test, scores in {"": row.pop("scores"), **row.pop("tests")}.items():
            for name, value in scores.items():
                column = of_test(name, test)
                if column in row:
                    kind = f"test set {test!r}" if test else "metric"
                    raise ValueError(f"column {column!r} is a field already: rename the {kind}")
                row[column] = value
        return row


def without_nan(value: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, by None at any depth of ``value``."""
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


SETTINGS = {name: figure for name, figure in FIGURES.items() if figure.setting}
"""Figures that repeat settings."""
SHARED_SETTINGS = tuple(name for name, figure in SETTINGS.items() if is_shared(figure.setting))
"""Those that all rows of a table share."""


def recorded_settings(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a result that repeat settings.

    Args:
        conditions: ``Run.conditions``.
    """
    values = {name: conditions[figure.setting] for name, figure in SETTINGS.items()}
    return {name: None if value == SETTINGS[name].off else value for name, value in values.items()}
