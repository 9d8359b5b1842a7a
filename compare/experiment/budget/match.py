"""Match the models of an experiment to one budget.

For parameters and FLOPs the widths of each model are searched; for time a calibration on this machine decides
how many updates each model gets. The result is written into each run's config.toml.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from compare.config.run import Run
from compare.experiment.budget.updates import with_updates
from compare.experiment.budget.widths import match_widths
from compare.experiment.compute_result import training_flops
from compare.experiment.prepare import PreparedData
from compare.models.meta_model import build_meta_model
from compare.models.registry import Architecture


def match_budget(runs: Sequence[Run], prepared: PreparedData, seconds: Mapping[str, float]) -> list[Run]:
    """Change the widths or updates of every run so that it meets the experiment's budget.

    Args:
        runs: one run per model.
        prepared: the data, for the vocabulary sizes and the mean lengths.
        seconds: seconds per update by label; needed if the budget is time.

    Raises:
        ValueError: a model cannot meet the budget; the message contains the nearest amount it can reach.
    """
    budget = runs[0].budget
    if budget.match == "none":
        return list(runs)
    reference = find_reference(runs)
    if budget.match == "time":
        amount = budget.amount or seconds[reference.label] * reference.train.max_updates
        matched = [_match_time(run, amount, seconds[run.label]) for run in runs]
    else:
        flops = partial(training_flops, passes=runs[0].regularization.passes)
        measure = partial(_params if budget.match == "params" else flops, prepared=prepared)
        amount = budget.amount or measure(reference.model.architecture)
        unchanged = () if budget.amount else (reference,)
        matched = [run if run in unchanged else match_widths(run, amount, measure) for run in runs]
    exact = replace(budget, amount=amount, reference=reference.label)
    return [replace(run, budget=exact) for run in matched]


def find_reference(runs: Sequence[Run]) -> Run:
    """Find the run whose amount the others are matched to.

    Raises:
        ValueError: ``budget.reference`` is no label of the experiment.
    """
    name = runs[0].budget.reference or runs[0].label
    for run in runs:
        if run.label == name:
            return run
    labels = ", ".join(run.label for run in runs)
    raise ValueError(f"budget.reference {name!r} is not a model of this experiment: labels are {labels}")


def _match_time(run: Run, amount: float, seconds_per_update: float) -> Run:
    """Set the number of updates that take ``amount`` seconds, and the intervals that depend on it."""
    updates = round(amount / seconds_per_update)
    if updates < 1:
        raise ValueError(
            f"models.{run.label}: one update takes {seconds_per_update:.2f} s, "
            f"more than the budget of {amount:.2f} s: raise budget.amount"
        )
    return with_updates(run, updates)


def _params(architecture: Architecture, *, prepared: PreparedData) -> float:
    """Count the trainable weights without allocating them."""
    model = build_meta_model(architecture, *prepared.vocabulary_sizes)
    return float(sum(parameter.numel() for parameter in model.parameters()))
