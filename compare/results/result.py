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
from compare.config.toml import current_names, current_preset, without_redefined
from compare.system.messages import abbreviate
from data.files import parse_json

# Check of a result record read from JSON against the fields of its dataclass.


FILE_IN_RUN = re.compile(r"(?!/)[^\x00-\x1f\x7f\\:]{1,200}")
"""Path in a run's folder, relative, with / between folders."""
SHA256 = re.compile("[0-9a-f]{64}")


def check_record(record: Any, kind: type, source: str | Path) -> None:
    """Reject a record that cannot be one of the dataclass ``kind``, such as ``Result``.

    Args:
        record: the parsed JSON.
        kind: the dataclass; a ``tests`` mapping of its records has the same columns.
        source: the file that error messages name.

    Raises:
        ValueError: an unknown or missing key, or a value of the wrong type.
    """
    if not isinstance(record, dict):
        raise ValueError(f"{source}: expected one JSON object, found {type(record).__name__}")
    types = {item.name: item.type for item in fields(kind)}
    if unknown := sorted(record.keys() - types.keys()):
        raise ValueError(f"{source}: unknown key {abbreviate(unknown[0])}")
    required = [item.name for item in fields(kind) if item.default is item.default_factory is MISSING]
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


def can_name_folder(name: str) -> bool:
    """Return whether a name leads to a visible folder right below another one."""
    return bool(name) and not set("/\\\0") & set(name) and not name.startswith(".")


def _check_names(record: Mapping[str, Any], source: str | Path) -> None:
    """Reject names that lead out of the run's folder or cannot be drawn, and hashes that are none."""
    if not can_name_folder(record["label"]):
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


Status = Literal["done", "failed", "unfinished"]
LEFT_OUT = (
    "recurrent_precision",
    "reproducible",
    "perplexity",
    "char_perplexity",
    "init_hash",
    "extended_from",
    "late_gain",
    "average_every",
    "ema",
    "consistency",
    "subword_sampling",
)
"""Fields that JSON lacks where they are None, as in versions without them."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one run; units are part of the names, and ``compare.results.columns`` explains the fields."""

    # Identity and outcome.
    label: str
    """Label of the model, as in the config."""
    preset: str
    """Preset of the model."""
    seed: int
    """Seed of weights, dropout and batch order."""
    status: Status
    """Outcome: done, failed (training diverged) or unfinished."""
    reason: str | None = None
    """Cause of a failure, in one line."""

    # Size.
    params: int | None = None
    """Trained weights, tied ones counted once."""
    params_no_embedding: int | None = None
    """The same without embedding tables."""
    train_flops_per_token: float | None = None
    """FLOPs of forward and backward pass per token, at the mean lengths of the corpus."""
    width_multiple: int | None = None
    """Largest power of two that divides all widths; matrix products are fastest at multiples of 8."""

    # Training.
    updates: int | None = None
    """Optimizer updates."""
    epochs: float | None = None
    """Passes over the training pairs."""
    tokens_seen: int | None = None
    """Tokens of all training batches, source and target."""
    stopped_by: str | None = None
    """What ended training: "updates", all of them used, or "patience", when validation no longer improved."""
    late_gain: float | None = None
    """Validation BLEU that the last quarter of the updates has added; None: one validation, or no BLEU."""
    longer_gain: float | None = None
    """Validation BLEU that ``longer_factor`` times the updates add; None: not measured for this seed."""
    longer_factor: float | None = None
    """How many times the updates ``attnbench converge`` trained with."""
    best_update: int | None = None
    """Update of the best validation; metrics.jsonl says whether these weights or an average were kept."""
    valid_loss: float | None = None
    """Validation loss of the weights that were kept, nats per target token."""
    valid_perplexity: float | None = None
    """exp(valid_loss)."""
    processes: int | None = None
    """Processes that trained the model together, the most at a time; None: one. The dropout of several
    depends on their number, the batches do not."""
    devices: int | None = None
    """Devices of these processes: GPUs, or the CPUs of their hosts; None: one process."""
    nodes: int | None = None
    """Hosts of these processes; None: one process."""
    together_tokens_per_s: float | None = None
    """Source and target tokens per second of these processes in training, by the log; None: one process.
    All other speeds are timed after training, in one process on one device."""
    together_tokens_per_s_per_device: float | None = None
    """The same per device."""

    # Quality on the first test set, 0 to 100, as in ``compare.scoring.score.SystemScores``.
    bleu: float | None = None
    """BLEU of sacrebleu."""
    bleu_ci_low: float | None = None
    """Lower end of its 95% bootstrap interval over sentences."""
    bleu_ci_high: float | None = None
    """Upper end of that interval."""
    chrf: float | None = None
    """chrF2."""
    ter: float | None = None
    """TER; lower is better."""
    length_ratio: float | None = None
    """Tokens of the translations over tokens of the references."""
    brevity_penalty: float | None = None
    """Factor of BLEU, up to 1, by which it punishes translations shorter than the references."""
    bleu_signature: str | None = None
    """sacrebleu's version and settings of BLEU."""
    perplexity: float | None = None
    """exp of the mean negative log-likelihood per reference token, end of sentence included, without label
    smoothing; None, and left out of JSON like the next, where it was not measured, as in earlier versions."""
    char_perplexity: float | None = None
    """The same per character of the references, line ends included: compares different vocabularies."""
    tests: Mapping[str, Mapping[str, float | str | None]] = field(default_factory=dict)
    """Score columns of each further test set by its name; column ``bleu_test_long`` in a frame."""
    scores: Mapping[str, float | str | None] = field(default_factory=dict)
    """Score columns, as in ``tests``, of metrics without a field above; left out of JSON where empty."""

    # Speed: median, lowest and highest of timed repeats, in which all models of the experiment took turns.
    # Tokens are source without EOS + target with EOS, without padding; latency is of batch size 1. The seeds
    # of a model share the figures of its lowest finished one. Earlier versions timed each run alone.
    train_tokens_per_s: float | None = None
    """Speed of training updates from the final weights; earlier versions: median of the training log."""
    train_tokens_per_s_low: float | None = None
    """Lowest repeat."""
    train_tokens_per_s_high: float | None = None
    """Highest repeat."""
    train_tgt_tokens_per_s: float | None = None
    """The same, target tokens only."""
    train_mfu: float | None = None
    """Model FLOPs utilisation, 0 to 1: FLOP/s of training over the data sheet's peak; None if unknown."""
    greedy_sentences_per_s: float | None = None
    """Speed of greedy search."""
    greedy_sentences_per_s_low: float | None = None
    """Lowest repeat."""
    greedy_sentences_per_s_high: float | None = None
    """Highest repeat."""
    beam_sentences_per_s: float | None = None
    """Speed of beam search."""
    beam_sentences_per_s_low: float | None = None
    """Lowest repeat."""
    beam_sentences_per_s_high: float | None = None
    """Highest repeat."""
    decode_tokens_per_s: float | None = None
    """Target tokens per second of beam search."""
    latency_ms_p50: float | None = None
    """Median milliseconds per sentence."""
    latency_ms_p50_low: float | None = None
    """Lowest repeat."""
    latency_ms_p50_high: float | None = None
    """Highest repeat."""
    latency_ms_p95: float | None = None
    """95th percentile of milliseconds per sentence; None for fewer than 100 sentences."""
    cpu_share: float | None = None
    """Share of the processor that the most disturbed timing had, 0 to 1; of a timing, its median repeat."""
    peak_memory_bytes: int | None = None
    """Peak memory of training and decoding in bytes: of torch's tensors on a GPU, else of the process."""
    energy_j_per_1k_tokens: float | None = None
    """Joules of CPU and GPU in training; None where they cannot be read."""

    # Seconds of each activity.
    data_s: float | None = None
    """Waiting for batches in training."""
    train_s: float | None = None
    """Training, without validation and checkpoints."""
    validation_s: float | None = None
    """Validation."""
    checkpoint_s: float | None = None
    """Saving of checkpoints."""
    decode_s: float | None = None
    """Translation of the test sets."""

    # Conditions.
    beam: int | None = None
    """Beam size of the translations."""
    length_penalty: float | None = None
    """Alpha of the length penalty of the translations, chosen on validation if there were several."""
    length_normalization: str | None = None
    """Form of that penalty: wu or length."""
    batch_tokens: int | None = None
    """Maximum of target tokens per training batch."""
    extended_from: int | None = None
    """Updates after which the run had ended before ``attnbench extend`` continued it; None: it was not."""
    init_hash: str | None = None
    """sha256 of the weights of another run that training started from; None: random weights."""
    accumulate: int | None = None
    """Parts that each process computed its share of a batch in; None: one."""
    max_ratio: float | None = None
    """Longest translation allowed: max_ratio times the source tokens, plus 10."""
    valid_every: int | None = None
    """Updates between validations."""
    average: int | None = None
    """Number of validations, or of other updates, whose weights may be averaged."""
    average_every: int | None = None
    """Updates between the weights that may be averaged; None: those of validations."""
    ema: float | None = None
    """Decay per update of the moving average of the weights, which may be used; None: there is none."""
    label_smoothing: float | None = None
    """Probability mass spread over the vocabulary in the loss."""
    consistency: str | None = None
    """Consistency regularisation, such as "r-drop, weight 2.5"; None, and left out of JSON, without one."""
    subword_sampling: str | None = None
    """Kind of vocabulary and strength of subword sampling, such as "bpe 0.1"; None, and left out of JSON,
    without it."""
    clip_norm: float | None = None
    """Maximum total gradient norm."""
    precision: str | None = None
    """Precision of training: fp32 or bf16."""
    recurrent_precision: str | None = None
    """Precision of recurrent layers in training; None, and left out of JSON, where it is ``precision``."""
    reproducible: str | None = None
    """How exactly training again gives these weights; None, and left out of JSON, where it is to the bit."""
    decode_precision: str | None = None
    """Precision of decoding: fp32 or bf16."""
    device: str | None = None
    """Name of the processor or GPU; this and the following four are of the timings once these are made."""
    torch: str | None = None
    """Version of torch."""
    threads: int | None = None
    """CPU threads of torch."""
    cores: int | None = None
    """Cores of the processor that the process may use."""
    clock_mhz: float | None = None
    """Clock of the processor."""
    timed_together: str | None = None
    """Id of the timing in which the models took turns; speeds of different ids do not compare."""
    data_hash: str | None = None
    """sha256 of the corpus."""
    batch_hash: str | None = None
    """sha256 of the batches of the first epoch."""
    settings_hash: str | None = None
    """sha256 of the settings that all rows of a table share."""
    config_hash: str | None = None
    """sha256 of all settings of this run."""
    code_version: str | None = None
    """Version of attnbench."""
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
        """Format as one JSON object; NaN and infinity become null.

        Args:
            indent: spaces per level; None gives one line.
        """
        record = without_nan(asdict(self))
        if not self.scores:
            del record["scores"]
        for name in LEFT_OUT:
            if record[name] is None:
                del record[name]
        return json.dumps(record, indent=indent, ensure_ascii=False, allow_nan=False)

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
            record = parse_json(text)
        except ValueError as error:  # of JSON or of UTF-8
            raise ValueError(f"{source}: not a result record: {error}") from None
        if isinstance(record, dict):
            record = without_redefined(current_names("result", record))
            if isinstance(preset := record.get("preset"), str):
                # Results without this hash are of before schema 3.
                record["preset"] = current_preset(preset, is_old_tiny="settings_hash" not in record)
        check_record(record, cls, source)
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
