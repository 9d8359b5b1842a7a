"""Results of the trials of a search: the file trials.jsonl, one JSON object per ended trial."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from compare.system.hints import abbreviate
from compare.training.metrics_log import is_finite
from data.text.files import parse_json, read_bytes, write_atomically

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


@dataclass(frozen=True)
class Candidate:
    """Settings of one number for one model, with the results of all seeds that they were tried with."""

    results: Sequence[TrialResult]
    """One per seed, that of the search's first seed first."""

    @property
    def label(self) -> str:
        """Name of the model."""
        return self.results[0].label

    @property
    def trial(self) -> int:
        """Number of the trial."""
        return self.results[0].trial

    @property
    def settings(self) -> Mapping[str, Any]:
        """Values of the tuned settings."""
        return self.results[0].settings

    @property
    def bleu(self) -> float:
        """Mean validation BLEU over seeds; a seed with which training failed counts as 0."""
        return fmean(result.score for result in self.results)

    @property
    def lowest_bleu(self) -> float:
        """Validation BLEU of the worst seed."""
        return min(result.score for result in self.results)

    @property
    def loss(self) -> float:
        """Mean validation loss over the seeds with which training did not fail; infinite if there is none."""
        return fmean([each.loss for each in self.results if each.loss is not None] or [math.inf])

    @property
    def rank(self) -> tuple[float, float, int]:
        """Greater for a better candidate: higher BLEU, then lower loss, then lower number."""
        return self.bleu, -self.loss, -self.trial


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


def candidates(trials: Iterable[TrialResult]) -> list[Candidate]:
    """Group the trials of one model by number, in the order of the numbers."""
    ordered = sorted(trials, key=lambda each: each.trial)  # stable, so the first seed stays first
    return [Candidate(list(group)) for _, group in groupby(ordered, key=lambda each: each.trial)]


def find_finalists(trials: Iterable[TrialResult], number: int) -> list[int]:
    """Find the trials of one model with the highest validation BLEU; those that failed are never among them.

    Args:
        trials: all trials of the model, with one seed each.
        number: how many.

    Returns:
        At most ``number`` numbers of trials, the best first.
    """
    done = [each for each in candidates(trials) if each.loss < math.inf]
    return [each.trial for each in sorted(done, key=lambda each: each.rank, reverse=True)[:number]]


def find_winners(trials: Sequence[TrialResult]) -> dict[str, Candidate]:
    """Find the best candidate of each model, of those with the most seeds.

    The best has the highest mean validation BLEU; equal BLEU: the lower loss, then the lower number. A model
    whose trials have all failed has none.
    """
    winners = {}
    for label, group in trials_by_label(trials).items():
        found = candidates(group)
        seeds = max(len(each.results) for each in found)
        usable = [each for each in found if len(each.results) == seeds and each.loss < math.inf]
        if usable:
            winners[label] = max(usable, key=lambda each: each.rank)
    return winners


def summarize(trials: Sequence[TrialResult]) -> list[dict[str, Any]]:
    """Summarize a search in one row per model: its effort, and the settings and scores of its best trial."""
    winners = find_winners(trials)
    rows = []
    for label, group in trials_by_label(trials).items():
        winner = winners.get(label)
        rows.append(
            {
                "label": label,
                "trials": len(candidates(group)),
                "failed": sum(trial.status != "done" for trial in group),
                "updates_per_trial": max(trial.updates for trial in group),
                "seconds": sum(trial.seconds for trial in group),
                "best_trial": winner and winner.trial,
                **(winner.settings if winner else {}),
                "validation_bleu": winner and winner.bleu,
                "validation_loss": winner and winner.loss,
            }
        )
        if len({trial.seed for trial in trials}) > 1:
            rows[-1] |= {
                "seeds": winner and len(winner.results),
                "lowest_validation_bleu": winner and winner.lowest_bleu,
            }
    return rows
