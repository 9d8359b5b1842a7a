"""Designs of a model trained with equal effort: the same data, seeds and learning rates to choose from.

Each design is trained with every learning rate and the first seed, and with the best of them and the other
seeds. The best is that of the lowest validation loss, so no design is judged at a rate that suits
another one. The measure itself chooses, which favours no design: all have as many rates to choose from.
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from compare.analysis.finished_experiment import load_finished
from compare.decoding.translator import Translator
from compare.optim import OptimConfig
from compare.results.run_folder import load_model
from compare.studies.kit import mean
from compare.studies.study import Settings
from compare.studies.tasks import (
    Build,
    Model,
    TranslationTask,
    embedded_task,
    family_of,
    fit,
    translator,
    valid_loss,
)
from data.corpus import Pairs

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Training that all designs share; the rate decays linearly to 0."""

    updates: int = 600
    batch_tokens: int = 512
    measure_every: int = 20
    """Updates between measurements of the validation loss."""
    learning_rates: tuple[float, ...] = (1e-3, 3e-3)
    """Peak rates to choose from."""
    warmup_updates: int = 100
    seeds: Sequence[int]
    """Seeds of weights and batches; the first chooses the rate."""

    @property
    def text(self) -> str:
        """The plan in words, for the description of a method; without the warm-up."""
        rates = " or ".join(f"{rate:g}" for rate in self.learning_rates)
        return (
            f"{self.updates:,} updates of at most {self.batch_tokens:,} target tokens in fp32, Adam at a "
            f"peak learning rate of {rates}, chosen per design by the first of {len(self.seeds)} seeds, then "
            "decaying linearly to 0"
        )


def make_plan(settings: Settings, **changes: Any) -> Plan:
    """Make the plan of a study, with the fields that differ, or a tiny one for a quick run."""
    return Plan(seeds=settings.seeds, **(QUICK if settings.quick else changes))


QUICK: dict[str, Any] = {
    "updates": 2,
    "batch_tokens": 64,
    "measure_every": 1,
    "learning_rates": (1e-3,),
    "warmup_updates": 1,
}
"""The plan of a quick run."""


class Trained(NamedTuple):
    """Validation losses of a design, by seed."""

    learning_rate: float
    """The chosen one."""
    updates: list[int]
    """Updates after which the loss was measured."""
    curves: Sequence[list[float]]
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
        return [mean(losses) for losses in zip(*self.curves, strict=True)]


def train_designs(
    study: str, builds: Mapping[str, Build], task: TranslationTask, plan: Plan
) -> dict[str, Trained]:
    """Train all designs.

    Args:
        study: its name, for messages.
        builds: constructors by label.
        task: the data.
        plan: what all designs share.
    """
    first, *others = plan.seeds
    updates = list(range(plan.measure_every, plan.updates + 1, plan.measure_every))
    trained = {}
    for label, build in builds.items():
        each = partial(train, f"{study}: {label}", build, task, plan)
        tried = {rate: each(rate, first) for rate in plan.learning_rates}
        best = min(tried, key=lambda rate: min(tried[rate][0]))
        curves, models = zip(tried[best], *(each(best, seed) for seed in others), strict=True)
        trained[label] = Trained(best, updates, curves, models)
    return trained


def train(
    label: str, build: Build, task: TranslationTask, plan: Plan, learning_rate: float, seed: int
) -> tuple[list[float], Model]:
    """Train one design with one learning rate and seed.

    Returns:
        The validation losses, and the model with the weights of the lowest.
    """
    torch.manual_seed(seed)
    model = build(*task.sizes)
    batch = task.valid_batch
    losses: list[float] = []
    best: dict[str, Tensor] = {}

    def observe(update: int) -> None:
        if update % plan.measure_every:
            return
        loss = valid_loss(model, batch)
        losses.append(loss if math.isfinite(loss) else math.inf)
        if losses[-1] == min(losses):
            best.update({name: weights.clone() for name, weights in model.state_dict().items()})

    optim = OptimConfig(learning_rate=learning_rate, warmup_updates=plan.warmup_updates)
    amount = {"batch_tokens": plan.batch_tokens, "updates": plan.updates}
    fit(model, task.train, optim, **amount, seed=seed, observe=observe)
    model.load_state_dict(best)
    logger.info(
        f"{label}, learning rate {learning_rate:g}, seed {seed}: loss {losses[-1]:.3f} "
        f"after {plan.updates:,} updates"
    )
    return losses, model


class Translators(NamedTuple):
    """Trained models, for a study that measures what they have learned."""

    method: str
    """How they were made, in words."""
    models: dict[str, dict[int, Translator]]
    """By family and seed."""
    train_src: Collection[str]
    """The sources of their training."""
    test: Pairs
    languages: tuple[str, str]


def obtain_translators(
    study: str, settings: Settings, families: Sequence[str], *, needed: Sequence[str], tests: int = 1
) -> Translators:
    """Train models of some families, or load those of a finished experiment.

    Args:
        study: its name, for messages.
        settings: of the study, which name the experiment, if any.
        families: of ``TRANSLATORS``.
        needed: those that an experiment must have.
        tests: number of test pairs to draw.

    Raises:
        ValueError: the experiment lacks a family of ``needed``, or a seed that all have.
    """
    if settings.runs is None:
        return _train_translators(study, settings, families, tests)
    return _load_translators(settings.runs, settings.data_root, families, needed)


def _train_translators(study: str, settings: Settings, families: Sequence[str], tests: int) -> Translators:
    """Train on the embedded corpus."""
    d, pairs, valid = (16, 60, 10) if settings.quick else (128, 20_000, 200)
    dropout, rates = 0.1, (3e-3, 8e-3)
    plan = make_plan(settings, updates=900, batch_tokens=1_024, measure_every=50, learning_rates=rates)
    task = embedded_task(settings.seed, train=pairs, valid=valid, test=tests)
    builds = {family: translator(family, d, dropout) for family in families}
    method = (
        f"Fresh models ({', '.join(families)}; d = {d}, {d // 16} heads, dropout {dropout}) are trained to "
        f"translate the embedded corpus ({pairs:,} pairs, words): {plan.text}, after {plan.warmup_updates} "
        "updates of warm-up; the weights of the lowest validation loss are kept."
    )
    models = {
        family: dict(zip(plan.seeds, map(task.translator, trained.models), strict=True))
        for family, trained in train_designs(study, builds, task, plan).items()
    }
    return Translators(method, models, task.train_src, task.test, ("en", "de"))


def _load_translators(
    folder: Path, data_root: str, families: Sequence[str], needed: Sequence[str]
) -> Translators:
    """Load the first model of each family in the order of the table, with the seeds that all have."""
    finished = load_finished(folder, data_root=data_root)
    found: dict[str, dict[int, Path]] = {}
    for runs in finished.labels.values():
        family = family_of(runs[0].run.model.architecture)
        if family is not None and family in families:
            found.setdefault(family, {run.result.seed: run.folder for run in runs})
    missing = [family for family in needed if family not in found]
    seeds = sorted(set.intersection(*map(set, found.values()))) if found else []
    if missing or not seeds:
        lack = f"no {missing[0]}" if missing else "no seed that all families have"
        raise ValueError(f"{folder} has {lack}: needs {' and '.join(needed)}, finished")
    corpus = finished.corpus
    return Translators(
        f"The models of the experiment {folder.resolve().name}, of each family the first, with the "
        "seeds that all have.",
        {family: {seed: load_model(folders[seed]) for seed in seeds} for family, folders in found.items()},
        corpus.splits["train"].src,
        corpus.splits[corpus.tests[0]],
        (corpus.src_lang, corpus.tgt_lang),
    )
