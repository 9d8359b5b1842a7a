"""Results: the record of one run, and the files of an experiment that keep them.

``runs/<experiment>/<label>-seed<k>/result.json`` is the only source of a run's result; results.jsonl, data
frames, tables and plots derive from it. An unknown figure (not measured, or the run failed before it) is
None, never 0.
"""

import hashlib
import logging
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from compare.config.sections import EXTERNAL, is_shared, run_name
from compare.results.columns import FIGURES, of_test
from compare.system.messages import abbreviate, ensure_folder
from compare.system.plugins import plugin_problem
from data.files import as_paths, write_atomically

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

Status = Literal["done", "failed", "unfinished"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one run; columns.toml explains the figures. Units are part of the names."""

    # Identity and outcome.
    label: str
    seed: int
    budget_updates: int | None = None
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
    # The seeds of a model share the timings of the lowest that has weights.
    train_tokens_per_s: float | None = None
    timed_tokens_per_s: float | None = None
    together_tokens_per_s_per_device: float | None = None
    processes: int | None = None
    devices: int | None = None
    nodes: int | None = None
    timed_tgt_tokens_per_s: float | None = None
    train_mfu: float | None = None
    greedy_sentences_per_s: float | None = None
    beam_sentences_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    latency_ms_p50: float | None = None
    latency_ms_p95: float | None = None
    cpu_share: float | None = None
    reference_ms: float | None = None
    reference_share: float | None = None
    timed_tokens_per_s_low: float | None = None
    timed_tokens_per_s_high: float | None = None
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
    device: str | None = None
    trained_on: str | None = None
    torch: str | None = None
    threads: int | None = None
    cores: int | None = None
    clock_mhz: float | None = None
    timed_together: str | None = None
    data_hash: str | None = None
    batch_hash: str | None = None
    settings_hash: str | None = None
    code_version: str | None = None

    @property
    def run(self) -> str:
        """Name of the run's folder."""
        return run_name(self.label, self.seed, self.budget_updates)

    def to_json(self, indent: int = 2) -> str:
        """Format as one JSON object, without what is unknown or empty; see ``json_text``."""
        record = {name: value for name, value in asdict(self).items() if value is not None and value != {}}
        return json_text(record, indent)

    @property
    def is_external(self) -> bool:
        """Whether it is of an external system, which has no model and no seed."""
        return self.preset == EXTERNAL

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


def json_text(content: Any, indent: int = 2) -> str:
    """Format dataclasses and plain values as JSON; NaN and infinities, which it lacks, become null.

    Args:
        content: the value.
        indent: spaces per level; 0 gives one line.
    """

    def plain(value: Any) -> str | float:
        """Convert what is no plain value: numpy's numbers, and the version of torch, a string of its own."""
        return str(value) if isinstance(value, str) else float(value)

    return msgspec.json.format(msgspec.json.encode(content, enc_hook=plain), indent=indent).decode()


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


# The files.


DTYPES: dict[Any, str] = {int: "int64", int | None: "Int64", float | None: "float64"}
Record = TypeVar("Record")
RUN_NAME = re.compile(r"(?P<label>.+)-seed(?P<seed>0|[1-9]\d{0,17})(?:-budget(?P<budget>[1-9]\d{0,17}))?")


def read_record(path: Path, kind: type[Record], remedy: str) -> Record:
    """Read a JSON file as a typed record.

    Args:
        path: the file.
        kind: dataclass, or another type that msgspec decodes.
        remedy: what to do about a damaged file, for the message.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged; the message names the value.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}: {remedy}") from None


def write_record(path: Path, record: Any) -> None:
    """Write a dataclass, or nested dicts of them, as a JSON file."""
    write_atomically(path, json_text(record) + "\n")


def save_result(folder: Path, result: Result) -> None:
    """Write ``result`` to ``folder``/result.json and create the folder where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "result.json", result.to_json() + "\n")


def read_result(folder: Path) -> Result:
    """Read the result of the run in ``folder``; without a result.json it is an unfinished run of that name.

    Raises:
        ValueError: result.json is damaged.
    """
    path = folder / "result.json"
    if path.exists():
        return read_record(path, Result, "put the run's own back, or delete it and run the experiment again")
    label, seed, budget = _split_name(folder.name)
    return Result(label=label, preset="", seed=seed, budget_updates=budget, status="unfinished")


def read_results(experiment: Path) -> list[Result]:
    """Read the results of all runs of an experiment, unfinished ones included.

    The runs listed under ``"runs"`` in experiment.json come first, in that order, even if not yet started.
    Other runs follow by label and seed.

    Raises:
        ValueError: no runs, or a file that cannot be read.
    """
    ensure_folder(experiment)
    planned = read_registry(experiment).runs
    started = [child.name for child in experiment.glob("*/") if is_run(child)]
    if not planned and not started:
        raise ValueError(f"{experiment} holds no runs: expected <label>-seed<k>/result.json in it")
    others = sorted(
        set(started) - set(planned), key=lambda name: [*_split_name(name)[:2], _split_name(name)[2] or 0]
    )
    return [_read_own_result(experiment / name) for name in [*planned, *others]]


def to_json_lines(results: Iterable[Result]) -> str:
    """Format ``results`` as the content of results.jsonl."""
    return "".join(result.to_json(indent=0) + "\n" for result in results)


def load_results(*folders: str | Path | Sequence[str | Path]) -> "pd.DataFrame":
    """Read experiments and single runs into a data frame.

    Args:
        folders: folders of experiments or of single runs, one by one or as a list.

    Returns:
        One row per run, as ``to_frame``, with the experiment's name in the first column ``experiment``, as
        ``experiment_names`` gives it; docs/data-frame.md lists all columns. A run that is named twice has one
        row.

    Raises:
        ValueError: no folder is given, a folder holds no runs, or a result is damaged.
    """
    import pandas as pd

    paths = [path.resolve() for each in folders for path in as_paths(each)]
    if not paths:
        raise ValueError("no folder: name at least one experiment, such as runs/demo")
    rows: dict[tuple[Path, str], Result] = {}
    for folder in paths:
        experiment, results = (
            (folder.parent, [_read_own_result(folder)]) if is_run(folder) else (folder, read_results(folder))
        )
        rows |= {(experiment, result.run): result for result in results}
    names = experiment_names(experiment for experiment, _ in rows)
    frame = to_frame(rows.values()).copy()  # in one piece: pandas warns above 100 pieces
    experiments = pd.Series([names[experiment] for experiment, _ in rows], dtype=object)  # as all texts
    frame.insert(0, "experiment", experiments)
    return frame


def experiment_names(folders: Iterable[Path]) -> dict[Path, str]:
    """Name experiments by the last part of their paths; by more parts where that does not tell them apart.

    Args:
        folders: their folders.

    Returns:
        The names by resolved path.
    """
    paths = list(dict.fromkeys(folder.resolve() for folder in folders))
    names = [path.name for path in paths]
    depth = 1
    while len(set(names)) < len(paths):
        depth += 1
        names = ["/".join(path.parts[-depth:]) for path in paths]
    return dict(zip(paths, names, strict=True))


def to_frame(results: Iterable[Result]) -> "pd.DataFrame":
    """Convert results to a data frame of one row per result.

    Columns are the fields of ``Result`` in their order, then further metrics and test sets (``Result.flat``).
    """
    import pandas as pd

    types = {each.name: each.type for each in fields(Result) if each.name not in ("tests", "scores", "files")}
    rows = [result.flat() for result in results]
    further = dict.fromkeys(name for row in rows for name in row if name not in types)
    texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    # By default, pandas converts integers beside a None to floats.
    kinds = {name: DTYPES[kind] for name, kind in types.items() if kind in DTYPES}
    kinds |= {name: "float64" for name in further if name not in texts}
    return pd.DataFrame(rows, columns=[*types, *further], dtype=object).astype(kinds)


def _read_own_result(folder: Path) -> Result:
    """Read the result of a run, whose folder must bear its label and seed; import the plug-ins it names.

    Tables, plots and ``check`` find the other files of a run by its label and seed. Without its plug-ins, a
    result is what it is, but their metrics have no headings.
    """
    if problem := plugin_problem(folder):
        _warn(f"{problem}; the stored figures of each run are shown, no means")
    result = read_result(folder)
    if result.run not in (folder.name, run_name(*_split_name(folder.name))):
        raise ValueError(
            f"{folder / 'result.json'} is of label {abbreviate(result.label)} and seed {result.seed}, "
            f"but its folder is not {abbreviate(result.run)}: rename it, or move it out of the experiment"
        )
    return result


@cache
def _warn(text: str) -> None:
    """Log a warning, once for all runs."""
    logger.warning(text)


# The file experiment.json: the runs of an experiment, and what all of them share.


REGISTRY = "experiment.json"


@dataclass(kw_only=True)
class Registry:
    """Content of experiment.json."""

    runs: list[str] = field(default_factory=list)
    """Names of all runs that were begun or are about to be."""
    asked_seeds: dict[str, list[int]] = field(default_factory=dict)
    """Every seed that any call asked for, by label: a run that is taken out later leaves a gap here."""
    data_hash: str = ""
    vocabulary_hash: str = ""
    settings_hash: str = ""
    published: dict[str, str] | None = None
    """Name of the corpus and version of the code, in a published folder."""

    def write(self, folder: Path) -> None:
        """Write experiment.json; what is empty is left out."""
        content = {name: value for name, value in vars(self).items() if value or name == "runs"}
        write_atomically(folder / REGISTRY, json_text(content) + "\n")


def read_registry(folder: Path) -> Registry:
    """Read the experiment.json of a folder; an empty one where there is none.

    Raises:
        ValueError: the file is damaged.
    """
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
    """Split <label>-seed<k>, with or without -budget<b>; another name is a label with seed 0."""
    match = RUN_NAME.fullmatch(name)
    if match is None:
        return name, 0, None
    return match["label"], int(match["seed"]), int(match["budget"]) if match["budget"] else None


# The file summary.json: means over seeds and the outcome of an experiment. They need all translations and a
# bootstrap of their scores, too long for a command that only shows them:
# ``compare.analysis.comparison.summarise`` computes them when the runs have ended.


SUMMARY = "summary.json"


NO_INTERVALS = "No intervals over sentences"
"""Beginning of the outcome of an experiment whose texts could not be read."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Means over seeds and the outcome of an experiment."""

    results: str
    """``results_hash`` of the runs that it is of."""
    means: list[dict[str, Any]]
    """One row per model with a finished run, as ``aggregate_seeds`` makes it, None for what is not known."""
    outcome: list[str]
    """``headlines``; none without translations."""

    @property
    def lacks_texts(self) -> bool:
        """Whether corpus or translations could not be read, without which there are no tests."""
        return any(line.startswith(NO_INTERVALS) for line in self.outcome)


def stored_summary(folder: Path, results: Sequence[Result]) -> Summary | None:
    """Read the summary of these results from an experiment's folder; None if it is missing or of others."""
    path = folder / SUMMARY
    if not path.is_file():
        return None
    summary = read_record(path, Summary, "delete it: the next command computes it again")
    return summary if summary.results == results_hash(results) else None


def results_hash(results: Sequence[Result]) -> str:
    """Compute the sha256 of results as JSON lines."""
    return hashlib.sha256(to_json_lines(results).encode()).hexdigest()


def are_trials(results: Sequence[Result]) -> bool:
    """Return whether finished results are those of a search, whose trials read no test set."""
    done = [result for result in results if result.status == "done"]
    return bool(done) and all(result.bleu is None and result.perplexity is None for result in done)


def has_means(results: Sequence[Result]) -> bool:
    """Return whether a table for people has means: of models with several seeds, if all runs are done.

    Rows that have not ended, or failed, have no place in means and must be seen.
    """
    labels = [result.label for result in results]
    return len(set(labels)) < len(labels) and all(result.status == "done" for result in results)


def train_commands(experiment: str, results: Sequence[Result]) -> list[str]:
    """Return the commands that train the models of ``results`` with their seeds: one, if all have the same.

    Args:
        experiment: name of the file of the experiment.
        results: of the runs; external systems are not trained.
    """
    seeds: dict[str, set[int]] = {}
    for result in results:
        if not result.is_external:
            seeds.setdefault(result.label, set()).add(result.seed)
    labels: dict[tuple[int, ...], list[str]] = {}
    for label, found in seeds.items():
        labels.setdefault(tuple(sorted(found)), []).append(label)
    command = f"attnbench run {shlex.quote(experiment)} --seeds"
    if len(labels) == 1:
        return [f"{command} {','.join(map(str, *labels))}"]
    return [
        f"{command} {','.join(map(str, numbers))} --only {shlex.quote(','.join(names))}"
        for numbers, names in labels.items()
    ]


# Folders of experiments that are shown but not written: published and read-only ones.


def write_protection(folder: Path) -> str:
    """Return "published" or "read-only" if nothing may be written into an experiment's folder, else "".

    A folder whose write permissions have all been taken away is read-only for the superuser too.

    Raises:
        ValueError: experiment.json is damaged.
    """
    if read_registry(folder).published is not None:
        return "published"
    if not folder.is_dir() or (os.access(folder, os.W_OK) and folder.stat().st_mode & 0o222):
        return ""
    return "read-only"


def check_output_folder(folder: Path) -> None:
    """Raise ValueError if ``folder`` is a file, or an experiment that nothing may be written into."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: choose another one with --out")
    refuse_writing(folder, "choose another folder with --out")


def refuse_writing(folder: Path, remedy: str) -> None:
    """Raise ValueError if an experiment's folder is published or read-only.

    Args:
        folder: the folder; it need not exist.
        remedy: what to do instead, for the message.
    """
    if protection := write_protection(folder):
        raise ValueError(f"{folder} is {protection}: {remedy}")
