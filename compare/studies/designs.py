"""Designs of a model trained with equal effort: the same data, seeds and learning rates to choose from.

Each design is trained with every learning rate and the first seed, and with the best of them and the other
seeds. The best is that of the lowest validation loss, so no design is judged at a rate that suits
another one. The measure itself chooses, which favours no design: all have as many rates to choose from.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from compare.analysis.tables import Row, Table
from compare.optim import OptimConfig
from compare.studies.figures import Points
from compare.studies.study import Settings
from compare.studies.tasks import Model, TranslationTask, fit, valid_loss

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Design:
    """A model and its warm-up."""

    build: Callable[[int, int], Model]
    """Makes a fresh model from the sizes of the source and target vocabularies."""
    warmup_updates: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Training that all designs share; the rate decays linearly to 0."""

    updates: int
    batch_tokens: int
    measure_every: int
    """Updates between measurements of the validation loss."""
    learning_rates: tuple[float, ...]
    """Peak rates to choose from."""
    seeds: tuple[int, ...]
    """Seeds of weights and batches; the first chooses the rate."""

    @property
    def text(self) -> str:
        """The plan in words, for the description of a method."""
        rates = " or ".join(f"{rate:g}" for rate in self.learning_rates)
        return (
            f"{self.updates:,} updates of at most {self.batch_tokens:,} target tokens in fp32, Adam at a "
            f"peak learning rate of {rates}, chosen per design by the first of {len(self.seeds)} seeds, then "
            "decaying linearly to 0"
        )


def make_plan(
    settings: Settings,
    *,
    updates: int,
    batch_tokens: int = 512,
    measure_every: int = 20,
    learning_rates: tuple[float, ...] = (1e-3, 3e-3),
) -> Plan:
    """Make a plan with three seeds from that of the study on, or a tiny one for a quick run."""
    if settings.quick:
        return Plan(updates=2, batch_tokens=64, measure_every=1, learning_rates=(1e-3,), seeds=(1, 2))
    return Plan(
        updates=updates,
        batch_tokens=batch_tokens,
        measure_every=measure_every,
        learning_rates=learning_rates,
        seeds=tuple(settings.seed + n for n in range(3)),
    )


class Trained(NamedTuple):
    """Validation losses of a design, by seed."""

    learning_rate: float
    """The chosen one."""
    updates: list[int]
    """Updates after which the loss was measured."""
    curves: list[list[float]]
    """Loss per target token in nats, per seed and measurement; infinite where training has diverged."""
    models: Sequence[Model] = ()
    """The model of each seed, with the weights of its lowest loss."""

    @property
    def final(self) -> list[float]:
        """The loss after the last update, by seed."""
        return [curve[-1] for curve in self.curves]

    @property
    def mean_curve(self) -> list[float]:
        """The mean over seeds at each measurement."""
        return [sum(losses) / len(losses) for losses in zip(*self.curves, strict=True)]

    def updates_until(self, losses: Sequence[float]) -> list[float]:
        """Find after how many updates each seed is at or below its entry of ``losses``; infinite if never."""
        return [
            next((n for n, value in zip(self.updates, curve, strict=True) if value <= loss), math.inf)
            for curve, loss in zip(self.curves, losses, strict=True)
        ]

    def row(self) -> Row:
        """Summarise as a table row."""
        by_seed = {f"loss_{number}": loss for number, loss in enumerate(self.final, start=1)}
        return {"learning_rate": self.learning_rate, "final_loss": self.mean_curve[-1]} | by_seed


def tables(trained: Mapping[str, Trained]) -> dict[str, Table]:
    """Make the tables of final losses and of mean curves."""
    updates = next(iter(trained.values())).updates
    curves = [
        {"updates": n, **{label: each.mean_curve[index] for label, each in trained.items()}}
        for index, n in enumerate(updates)
    ]
    return {
        "designs": Table(
            "Learning rate chosen, mean validation loss after the last update, and that of each seed (nats "
            "per target token).",
            [{"design": label, **each.row()} for label, each in trained.items()],
        ),
        "curves": Table("Mean validation loss by updates.", curves),
    }


def lines(trained: Mapping[str, Trained]) -> dict[str, Points]:
    """Return the mean curves as lines of a plot."""
    return {label: (each.updates, each.mean_curve) for label, each in trained.items()}


def differences(left: Sequence[float], right: Sequence[float]) -> list[float]:
    """Subtract the numbers of each seed: ``left`` - ``right``."""
    return [a - b for a, b in zip(left, right, strict=True)]


def train_designs(
    study: str, designs: Mapping[str, Design], task: TranslationTask, plan: Plan
) -> dict[str, Trained]:
    """Train all designs.

    Args:
        study: its name, for messages.
        designs: by label.
        task: the data.
        plan: what all designs share.
    """
    return {
        label: _train_design(f"{study}: {label}", design, task, plan) for label, design in designs.items()
    }


def _train_design(label: str, design: Design, task: TranslationTask, plan: Plan) -> Trained:
    first, *others = plan.seeds
    tried = {rate: train(label, design, task, plan, rate, first) for rate in plan.learning_rates}
    best = min(tried, key=lambda rate: min(tried[rate][0]))
    done = [tried[best], *(train(label, design, task, plan, best, seed) for seed in others)]
    updates = list(range(plan.measure_every, plan.updates + 1, plan.measure_every))
    return Trained(best, updates, [losses for losses, _ in done], [model for _, model in done])


def train(
    label: str, design: Design, task: TranslationTask, plan: Plan, learning_rate: float, seed: int
) -> tuple[list[float], Model]:
    """Train one design with one learning rate and seed.

    Returns:
        The validation losses, and the model with the weights of the lowest.
    """
    torch.manual_seed(seed)
    model = design.build(*task.sizes)
    batch = task.valid_batch
    losses: list[float] = []
    best: dict[str, Tensor] = {}

    def observe(_: int) -> None:
        loss = valid_loss(model, batch)
        losses.append(loss if math.isfinite(loss) else math.inf)
        if losses[-1] == min(losses):
            best.update({name: weights.clone() for name, weights in model.state_dict().items()})

    fit(
        model,
        task.train,
        OptimConfig(learning_rate=learning_rate, warmup_updates=design.warmup_updates),
        batch_tokens=plan.batch_tokens,
        updates=plan.updates,
        seed=seed,
        observe=observe,
        observe_every=plan.measure_every,
    )
    model.load_state_dict(best)
    logger.info(
        f"{label}, learning rate {learning_rate:g}, seed {seed}: loss {losses[-1]:.3f} "
        f"after {plan.updates:,} updates"
    )
    return losses, model
