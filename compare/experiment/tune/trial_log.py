"""Results of the trials of a search: the file trials.jsonl, one JSON object per ended trial."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from compare.system.messages import abbreviate
from compare.training.metrics_log import is_finite
from data.files import parse_json, read_bytes, write_atomically

TRIALS = "trials.jsonl"
"""Name of the file."""
MAX_BYTES = 100_000_000
"""Size that no trial log reaches."""
MAX_TRIALS = 10_000
"""Number of trials that no search reaches."""


TrialKey = tuple[str, int, int]
"""Label of the model, number of the trial, seed."""


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """Result of one trial: a model trained once with drawn settings, measured on the validation set."""

    label: str
    """Name of the model."""
    trial: int
    """Number of the trial, counted from 1; trials of one number have the same settings."""
    seed: int = 1
    """Seed of weights and batches. Files of earlier versions do not name it: see ``Journal``."""
    settings: Mapping[str, Any]
    """Values of the tuned settings."""
    status: str
    """One of done, diverged, out of memory."""
    bleu: float | None
    """Validation BLEU of the chosen weights, by greedy search; None unless the trial is done."""
    loss: float | None
    """Validation loss of the chosen weights; None unless the trial is done."""
    best_update: int | None
    """Update of the best validation; None unless the trial is done."""
    updates: int
    """Updates of training."""
    seconds: float
    """Seconds of training and validation; what a kill has undone is not counted."""
    code_version: str
    """Version of attnbench that ended the trial."""
    reason: str | None = None
    """Why it failed; None if it is done."""

    def __post_init__(self) -> None:
        """Reject values that no trial has; only reading a damaged file gives them."""
        for field in dataclasses.fields(self):
            if not _is_of_type(getattr(self, field.name), field.type):
                raise ValueError(f"{field.name} cannot be {abbreviate(getattr(self, field.name))}")
        scores = (self.bleu, self.loss, self.best_update)
        if self.status not in ("done", "diverged", "out of memory"):
            raise ValueError(f"status cannot be {abbreviate(self.status)}")
        if (self.status == "done") == (None in scores) or not 1 <= self.trial <= MAX_TRIALS:
            raise ValueError(f"trial {self.trial} cannot be {self.status} with bleu {abbreviate(self.bleu)}")

    @property
    def key(self) -> TrialKey:
        """What identifies the trial in its search."""
        return self.label, self.trial, self.seed

    @property
    def score(self) -> float:
        """Validation BLEU; 0 for a trial that failed, which gives nobody a usable model."""
        return self.bleu or 0.0

    @classmethod
    def from_dict(cls, values: Any, context: str) -> "TrialResult":
        """Make a result from the values of a file.

        Raises:
            ValueError: a field is missing, unknown or impossible; the message begins with ``context``.
        """
        try:
            if isinstance(values, dict):
                return cls(**values)
            problem = "not a JSON object"
        except (TypeError, ValueError) as error:  # TypeError: other fields
            problem = abbreviate(str(error))
        raise ValueError(f"{context}: not the result of a trial: {problem}")


def _is_of_type(value: Any, kind: Any) -> bool:
    """Return whether ``value``, from JSON, can be in a field of type ``kind``."""
    if kind is str:
        return isinstance(value, str) and value.isprintable()
    if kind in (int, float):
        return is_finite(value) and value >= 0 and (kind is float or type(value) is int)
    if get_args(kind) and type(None) in get_args(kind):
        return value is None or _is_of_type(value, get_args(kind)[0])
    return isinstance(value, dict) and all(
        isinstance(item, bool) or _is_of_type(item, str) or is_finite(item) for item in value.values()
    )


def write_trials(folder: Path, trials: Iterable[TrialResult]) -> None:
    """Write trials.jsonl into the folder of a search."""
    lines = (json.dumps(dataclasses.asdict(trial), ensure_ascii=False) + "\n" for trial in trials)
    write_atomically(folder / TRIALS, "".join(lines))


def read_trials(folder: str | Path) -> list[TrialResult]:
    """Read the results of all ended trials of a search.

    Args:
        folder: the folder that ``attnbench tune`` wrote.

    Returns:
        The results by number of the trial, then in the order of the models, then of the seeds.

    Raises:
        OSError: there is no trials.jsonl, or it cannot be read.
        ValueError: a line is not the result of a trial, or a trial occurs twice.
    """
    path = Path(folder) / TRIALS
    trials = []
    for number, line in enumerate(read_bytes(path, max_bytes=MAX_BYTES).splitlines(), start=1):
        context = f"{path}, line {number}"
        try:
            content = parse_json(line)
        except ValueError:
            raise ValueError(f"{context}: not a JSON object") from None
        trials.append(TrialResult.from_dict(content, context))
    if len({trial.key for trial in trials}) < len(trials):
        raise ValueError(f"{path}: a trial occurs twice")
    return trials


def trials_by_label(trials: Sequence[TrialResult]) -> dict[str, list[TrialResult]]:
    """Group trials by model, in the order in which the models first appear."""
    groups: dict[str, list[TrialResult]] = {}
    for trial in trials:
        groups.setdefault(trial.label, []).append(trial)
    return groups
