"""Shorter forms of an experiment: a quick try, and as many updates as a number of minutes allows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from compare.config.resolve import resolve_models
from compare.config.sections import Experiment
from compare.experiment.run import estimate_experiment
from compare.models.registry import ResolvedModel
from compare.results.run_folder import RunFolder

QUICK_MINUTES = 5.0
QUICK = (
    *("train.quick=true", "train.batch_tokens=1024", "budget.match=none"),
    *("decode.beam_size=1", "decode.max_ratio=1", "decode.length_penalties=[1.0]"),
    *("bench.seconds=0", "bench.updates=2", "bench.sentences=50", "bench.latency_sentences=10"),
)
QUICK_WIDTH, QUICK_TEST = 64, 100
"""Largest width of a model in a quick try, and sentences of each of its test sets."""
TRAINING_SHARE = 0.45
"""Share of the time for training; validation, translation of the test sets and timing need the rest."""
VALIDATIONS = 3
WARM_UPS = ("warmup_updates", "attention_warmup")
"""Settings in updates, which become shorter with training."""


def quick_experiment(experiment: Experiment, settings: Sequence[str], context: str = "config") -> Experiment:
    """Return a quick try of an experiment that was read with the values ``QUICK``; its figures mean nothing.

    Args:
        experiment: the experiment.
        settings: the user's ``--set`` values, which stay.
        context: the file that error messages name.
    """
    asked = {setting.partition("=")[0].rpartition(".")[2] for setting in settings}
    if not experiment.systems and "max_test" not in asked:  # the files of systems have all sentences
        experiment = replace(experiment, data=replace(experiment.data, max_test=QUICK_TEST))
    narrow = {
        run.label: {
            name: QUICK_WIDTH
            for name, width in run.model.widths().items()
            if width > QUICK_WIDTH and name not in asked
        }
        for run in resolve_models(experiment, context)
    }
    return _override(experiment, narrow)


def fit_minutes(
    experiment: Experiment,
    folder: Path,
    minutes: float,
    *,
    longer: bool = True,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
) -> Experiment:
    """Return the experiment with as many updates as take about ``minutes`` on this machine.

    Some updates of each model are timed. If runs have begun, their number of updates stays. Without
    ``longer``, there are no more updates than in ``experiment``.

    Raises:
        ValueError: the speed cannot be measured, or ``train.budgets`` gives the numbers of updates.
    """
    if experiment.train.budgets:
        raise ValueError(f"{context}: train.budgets says how long training is: leave --minutes out")
    begun = sorted(folder.glob("*/config.toml"))
    planned = experiment.train.max_updates
    if begun:
        updates = RunFolder.read(begun[0].parent).run.train.max_updates
    else:
        estimates = estimate_experiment(experiment, folder, seeds=seeds, only=only, context=context)
        seconds = [estimate.train_s for estimate in estimates]
        if None in seconds:
            raise ValueError(f"{context}: the speed of training cannot be measured here: leave --minutes out")
        updates = max(1, int(planned * 60 * minutes * TRAINING_SHARE / sum(filter(None, seconds))))
        updates = updates if longer else min(updates, planned)
    if updates == planned:
        return experiment
    every = max(1, updates // VALIDATIONS)
    warmups = {
        run.label: shorten_warmups(run.model, updates / planned)
        for run in resolve_models(experiment, context)
    }
    train = replace(experiment.train, max_updates=updates, valid_every=every, checkpoint_every=every)
    return replace(_override(experiment, warmups), train=train)


def _override(experiment: Experiment, settings: Mapping[str, Mapping[str, int]]) -> Experiment:
    """Set values of models by label."""
    models = [
        replace(row, overrides={**row.overrides, **settings.get(row.label, {})}) for row in experiment.models
    ]
    return replace(experiment, models=tuple(models))


def shorten_warmups(model: ResolvedModel, share: float) -> dict[str, int]:
    """Return the warm-ups of a model whose training has only a share of its updates."""
    warmups = {name: model.settings().get(name) for name in WARM_UPS}
    return {name: max(1, round(count * share)) for name, count in warmups.items() if count}
