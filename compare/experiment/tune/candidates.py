"""Candidates of a search: trials of one number with all their seeds, and which of them are best."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from compare.experiment.tune.trial_log import TrialResult, trials_by_label


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
