"""Settings that all rows of one table share, and their hash, which proves it."""

import hashlib
import json
from typing import Any

from compare.config.run import Run
from compare.config.sections import EMBEDDED_TRAIN_SIZE, DataConfig

NOT_SHARED = {
    "data.root",  # a path of this machine; data_hash covers the content
    "train.seed",
    "train.device",
    "train.deterministic",
    "train.log_every",
    "train.checkpoint_every",
    "train.init_from",  # stands below as what it means
    "train.init_hash",
    "train.accumulate",  # the parts of a batch have the sum of its gradients
    "decode.batch_tokens",  # a translation does not depend on the sentences that are decoded with it
    "budget.reference",
}
"""Settings that rows may differ in, besides [bench] and the model: they change no score, or are the seed."""
NOT_HASHED = {
    "task": "translation",
    "train.average_every": 0,
    "train.ema": 0.0,
    "regularization.consistency": "none",
    "regularization.subword_sampling": 0.0,
}
"""Settings that earlier versions did not have, with the value that has their meaning."""
DECIDED_BY_TIME = {"train.max_updates", "train.valid_every", "train.average_every"}
"""Settings that a budget of time decides for each model."""


def shared_settings(run: Run) -> dict[str, Any]:
    """Return the settings that every row of a table must share, by "section.key".

    They cover the task, the data, the vocabularies, the training budget, the loss and the decoding procedure.
    A ``[[models]]`` table can override none of them. Scoring has no settings; its signatures stand in the
    row.
    """
    settings: dict[str, Any] = {"task": run.task} | {
        name: value
        for name, value in run.settings().items()
        if not name.startswith(("model.", "bench.")) and name not in NOT_SHARED
    }
    settings["data.train_size"] = _training_pairs(run.data)
    if run.train.init_from is not None:  # rows that start so stand in no table with rows that do not
        settings["train.init_from"] = "weights of another run"
    if run.budget.match == "time":
        for name in DECIDED_BY_TIME:
            del settings[name]
    return settings


def _training_pairs(data: DataConfig) -> int | str:
    """Return ``train_size`` as it enters the hash, which is that of before for what was possible before."""
    if data.root and data.train_size:
        return f"the first {data.train_size}"
    return data.train_size or EMBEDDED_TRAIN_SIZE


def settings_hash(run: Run) -> str:
    """Return the sha256 of the shared settings."""
    settings = {name: value for name, value in shared_settings(run).items() if NOT_HASHED.get(name) != value}
    content = json.dumps(settings, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()


def find_difference(run: Run, other: Run) -> str | None:
    """Describe the first shared setting in which two runs differ: "train.max_updates: 20, here 60".

    Args:
        run: the run that is "here".
        other: the run whose value is named first.

    Returns:
        The description, or None if all are equal.
    """
    here, there = shared_settings(run), shared_settings(other)
    for name in dict.fromkeys([*there, *here]):
        if there.get(name) != here.get(name):
            written = [{"task": each.task, **each.settings()}.get(name) for each in (other, run)]
            return _describe_difference(name, *written)
    return None


def find_model_difference(run: Run, other: Run) -> str | None:
    """Describe the first setting of the model in which two runs differ, as ``find_difference`` does.

    Masks are left out: they are files, under another path in each run.
    """
    here, there = run.model_table(), other.model_table()
    for name in dict.fromkeys([*there, *here]):
        values = there.get(name), here.get(name)
        if values[0] != values[1] and not all(str(value).endswith(".npy") for value in values):
            return _describe_difference(f"model.{name}", *values)
    return None


def _describe_difference(name: str, there: Any, here: Any) -> str:
    there, here = ("nothing" if value is None else value for value in (there, here))
    return f"{name}: {there}, here {here}"
