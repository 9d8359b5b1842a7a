"""Results: the record of one run, and the files of an experiment that store them.

``runs/<experiment>/<label>-seed<k>/result.json`` is the only source of a run's result. An unknown figure (not
measured, or the run failed before it) is None, never 0.
"""

import glob
import hashlib
import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from compare.config.sections import EXTERNAL, SHARED, run_name
from compare.results.formatting import GROUPS, UNKNOWN, Row, describe_share, figure
from compare.system.messages import abbreviate, ensure_folder
from compare.system.plugins import plugin_problem
from data.files import as_paths, warn_once, write_atomically

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["done", "failed", "unfinished"]


def _status(row: Row) -> str:
    return f"{row['status']}: {row['reason']}" if row.get("reason") else str(row.get("status"))


def _label(row: Row) -> str:
    return f"{row.get('label', UNKNOWN)}{' (external)' if row.get('preset') == EXTERNAL else ''}"


def _matched(row: Row) -> str:
    quantity, deviation = row.get("matched"), row.get("matched_off")
    return UNKNOWN if quantity is None or deviation is None else f"{quantity} {deviation:+.1%}"


identity, size, quality, speed, training, conditions = (partial(figure, group) for group in GROUPS)
lowest, highest = (partial(speed, about=f"{end} of the timed repeats") for end in ("lowest", "highest"))
Text = str | None
Whole = int | None
Number = float | None
Scores = Mapping[str, float | str | None]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one run: figures with their columns, in the order of tables."""

    # fmt: off
    label: str = identity("model", "name of the model in the experiment", default=MISSING, shown="always",
        left=True, cell=_label)
    seed: int = identity("seed", "seed of weights, dropout and batch order", default=MISSING,
        shown="where rows differ", form=str)
    budget: Whole = identity("budget", "updates of one of several budgets, train.budgets", 0,
        "where rows differ")
    preset: str = identity("preset", "model that the row was made from (attnbench models)", default=MISSING)
    status: Status = identity("status", "done, failed (training diverged) or unfinished", default=MISSING,
        left=True, cell=_status)
    reason: Text = identity("reason", "cause of a failure")
    warnings: Text = identity("warnings", "warnings about the data and the translations, one per line",
        added=True)
    settings: Mapping[str, Any] = conditions("", "those that differ from their defaults, such as train.ema, "
        "and from those of the preset, such as model.dropout", default=dict)

    params: Whole = size("params (M)", "trained weights, tied ones counted once", 2, "always")
    params_no_embedding: Whole = size("params without embeddings (M)", "trained weights without embedding "
        "tables", 2)
    train_flops_per_token: Number = size("training FLOPs per token (M)", "floating-point operations of "
        "forward and backward pass, at the mean lengths of the corpus", 2)
    matched_off: Number = size("matched", "quantity in which the models are equal, and the deviation from "
        "it", shown="where known", left=True, cell=_matched)
    matched: Text = size("matched quantity", "quantity in which the models are equal: params or flops; a "
        "dash: only the batches are equal")
    budget_changes: Text = size("changed by the budget", "widths before and after matching the budget",
        left=True, added=True)
    width_multiple: Whole = size("widths divisible by", "largest power of two that divides all widths; "
        "matrix products are fastest at multiples of 8", shown="in the report")

    # Quality on the first test set, 0 to 100.
    bleu: Number = quality("", "BLEU of sacrebleu")
    bleu_ci_low: Number = quality("", "lower end of the 95% bootstrap interval of BLEU over sentences")
    bleu_ci_high: Number = quality("", "upper end of that interval")
    chrf: Number = quality("", "chrF2")
    ter: Number = quality("", "TER; lower is better")
    perplexity: Number = quality("perplexity", "perplexity of the references per target token, end of "
        "sentence included, without label smoothing; comparable within one vocabulary; lower is better", 2,
        "where known")
    char_perplexity: Number = quality("perplexity per character", "perplexity of the references, line ends "
        "included; comparable between vocabularies, but unknown words (<unk>) make it too low; lower is "
        "better", 3, "where known")
    length_ratio: Number = quality("length ratio", "tokens of the translations over tokens of the references",
        3, "always")
    brevity_penalty: Number = quality("brevity penalty", "factor that lowers BLEU where translations are too "
        "short", 3, "always")
    distinct_lines: Number = quality("different lines (%)", "share of different translations; weak models "
        "write the same line for many sources", 1, "in the report", added=True)
    repeats: Whole = quality("repeated phrases", "translations in which a phrase stands three times in a row",
        0, "in the report", added=True)
    at_limit: Whole = quality("cut at the limit", "translations that search ended at the limit of their "
        "length, decode.max_ratio", 0, "in the report", added=True)
    length_penalty: Number = quality("length penalty", "strength alpha of the length penalty, chosen on the "
        "validation set", 2, "where known")
    length_normalization: Text = quality("form of length penalty", "wu: ((5 + length) / 6) ** alpha; length: "
        "length ** alpha", shown="where rows differ", left=True, note="Settings: length penalty {}")
    bleu_signature: Text = quality("", "sacrebleu's version and settings of BLEU")
    tests: Mapping[str, Scores] = quality("", "score columns of each further test set by its name; column "
        "bleu_test_long in a frame", default=dict)
    scores: Scores = quality("", "score columns, as in tests, of metrics without a field of their own",
        default=dict)

    # Speeds are the median, lowest and highest of timed repeats in which all models took turns. Tokens are
    # source without EOS + target with EOS, without padding; latency is that of batch size 1. The seeds of a
    # model share the timings of the lowest seed that has weights.
    train_tokens_per_s: Number = speed("train tokens/s", "speed of the whole training according to its log: "
        "source and target tokens, without padding", 0, "always", added=True)
    timed_tokens_per_s: Number = speed("timed tokens/s", "training speed timed from the final weights, with "
        "all models taking turns", 0, "always", spread=True)
    together_tokens_per_s_per_device: Number = speed("train tokens/s per device", "speed of the processes "
        "that trained together; timed speeds are those of one process on one device", 0, "where known")
    processes: Whole = speed("processes", "processes that trained together, at most; a dash: one",
        shown="where known", note="Processes: {} trained a model together")
    devices: Whole = speed("devices", "of these processes: GPUs, or the CPUs of their hosts",
        shown="where known")
    nodes: Whole = speed("nodes", "hosts of these processes", shown="where known")
    timed_tgt_tokens_per_s: Number = speed("timed target tokens/s", "timed training speed in target tokens, "
        "without padding", 0)
    train_mfu: Number = speed("train MFU (%)", "model FLOPs utilisation, relative to the data sheet's peak; "
        "a dash: unknown", 1)
    greedy_sentences_per_s: Number = speed("greedy sent/s", "sentences per second in greedy search", 1,
        "always", spread=True)
    beam_sentences_per_s: Number = speed("beam sent/s", "sentences per second in beam search", 1, "always",
        spread=True)
    decode_tokens_per_s: Number = speed("beam tokens/s", "target tokens per second in beam search, of the "
        "best hypotheses", 0)
    latency_ms_p50: Number = speed("latency p50 (ms)", "median, one sentence at a time", 1, "always",
        spread=True)
    latency_ms_p95: Number = speed("latency p95 (ms)", "95th percentile, one sentence at a time; a dash: "
        "fewer than 100 sentences", 1)
    cpu_share: Number = speed("CPU share", "share of the processor in the most disturbed timing",
        shown="in the report", form=describe_share)
    reference_ms: Number = speed("reference work (ms)", "duration of a fixed task beside the slowest timing, "
        "about 50 ms on one core; shows whether the machine was slower than usual", 1, "in the report",
        added=True)
    reference_share: Number = speed("machine speed", "speed of the reference work, relative to the best ever "
        "measured on this machine", shown="in the report", added=True, form=describe_share)
    timed_tokens_per_s_low: Number = lowest("timed tokens/s, lowest repeat")
    timed_tokens_per_s_high: Number = highest("timed tokens/s, highest repeat")
    greedy_sentences_per_s_low: Number = lowest("greedy sent/s, lowest repeat")
    greedy_sentences_per_s_high: Number = highest("greedy sent/s, highest repeat")
    beam_sentences_per_s_low: Number = lowest("beam sent/s, lowest repeat")
    beam_sentences_per_s_high: Number = highest("beam sent/s, highest repeat")
    latency_ms_p50_low: Number = lowest("latency p50, lowest repeat")
    latency_ms_p50_high: Number = highest("latency p50, highest repeat")
    peak_memory_bytes: Whole = speed("peak memory (GB)", "of training and decoding: torch's tensors on a "
        "GPU, else the whole process", 2)
    train_peak_memory_bytes: Whole = speed("peak memory of training (GB)", "likewise; a dash: several "
        "processes trained the model, one after the other", 2, added=True)
    decode_peak_memory_bytes: Whole = speed("peak memory of decoding (GB)", "likewise", 2, added=True)
    train_s: Number = speed("train (min)", "training time without waiting for batches, validation and "
        "checkpoints", 1, "always")
    energy_j_per_1k_tokens: Number = speed("J/1k tokens", "energy of the GPU in training, other programs "
        "included; a dash: cannot be read", 1, "in the report")
    data_s: Number = speed("data (s)", "time spent waiting for batches in training", 1)
    validation_s: Number = speed("validation (s)", "time of all validations", 1)
    checkpoint_s: Number = speed("checkpoints (s)", "time of saving", 1)
    decode_s: Number = speed("decoding (s)", "time of translating the test sets", 1)

    updates: Whole = training("updates", "optimizer updates done", 0, "always")
    stopped_by: Text = training("stopped by", "updates: the last update of the budget was reached; patience: "
        "validation no longer improved", shown="in the report", left=True)
    late_gain: Number = training("gain of the last quarter", "validation BLEU gained in the last quarter of "
        "the updates; a dash: only one validation, or no BLEU", 2, "in the report", added=True)
    epochs: Number = training("epochs", "passes over the training pairs", 2)
    tokens_seen: Whole = training("training tokens (M)", "source and target tokens, without padding", 2)
    best_update: Whole = training("best update", "update with the best validation; metrics.jsonl says "
        "whether these weights or an average were kept", 0)
    valid_loss: Number = training("validation loss", "validation loss of the chosen weights, in nats per "
        "target token")
    valid_perplexity: Number = training("validation perplexity", "perplexity of the chosen weights on the "
        "validation set, per target token")
    init_hash: Text = training("start", "sha256 of the weights of another run that training started from; a "
        "dash: random weights", shown="where known", left=True, form="weights {:.12}".format,
        note="Settings: fine-tuned from weights {:.12}")

    files: Mapping[str, str] = conditions("", "sha256 of each file that the figures come from, by its path "
        "in the run's folder", default=dict)
    recurrent_precision: Text = conditions("precision of recurrent layers", "on a GPU, where it differs from "
        "that of training", note="Precision: recurrent layers {}")
    reproducible: Text = conditions("weights reproducible", "how exactly training again gives these weights; "
        "a dash: to the bit", note="Settings: weights reproducible {}")
    device: Text = conditions("device", "processor or GPU of the timings", note="Hardware: {}")
    trained_on: Text = conditions("trained on", "processors or GPUs, torch and threads of training; a dash: "
        "those of the timings", added=True, note="Hardware: trained on {}")
    torch: Text = conditions("torch", "version of torch", note="Hardware: torch {}")
    threads: Whole = conditions("threads", "of torch", note="Hardware: {} threads")
    cores: Whole = conditions("cores", "cores that the process may use", note="Hardware: {} cores")
    clock_mhz: Number = conditions("clock (MHz)", "of the processor or, in the timings, of the GPU", 0,
        note="Hardware: {:,.0f} MHz")
    throttling: Text = conditions("throttling", "why the GPU lowered its clock during the timings",
        added=True, note="Hardware: clock lowered by {}")
    fp32_gflops: Number = conditions("fp32 products (GFLOP/s)", "speed of a large matrix product on the "
        "machine of the timings", 0, added=True, note="Hardware: products {:,.0f} GFLOP/s in fp32")
    bf16_gflops: Number = conditions("bf16 products (GFLOP/s)", "likewise", 0, added=True,
        note="Hardware: {:,.0f} in bf16")
    environment: Text = conditions("environment", "environment variables of the user that affect torch's "
        "libraries", added=True, note="Hardware: {}")
    timed_code: Text = conditions("code of the timings", "version and hash of the sources", added=True,
        note="Hardware: timed by code {}")
    timed_together: Text = conditions("timing", "id of the timing in which the models took turns; speeds of "
        "different ids do not compare")
    data_hash: Text = conditions("data", "sha256 of the corpus", note="Data: {:.12}")
    batch_hash: Text = conditions("batches", "sha256 of the batches of the first epoch, order and padding "
        "included", note="Data: batches {:.12}")
    settings_hash: Text = conditions("settings", "sha256 of the settings that rows share",
        note="Data: settings {:.12}")
    code_version: Text = conditions("code", "version and hash of the sources of attnbench and of plug-ins; "
        "several if the code changed between the parts of a run", note="Data: code {}")

    # fmt: on
    @property
    def run(self) -> str:
        """Name of the run's folder."""
        return run_name(self.label, self.seed, self.budget)

    def to_json(self, indent: int = 2) -> str:
        """Format as one JSON object, without unknown or empty values."""
        record = {name: value for name, value in asdict(self).items() if value is not None and value != {}}
        return json_text(record, indent)

    @property
    def is_external(self) -> bool:
        """True for an external system, which has no model and no seed."""
        return self.preset == EXTERNAL

    def flat(self) -> dict[str, Any]:
        """Return one value per column; score s of further test set t is ``s_t``."""
        row = asdict(self)
        del row["files"]
        row |= {name: setting_text(value) for name, value in row.pop("settings").items()}
        for test, scores in {"": row.pop("scores"), **row.pop("tests")}.items():
            for name, value in scores.items():
                column = of_test(name, test)
                if column in row:
                    kind = f"test set {test!r}" if test else "metric"
                    raise ValueError(f"column {column!r} already exists: rename the {kind}")
                row[column] = value
        return row


def of_test(name: str, test: str) -> str:
    """Return the name of a field on a further test set; an empty name is the first."""
    return f"{name}_{test}" if test else name


def json_text(content: Any, indent: int = 2) -> str:
    """Format as JSON, on one line if ``indent`` is 0; NaN and infinities become null."""

    def plain(value: Any) -> str | float:
        """Convert numpy's numbers and subclasses of str, such as torch's version."""
        return str(value) if isinstance(value, str) else float(value)

    return msgspec.json.format(msgspec.json.encode(content, enc_hook=plain), indent=indent).decode()


# Settings as columns: a row has the settings that differ from their defaults, by "section.key".


def is_setting(name: str) -> bool:
    """Return whether a column is of a setting."""
    return name in SHARED or name.startswith("model.")


def setting_text(value: Any) -> Any:
    """Return the value of a setting for a cell: a list, also one of lists, as text."""
    is_list = isinstance(value, list | tuple)
    return ", ".join(str(setting_text(item)) for item in value) if is_list else value


def setting_of(row: Row, name: str) -> Any:
    """Return the value of a setting in a row; None if it is that of the preset, or unknown."""
    value = row.get(name)
    has_begun = row.get("train.precision") is not None  # never the default, auto
    return setting_text(SHARED.get(name)) if value is None and has_begun else value


def fill_settings(rows: Iterable[Row], further: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Give every row the default of each setting that any row has, or that ``further`` names."""
    rows = list(rows)
    names = dict.fromkeys([*filter(is_setting, (name for row in rows for name in row)), *further])
    return [{**row, **{name: setting_of(row, name) for name in names}} for row in rows]


def fill_model_settings(rows: Iterable[tuple[Path, Row]]) -> list[Row]:
    """Give rows the value of each model setting that any row has; those of the presets are in config.toml.

    Each row, of a run or a mean, comes with the folder of its experiment. A model may lack such a setting.
    """

    @cache
    def read_model(folder: Path, label: str) -> Row:
        configs = folder.glob(f"{glob.escape(label)}-seed[0-9]*/config.toml")
        if (config := min(configs, default=None)) is None:
            return {}
        models = tomllib.loads(config.read_text("utf-8")).get("models") or [{}]
        return {f"model.{key}": setting_text(value) for key, value in models[0].items()}

    rows = list(rows)
    names = dict.fromkeys(name for _, row in rows for name in row if name.startswith("model."))
    filled = []
    for folder, row in rows:
        missing = [name for name in names if row.get(name) is None]
        values = read_model(folder, row["label"]) if missing else {}
        filled.append({**row, **{name: values[name] for name in missing if name in values}})
    return filled


# The files.


NESTED = ("settings", "tests", "scores", "files")
DTYPES: dict[Any, str] = {int: "int64", int | None: "Int64", float | None: "float64"}
Record = TypeVar("Record")
RUN_NAME = re.compile(r"(?P<label>.+)-seed(?P<seed>0|[1-9]\d{0,17})(?:-budget(?P<budget>[1-9]\d{0,17}))?")


def read_record(path: Path, kind: type[Record], remedy: str) -> Record:
    """Read a JSON file as a typed record.

    Raises OSError if it cannot be read, and ValueError with value and ``remedy`` if it is damaged.
    """
    if path.exists() and not path.is_file():  # a pipe would never end
        raise ValueError(f"{path} is no file: {remedy}")
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}: {remedy}") from None


def write_record(path: Path, record: Any) -> None:
    """Write a dataclass, or nested dicts of them, as JSON."""
    write_atomically(path, json_text(record) + "\n")


def save_result(folder: Path, result: Result) -> None:
    """Write ``folder``/result.json."""
    write_atomically(folder / "result.json", result.to_json() + "\n")


def read_result(folder: Path) -> Result:
    """Read the result of a run; without a result.json the run is unfinished."""
    path = folder / "result.json"
    if path.exists():
        return read_record(path, Result, "restore the original, or delete it and run the experiment again")
    label, seed, budget = _split_name(folder.name)
    return Result(label=label, preset="", seed=seed, budget=budget, status="unfinished")


def read_results(experiment: Path) -> list[Result]:
    """Read the results of all runs, unfinished ones included; ValueError if there are none.

    Those in experiment.json come first, in that order.
    """
    ensure_folder(experiment)
    planned = read_registry(experiment).runs
    started = [child.name for child in experiment.glob("*/") if is_run(child)]
    if not planned and not started:
        raise ValueError(f"{experiment} has no runs: expected <label>-seed<k>/result.json in it")
    others = sorted(
        set(started) - set(planned), key=lambda name: [*_split_name(name)[:2], _split_name(name)[2] or 0]
    )
    return [_read_own_result(experiment / name) for name in [*planned, *others]]


def of_budget(results: Iterable[Result], budget: int | None = None) -> list[Result]:
    """Return the results of a budget, and of external systems; ValueError if no run has it.

    The default is the largest budget with a finished run.
    """
    results = list(results)
    budgets = {run.budget: None for run in results if run.budget is not None}
    if budget is None:
        finished = [run.budget for run in results if run.status == "done" and run.budget]
        budget = max(finished or budgets, default=None)
    elif budget not in budgets:
        there = ", ".join(map(str, sorted(filter(None, budgets)))) or "none (train.budgets was not set)"
        raise ValueError(f"no run has the budget {budget}; choose one of {there}")
    return [run for run in results if run.budget in (None, budget)]


def to_json_lines(results: Iterable[Result]) -> str:
    """Format ``results`` as the content of results.jsonl."""
    return "".join(result.to_json(indent=0) + "\n" for result in results)


def load_results(
    *folders: str | Path | Sequence[str | Path], budget: int | Literal["all"] | None = "all"
) -> "pd.DataFrame":
    """Read experiments and single runs into a data frame of one row per run.

    Args:
        folders: folders of experiments or of single runs, one by one or as a list.
        budget: which runs of an experiment with several budgets, as for ``of_budget``; by default all.

    Returns:
        The frame of ``to_frame``, after the column ``experiment``, a name of ``experiment_names``.
        ``attnbench table --list`` explains the columns.
    """
    import pandas as pd

    paths = [path.resolve() for argument in folders for path in as_paths(argument)]
    if not paths:
        raise ValueError("no folders: name at least one experiment, such as runs/demo")
    rows: dict[tuple[Path, str], Result] = {}
    for folder in paths:
        if is_run(folder):
            experiment, results = folder.parent, [_read_own_result(folder)]
        else:
            experiment, results = folder, read_results(folder)
            results = results if budget == "all" else of_budget(results, budget)
        rows |= {(experiment, result.run): result for result in results}
    names = experiment_names(experiment for experiment, _ in rows)
    flat = fill_model_settings((experiment, result.flat()) for (experiment, _), result in rows.items())
    frame = _rows_to_frame(flat).copy()  # in one piece: pandas warns above 100 pieces
    experiments = pd.Series([names[experiment] for experiment, _ in rows], dtype=object)  # like all texts
    frame.insert(0, "experiment", experiments)
    return frame


def experiment_names(folders: Iterable[Path]) -> dict[Path, str]:
    """Name experiments, by resolved path, by the last parts of their paths that differ."""
    paths = list(dict.fromkeys(folder.resolve() for folder in folders))
    names = [path.name for path in paths]
    depth = 1
    while len(set(names)) < len(paths):
        depth += 1
        names = ["/".join(path.parts[-depth:]) for path in paths]
    return dict(zip(paths, names, strict=True))


def to_frame(results: Iterable[Result]) -> "pd.DataFrame":
    """Convert results to a data frame: fields of ``Result``, then the others of ``Result.flat``."""
    return _rows_to_frame(result.flat() for result in results)


def _rows_to_frame(rows: Iterable[Row]) -> "pd.DataFrame":
    import pandas as pd

    types = {item.name: item.type for item in fields(Result) if item.name not in NESTED}
    rows = fill_settings(rows)
    further = dict.fromkeys(name for row in rows for name in row if name not in types)
    texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    # By default, pandas converts integers beside a None to floats.
    kinds = {name: DTYPES[kind] for name, kind in types.items() if kind in DTYPES}
    kinds |= {name: "float64" for name in further if name not in texts and not is_setting(name)}
    return pd.DataFrame(rows, columns=[*types, *further], dtype=object).astype(kinds)


def _read_own_result(folder: Path) -> Result:
    """Read the result of a run, whose folder must bear its label and seed, and import its plug-ins."""
    if problem := plugin_problem(folder):
        warn_once(f"{problem}; only the stored figures of single runs are shown")
    result = read_result(folder)
    if result.run not in (folder.name, run_name(*_split_name(folder.name))):
        raise ValueError(
            f"{folder / 'result.json'} belongs to label {abbreviate(result.label)} and seed {result.seed}: "
            f"rename the folder to {abbreviate(result.run)}, or move it out of the experiment"
        )
    return result


# The file experiment.json: the runs of an experiment, and what all of them share.


REGISTRY = "experiment.json"


@dataclass(kw_only=True)
class Registry:
    """Content of experiment.json."""

    runs: list[str] = field(default_factory=list)
    """Names of all runs that were begun or are about to be."""
    asked_seeds: dict[str, list[int]] = field(default_factory=dict)
    """Every requested seed by label; a run that is removed later leaves a gap here."""
    data_hash: str = ""
    vocabulary_hash: str = ""
    settings_hash: str = ""
    published: dict[str, str] | None = None
    """Name of the corpus and version of the code, in a published folder."""

    def write(self, folder: Path) -> None:
        """Write experiment.json without empty values."""
        content = {name: value for name, value in vars(self).items() if value or name == "runs"}
        write_atomically(folder / REGISTRY, json_text(content) + "\n")


def read_registry(folder: Path) -> Registry:
    """Read the experiment.json of a folder, if there is one; ValueError if it is damaged."""
    path = folder / REGISTRY
    if not path.exists():
        return Registry()
    return read_record(path, Registry, "restore it, or choose another folder with --out")


def is_run(folder: Path) -> bool:
    """Return whether ``folder`` is a run; an experiment's folder may have a config.toml too."""
    if (folder / "result.json").exists():
        return True
    return (folder / "config.toml").is_file() and RUN_NAME.fullmatch(folder.name) is not None


def _split_name(name: str) -> tuple[str, int, int | None]:
    match = RUN_NAME.fullmatch(name)
    if match is None:
        return name, 0, None
    return match["label"], int(match["seed"]), int(match["budget"]) if match["budget"] else None


# The file summary.json: means over seeds and the outcome of an experiment.
#
# ``compare.analysis.summary.summarise`` computes them when the runs have ended, because the bootstrap of all
# translations takes too long for a command that only shows them.


SUMMARY = "summary.json"


NO_INTERVALS = "No intervals over sentences"
"""Beginning of the outcome of an experiment without readable texts."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Means over seeds and the outcome of an experiment."""

    results: str
    """``results_hash`` of the summarised runs."""
    means: list[dict[str, Any]]
    """Rows of ``aggregate_seeds``."""
    outcome: list[str]
    """Sentences of ``compare_all``."""

    @property
    def lacks_texts(self) -> bool:
        """True if corpus or translations could not be read, so that there are no tests."""
        return any(line.startswith(NO_INTERVALS) for line in self.outcome)


def stored_summary(folder: Path, results: Sequence[Result]) -> Summary | None:
    """Read the summary of these results; None if it is missing or of others."""
    path = folder / SUMMARY
    if not path.is_file():
        return None
    summary = read_record(path, Summary, "delete it: the next command computes it again")
    return summary if summary.results == results_hash(results) else None


def results_hash(results: Sequence[Result]) -> str:
    """Compute the sha256 of the known figures of results; no summary depends on their warnings."""
    rows = [asdict(replace(result, warnings=None)) for result in results]
    figures = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def are_trials(results: Sequence[Result]) -> bool:
    """Return whether finished results are of a search, whose trials read no test set."""
    done = [result for result in results if result.status == "done"]
    return bool(done) and all(result.bleu is None and result.perplexity is None for result in done)


def has_means(results: Sequence[Result]) -> bool:
    """Return whether a table for people has means: of several seeds, if all runs are done."""
    labels = [result.label for result in results]
    return len(set(labels)) < len(labels) and all(result.status == "done" for result in results)


def train_commands(experiment: str, results: Sequence[Result]) -> list[str]:
    """Return the commands that train the models of ``results``, usually one."""
    trained = [result for result in results if not result.is_external]
    groups: dict[tuple[str, str], list[str]] = {}
    for label in dict.fromkeys(result.label for result in trained):
        runs = [result for result in trained if result.label == label]
        numbers = ({run.seed for run in runs}, {run.budget for run in runs if run.budget})
        seeds, budgets = (",".join(map(str, sorted(values))) for values in numbers)
        groups.setdefault((seeds, budgets), []).append(label)
    have_same_budgets = len({budgets for _, budgets in groups}) == 1
    commands = []
    for (seeds, budgets), labels in groups.items():
        command = f"attnbench run {shlex.quote(experiment)} --seeds {seeds}"
        command += "" if have_same_budgets else f" --set 'train.budgets=[{budgets}]'"
        commands.append(command if len(groups) == 1 else f"{command} --only {shlex.quote(','.join(labels))}")
    return commands


# Folders of experiments that are shown but not written: published and read-only ones.


def write_protection(folder: Path) -> str:
    """Return "published" or "read-only" if an experiment's folder is protected, else ""."""
    if read_registry(folder).published is not None:
        return "published"
    if not folder.is_dir() or (os.access(folder, os.W_OK) and folder.stat().st_mode & 0o222):
        return ""
    return "read-only"


def check_output_folder(folder: Path) -> None:
    """Raise ValueError if ``folder`` is a file or a protected experiment."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: choose another with --out")
    refuse_writing(folder, "choose another folder with --out")


def refuse_writing(folder: Path, remedy: str) -> None:
    """Raise ValueError with a remedy if an experiment's folder is protected."""
    if protection := write_protection(folder):
        raise ValueError(f"{folder} is {protection}: {remedy}")
