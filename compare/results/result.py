"""Result record of one run: every figure, declared once with the column that shows it.

An unknown figure (not measured, or the run failed before it) is None, never 0.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import msgspec

from compare.config.sections import is_shared, run_name
from compare.results.column import (
    Group,
    Shown,
    cpu_share_text,
    figure,
    matched_text,
    seed_text,
    spread_end,
    start_text,
    status_text,
)
from compare.system.messages import abbreviate

IDENTITY, SIZE, QUALITY, SPEED, TRAINING, CONDITIONS = Group
ALWAYS, IF_KNOWN, IF_DIFFERENT, IN_REPORT, NEVER = Shown

Status = Literal["done", "failed", "unfinished"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one run; units are part of the names."""

    # Identity and outcome.
    label: str = figure(
        "model", "name of the model in the experiment", shown=ALWAYS, left=True, required=True, group=IDENTITY
    )
    seed: int = figure(
        "seed",
        "seed of weights, dropout and batch order",
        shown=IF_DIFFERENT,
        render=seed_text,
        required=True,
    )
    preset: str = figure("preset", "model that the row was made from (attnbench models)", required=True)
    status: Status = figure(
        "status",
        "done, failed (training diverged) or unfinished",
        left=True,
        render=status_text,
        required=True,
    )
    reason: str | None = figure("reason", "cause of a failure")

    # Size.
    params: int | None = figure(
        "params", "trained weights, tied ones counted once", unit="M", decimals=2, shown=ALWAYS, group=SIZE
    )
    params_no_embedding: int | None = figure(
        "params without embeddings", "trained weights but those of embedding tables", unit="M", decimals=2
    )
    train_flops_per_token: float | None = figure(
        "training FLOPs per token",
        "floating-point operations of forward and backward pass, at the mean lengths of the corpus",
        unit="M",
        decimals=2,
    )
    budget_off: float | None = figure(
        "matched",
        "budget that is equal over the models, and the deviation from it",
        shown=IF_KNOWN,
        left=True,
        render=matched_text,
    )
    budget: str | None = figure(
        "budget",
        "quantity that is equal over the models: params, flops or time; a dash: only the batches are equal",
    )
    width_multiple: int | None = figure(
        "widths divisible by",
        "largest power of two; matrix products are fastest at multiples of 8",
        shown=IN_REPORT,
    )

    # Quality on the first test set, 0 to 100 .
    bleu: float | None = figure("", "BLEU of sacrebleu", group=QUALITY)
    bleu_ci_low: float | None = figure("", "lower end of the 95% bootstrap interval of BLEU over sentences")
    bleu_ci_high: float | None = figure("", "upper end of that interval")
    chrf: float | None = figure("", "chrF2")
    ter: float | None = figure("", "TER; lower is better")
    perplexity: float | None = figure(
        "perplexity",
        "of the references per target token, end of sentence included, without label smoothing; compares "
        "models of one vocabulary; lower is better",
        decimals=2,
        shown=IF_KNOWN,
    )
    char_perplexity: float | None = figure(
        "perplexity per character",
        "of the references, line ends included; compares different vocabularies, but unknown words (<unk>) "
        "make it too low; lower is better",
        decimals=3,
        shown=IF_KNOWN,
    )
    length_ratio: float | None = figure(
        "length ratio", "tokens of the translations over tokens of the references", decimals=3, shown=ALWAYS
    )
    brevity_penalty: float | None = figure(
        "brevity penalty", "factor of BLEU for translations that are too short", decimals=3, shown=ALWAYS
    )
    length_penalty: float | None = figure(
        "length penalty",
        "alpha of the translations' length penalty, chosen on validation",
        decimals=2,
        shown=IF_KNOWN,
    )
    length_normalization: str | None = figure(
        "form of length penalty",
        "wu: ((5 + length) / 6) ** alpha; length: length ** alpha",
        shown=IF_DIFFERENT,
        left=True,
    )
    bleu_signature: str | None = figure("", "sacrebleu's version and settings of BLEU")
    tests: Mapping[str, Mapping[str, float | str | None]] = figure(
        "",
        "score columns of each further test set by its name; column bleu_test_long in a frame",
        default_factory=dict,
    )
    scores: Mapping[str, float | str | None] = figure(
        "", "score columns, as in tests, of metrics without a field of their own", default_factory=dict
    )

    # Speed: medians, lowest and highest of timed repeats in which all models took turns; and seconds of each
    # activity. Tokens are source without EOS + target with EOS, without padding; latency is of batch size 1.
    # The seeds of a model share the timings of its lowest finished one.
    train_tokens_per_s: float | None = figure(
        "train tokens/s",
        "source and target, without padding; timed from the final weights",
        decimals=0,
        shown=ALWAYS,
        spread=True,
        group=SPEED,
    )
    together_tokens_per_s: float | None = figure(
        "tokens/s of all processes",
        "of the training itself; the other speeds are of one process on one device",
        decimals=0,
        shown=IF_KNOWN,
    )
    together_tokens_per_s_per_device: float | None = figure(
        "the same per device", "of the processes that trained together", decimals=0, shown=IF_KNOWN
    )
    processes: int | None = figure(
        "processes", "that trained together, the most at a time; a dash: one", shown=IF_KNOWN
    )
    devices: int | None = figure(
        "devices", "of these processes: GPUs, or the CPUs of their hosts", shown=IF_KNOWN
    )
    nodes: int | None = figure("nodes", "hosts of these processes", shown=IF_KNOWN)
    train_tgt_tokens_per_s: float | None = figure(
        "train target tokens/s", "target tokens alone, without padding", decimals=0
    )
    train_mfu: float | None = figure(
        "train MFU",
        "model FLOPs utilisation, relative to the data sheet's peak; a dash: unknown",
        unit="%",
        decimals=1,
    )
    greedy_sentences_per_s: float | None = figure(
        "greedy sent/s", "sentences per second of greedy search", decimals=1, shown=ALWAYS, spread=True
    )
    beam_sentences_per_s: float | None = figure(
        "beam sent/s", "sentences per second of beam search", decimals=1, shown=ALWAYS, spread=True
    )
    decode_tokens_per_s: float | None = figure(
        "beam tokens/s", "target tokens of the best hypotheses", decimals=0
    )
    latency_ms_p50: float | None = figure(
        "latency p50", "median, one sentence at a time", unit="ms", decimals=1, shown=ALWAYS, spread=True
    )
    latency_ms_p95: float | None = figure(
        "latency p95",
        "95th percentile, one sentence at a time; a dash: fewer than 100 sentences",
        unit="ms",
        decimals=1,
    )
    cpu_share: float | None = figure(
        "CPU share",
        "share of the processor that the most disturbed timing had",
        shown=IN_REPORT,
        render=cpu_share_text,
    )
    train_tokens_per_s_low: float | None = spread_end("train tokens/s", "lowest")
    train_tokens_per_s_high: float | None = spread_end("train tokens/s", "highest")
    greedy_sentences_per_s_low: float | None = spread_end("greedy sent/s", "lowest")
    greedy_sentences_per_s_high: float | None = spread_end("greedy sent/s", "highest")
    beam_sentences_per_s_low: float | None = spread_end("beam sent/s", "lowest")
    beam_sentences_per_s_high: float | None = spread_end("beam sent/s", "highest")
    latency_ms_p50_low: float | None = spread_end("latency p50", "lowest")
    latency_ms_p50_high: float | None = spread_end("latency p50", "highest")
    peak_memory_bytes: int | None = figure(
        "peak memory",
        "of training and decoding: of torch's tensors on a GPU, else of the process",
        unit="GB",
        decimals=2,
    )
    train_s: float | None = figure(
        "train", "without validation and checkpoints", unit="min", decimals=1, shown=ALWAYS
    )
    energy_j_per_1k_tokens: float | None = figure(
        "J/1k tokens",
        "energy of CPU and GPU in training; a dash: cannot be read",
        decimals=1,
        shown=IN_REPORT,
    )
    data_s: float | None = figure("data", "waiting for batches in training", unit="s")
    validation_s: float | None = figure("validation", "time of all validations", unit="s")
    checkpoint_s: float | None = figure("checkpoints", "time of saving", unit="s")
    decode_s: float | None = figure("decoding", "translation of the test sets", unit="s")

    # Training.
    updates: int | None = figure(
        "updates", "optimizer updates done", decimals=0, shown=ALWAYS, group=TRAINING
    )
    stopped_by: str | None = figure(
        "stopped by",
        "updates: all of its budget were used; patience: validation no longer improved",
        shown=IN_REPORT,
        left=True,
    )
    late_gain: float | None = figure(
        "gain of the last quarter",
        "validation BLEU that the last quarter of the updates has added; a dash: one validation, or no BLEU",
        decimals=2,
        shown=IN_REPORT,
    )
    epochs: float | None = figure("epochs", "passes over the training pairs", decimals=2)
    tokens_seen: int | None = figure(
        "training tokens", "source and target tokens, without padding", unit="M", decimals=2
    )
    best_update: int | None = figure(
        "best update",
        "update of the best validation; metrics.jsonl says whether these weights or an average were kept",
        decimals=0,
    )
    valid_loss: float | None = figure("validation loss", "of the chosen weights, in nats per target token")
    valid_perplexity: float | None = figure(
        "validation perplexity", "of the chosen weights, per target token"
    )
    init_hash: str | None = figure(
        "start",
        "sha256 of the weights of another run that training started from; a dash: random weights",
        shown=IF_KNOWN,
        left=True,
        render=start_text,
        setting="train.init_hash",
    )

    # Conditions.
    files: Mapping[str, str] = figure(
        "",
        "sha256 of each file that the figures come from, by its path in the run's folder",
        default_factory=dict,
        group=CONDITIONS,
    )
    beam: int | None = figure("beam size", "hypotheses per sentence; 1 is greedy search")
    batch_tokens: int | None = figure(
        "tokens per batch", "maximum of target tokens, padding included", setting="train.batch_tokens"
    )
    accumulate: int | None = figure(
        "parts per batch",
        "parts that each process computed its share of a batch in; a dash: one",
        setting="train.accumulate",
        off=1,
    )
    max_ratio: float | None = figure("maximum length", "per source token, plus 10")
    valid_every: int | None = figure(
        "updates per validation", "updates between validations", decimals=0, setting="train.valid_every"
    )
    average: int | None = figure(
        "averaged weights",
        "weights of so many validations, or other updates, may be averaged",
        setting="train.average",
    )
    average_every: int | None = figure(
        "updates per averaged weights",
        "distance of the averaged weights; a dash: those of validations",
        decimals=0,
        setting="train.average_every",
        off=0,
    )
    ema: float | None = figure(
        "moving average",
        "decay per update of the average of all weights, which may be used",
        setting="train.ema",
        off=0.0,
    )
    label_smoothing: float | None = figure(
        "label smoothing",
        "probability spread over the vocabulary in training",
        setting="train.label_smoothing",
    )
    consistency: str | None = figure(
        "consistency", "loss on the divergence of two passes, with its weight", setting="consistency"
    )
    subword_sampling: str | None = figure(
        "subword sampling",
        "training text is segmented anew in each epoch: kind of vocabulary and strength",
        setting="subword_sampling",
    )
    clip_norm: float | None = figure("gradient clipping", "maximum total norm", setting="train.clip_norm")
    precision: str | None = figure(
        "precision of training", "fp32, or bf16 (autocast)", setting="train.precision"
    )
    recurrent_precision: str | None = figure(
        "precision of recurrent layers", "on a GPU, where it is not that of training"
    )
    reproducible: str | None = figure(
        "weights reproducible", "how exactly training again gives these weights; a dash: to the bit"
    )
    decode_precision: str | None = figure("precision of decoding", "fp32, or bf16 (autocast)")
    device: str | None = figure("device", "processor or GPU of the timings")
    torch: str | None = figure("torch", "version of torch")
    threads: int | None = figure("threads", "of torch")
    cores: int | None = figure("cores", "that the process may use")
    clock_mhz: float | None = figure("clock", "of the processor", unit="MHz", decimals=0)
    timed_together: str | None = figure(
        "timing", "id of the timing in which the models took turns; speeds of different ids do not compare"
    )
    data_hash: str | None = figure("data", "sha256 of the corpus")
    batch_hash: str | None = figure(
        "batches", "sha256 of the batches of the first epoch, order and padding included"
    )
    settings_hash: str | None = figure("settings", "sha256 of the settings that rows share")
    config_hash: str | None = figure("config", "sha256 of all settings")
    code_version: str | None = figure("code", "version and hash of the sources, of attnbench and of plug-ins")

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

    @classmethod
    def from_json(cls, text: str | bytes, source: str | Path = "result.json") -> "Result":
        """Parse the output of ``to_json``.

        Args:
            text: JSON.
            source: the file that error messages name.

        Raises:
            ValueError: ``text`` is not a result.
        """
        try:
            record = msgspec.json.decode(text)
            result = msgspec.convert(record, cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{source}: not a result record: {error}") from None
        if unknown := sorted(record.keys() - {each.name for each in fields(cls)}):
            raise ValueError(f"{source}: unknown key {abbreviate(unknown[0])}")
        return result

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


SETTINGS = tuple(each.name for each in fields(Result) if each.metadata["setting"])
"""Fields that repeat settings."""
SHARED_SETTINGS = tuple(
    each.name for each in fields(Result) if each.metadata["setting"] and is_shared(each.metadata["setting"])
)
"""Those that all rows of a table share."""


def recorded_settings(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a result that repeat settings.

    Args:
        conditions: ``Run.conditions``.
    """
    declared = {each.name: each.metadata for each in fields(Result)}
    values = {name: conditions[declared[name]["setting"]] for name in SETTINGS}
    return {name: None if value == declared[name]["off"] else value for name, value in values.items()}
