"""Shorter forms of an experiment: a quick try, and as many updates as a number of minutes allows."""

from collections.abc import Sequence
from pathlib import Path

from compare.config.resolve import resolve_models
from compare.config.sections import Experiment
from compare.experiment.dry_run import estimate_experiment
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


def quick_settings(experiment: Experiment, context: str = "config") -> list[str]:
    """Return the ``--set`` values of a quick try; its figures mean nothing."""
    test = [] if experiment.systems else [f"data.max_test={QUICK_TEST}"]  # their files have all sentences
    return [*QUICK, *test] + [
        f"models.{run.label}.{name}={QUICK_WIDTH}"
        for run in resolve_models(experiment, context)
        for name, width in run.model.widths().items()
        if width > QUICK_WIDTH
    ]


def minutes_settings(
    experiment: Experiment,
    folder: Path,
    minutes: float,
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    context: str = "config",
) -> list[str]:
    """Return the ``--set`` values with which an experiment takes about ``minutes`` on this machine.

    Some updates of each model are timed. If runs have begun, their number of updates stays.

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
    if updates == planned:
        return []
    every = max(1, updates // VALIDATIONS)
    names = ("train.valid_every", "train.checkpoint_every")
    return [f"train.max_updates={updates}", *(f"{name}={every}" for name in names)] + [
        f"models.{run.label}.{name}={value}"
        for run in resolve_models(experiment, context)
        for name, value in shorten_warmups(run.model, updates / planned).items()
    ]


def shorten_warmups(model: ResolvedModel, share: float) -> dict[str, int]:
    """Return the warm-ups of a model whose training has only a share of its updates."""
    warmups = {name: model.settings().get(name) for name in WARM_UPS}
    return {name: max(1, round(count * share)) for name, count in warmups.items() if count}
