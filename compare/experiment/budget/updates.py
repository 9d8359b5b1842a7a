"""Change the number of updates of a run, and with it every setting that is a share of its training."""

from dataclasses import replace
from math import ceil

from compare.config.run import Run


def with_updates(run: Run, updates: int) -> Run:
    """Return ``run`` with another number of updates and the same plan of training.

    Warm-up, validations, saves of the state and the distance of averaged weights keep their share of the
    training, so that the learning rate follows the same curve and the best checkpoint is chosen from as many
    validations. Patience and the number of averaged weights stay as they are, and so does the decay of a
    moving average. With fewer updates than the square of the number of validations,
    rounding can change that number.

    Args:
        run: the run.
        updates: its new number of updates.
    """
    train = run.train
    return replace(
        with_warmup(run, updates / train.max_updates),
        train=replace(
            train,
            max_updates=updates,
            valid_every=_scaled_interval(train.valid_every, train.max_updates, updates),
            checkpoint_every=ceil(train.checkpoint_every * updates / train.max_updates),
            average_every=ceil(train.average_every * updates / train.max_updates),
        ),
    )


def with_warmup(run: Run, factor: float) -> Run:
    """Return ``run`` with a warm-up ``factor`` times as long; one that is there keeps at least one update."""
    optim = run.model.optim
    warmup = max(min(optim.warmup_updates, 1), round(optim.warmup_updates * factor))
    return replace(run, model=replace(run.model, optim=replace(optim, warmup_updates=warmup)))


def _scaled_interval(interval: int, old_updates: int, updates: int) -> int:
    """Scale the interval between validations; a last validation follows the last update in any case.

    n validations need an interval of at least 1/n of the updates; below 1/(n - 1) the last one is an
    additional one.
    """
    validations = ceil(old_updates / interval)
    scaled = ceil(interval * updates / old_updates)
    if validations > 1:
        scaled = min(scaled, (updates - 1) // (validations - 1))
    return max(1, scaled)
