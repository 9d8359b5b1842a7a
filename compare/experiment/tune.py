"""Random search for settings (Bergstra and Bengio 2012): an experiment whose models are the candidates.

Every model gets the same draws. A trial is a run like any other, without test sets. The validation set
chooses the best candidate of each model, whose settings are written into best.toml.
"""

import dataclasses
import logging
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Literal, NamedTuple

import msgspec

from compare.config.parse import SCHEMA, absolute_root, parse_value, to_toml
from compare.config.resolve import resolve_model, resolve_models
from compare.config.sections import Experiment, ModelConfig
from compare.experiment.launch import Launch
from compare.experiment.open_runs import choose_models
from compare.experiment.run import run_experiment
from compare.experiment.shorten import WARM_UPS, shorten_warmups
from compare.optim_config import OptimConfig
from compare.results.run_folder import RunFolder
from compare.results.store import REGISTRY, Result, Status, read_result, read_results
from compare.system.log import Reporter
from compare.system.messages import did_you_mean
from compare.training.checkpoints import CHECKPOINTS
from compare.training.log import read_metrics
from data.files import write_atomically
from data.locks import Locked, lock_folder

logger = logging.getLogger(__name__)

TRIALS_FILE, BEST = "trials.jsonl", "best.toml"
"""Files of a search: one JSON object per ended trial, and the experiment with the best settings."""
Criterion = Literal["bleu", "loss"]
LEAST_BLEU = 1.0
"""If no candidate of a model reaches this validation BLEU, BLEU is noise and the loss decides."""


class LogRange(NamedTuple):
    """Positive numbers between two bounds, drawn log-uniformly; whole numbers if both bounds are."""

    low: float
    high: float

    def draw(self, random: Random) -> float:
        """Draw a number with 3 significant digits."""
        value = math.exp(random.uniform(math.log(self.low), math.log(self.high)))
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return min(max(round(value) if whole else float(f"{value:.3g}"), self.low), self.high)


Space = Mapping[str, LogRange | tuple[Any, ...]]
"""Tuned settings by name: a range, or values that are equally likely."""
DEFAULT_SPACE: Space = {"learning_rate": LogRange(3e-4, 3e-2), "dropout": (0.0, 0.1, 0.2, 0.3)}


@dataclass(frozen=True, kw_only=True)
class TuningPlan:
    """Effort of a search, the same for every model."""

    trials: int = 20
    """Trials per model."""
    updates: int = 0
    """Updates per trial; 0: those of the experiment. Warm-ups are shortened in proportion."""
    seed: int = 1
    """Seed of the draws."""
    seeds: Sequence[int] = ()
    """Seeds of weights and batches; their mean decides. By default ``train.seed`` alone."""
    space: Space = field(default_factory=lambda: DEFAULT_SPACE)
    by: Criterion = "bleu"
    """Validation figure that decides; the loss distinguishes close candidates more steadily."""
    only: Sequence[str] = ()
    """Labels of the models to tune, as for ``choose_models``; by default all."""

    def __post_init__(self) -> None:
        if self.trials < 1 or self.updates < 0:
            raise ValueError(f"--trials {self.trials}, --updates {self.updates}: must be at least 1 and 0")


class TrialResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Line of trials.jsonl: a model trained once with drawn settings, measured on the validation set."""

    label: str
    trial: int
    """Number of the draw, counted from 1."""
    seed: int = 1
    settings: dict[str, Any]
    status: Status
    bleu: float | None
    """Validation BLEU by greedy search; None unless done, and for language models."""
    loss: float | None
    best_update: int | None
    updates: int
    seconds: float
    """Seconds of training and validation."""
    code_version: str
    reason: str | None = None
    by: Criterion = "bleu"

    @property
    def score(self) -> float:
        """Validation BLEU; 0 for a trial that failed."""
        return self.bleu or 0.0


@dataclass(frozen=True)
class Candidate:
    """One draw of settings for one model, with the trials of all seeds."""

    results: Sequence[TrialResult]

    @property
    def trial(self) -> int:
        """Number of the draw."""
        return self.results[0].trial

    @property
    def settings(self) -> Mapping[str, Any]:
        """Values of the tuned settings."""
        return self.results[0].settings

    @property
    def translates(self) -> bool:
        """False for a language model."""
        return all(result.status != "done" or result.bleu is not None for result in self.results)

    @property
    def bleu(self) -> float | None:
        """Mean validation BLEU over seeds; None for language models."""
        return fmean(result.score for result in self.results) if self.translates else None

    @property
    def loss(self) -> float:
        """Mean validation loss over the seeds that did not fail; infinite if all failed."""
        return fmean([result.loss for result in self.results if result.loss is not None] or [math.inf])

    @property
    def rank(self) -> tuple[int, float, int]:
        """Sort key, greater for fewer failures, then lower loss, then lower number."""
        failures = sum(result.loss is None for result in self.results)
        return -failures, -self.loss, -self.trial


class Tuning(NamedTuple):
    """Outcome of ``tune_experiment``."""

    trials: Sequence[TrialResult]
    """All trials that have ended."""
    missing: int
    """Number of trials on which other processes still work."""
    best: Path | None
    """best.toml; None while trials are missing, or if all trials of a model have failed."""


def tune_experiment(
    experiment: Experiment,
    folder: str | Path,
    plan: TuningPlan | None = None,
    reporter: Reporter | None = None,
    *,
    context: str = "config",
    launch: Launch | None = None,
) -> Tuning:
    """Search the best settings of every model of an experiment on its validation set.

    The same call continues a search, also with more trials or seeds. Several processes may work in one
    folder. The weights of ended trials are deleted.

    Args:
        experiment: the experiment.
        folder: receives a run folder per trial, trials.jsonl and best.toml.
        plan: number of trials, updates, seeds and space; by default ``TuningPlan()``.
        reporter: shows the progress of training.
        context: the file that error messages name.
        launch: processes that share the trials; by default the trials run one after the other.

    Raises:
        ValueError: settings or data are wrong, or ``folder`` holds another search.
    """
    plan, folder = plan or TuningPlan(), Path(folder)
    candidates, draws = draw_candidates(experiment, plan, context)
    _collect_trials(folder, plan)  # finds mistakes before the training
    seeds, names = plan.seeds or (experiment.train.seed,), list(draws)
    results = run_experiment(
        candidates, folder, reporter, seeds=seeds, only=names, context=context, launch=launch, tests=False
    )
    missing = sum(not _has_ended(result) for result in results)
    with lock_folder(folder, wait=True):
        trials = _collect_trials(folder, plan)
        write_trials(folder, trials)
        is_whole = not missing and find_winners(trials).keys() >= {draw["label"] for draw in draws.values()}
        if is_whole:
            write_atomically(folder / BEST, best_config(experiment, plan, trials))
        else:
            (folder / BEST).unlink(missing_ok=True)  # an earlier call had fewer trials
    for weights in [] if missing else folder.glob(f"*/{CHECKPOINTS}"):
        with suppress(Locked), lock_folder(weights.parent):
            if read_result(weights.parent).status != "unfinished":
                shutil.rmtree(weights)
    return Tuning(trials=trials, missing=missing, best=folder / BEST if is_whole else None)


def draw_candidates(
    experiment: Experiment, plan: TuningPlan, context: str = "config"
) -> tuple[Experiment, dict[str, dict[str, Any]]]:
    """Make the experiment whose models are the candidates.

    Returns:
        The experiment, and "label", "trial" and the drawn settings by label of the candidate.

    Raises:
        ValueError: a model lacks a setting of the space or refuses a value, or it is a size.
    """
    updates = plan.updates or experiment.train.max_updates
    train = replace(experiment.train, max_updates=updates, patience=0)  # every trial gets the same updates
    labels = {run.label for run in choose_models(resolve_models(experiment, context), plan.only)}
    rows = [row for row in experiment.models if row.label in labels]
    tunable = [_tunable(resolve_model(row, context).setting_types()) for row in rows]
    for name in plan.space:
        if not any(name in names for names in tunable):
            names = list(dict.fromkeys(chain.from_iterable(tunable)))
            raise ValueError(
                f"--space {name}: no model has an optimizer or dropout setting of this name, and no other "
                f"setting can be tuned; {did_you_mean(name, names, cutoff=0.6)}"
            )
    draws, models = dict[str, dict[str, Any]](), list[ModelConfig]()
    for number, values in enumerate(draw_settings(plan.space, plan.trials, plan.seed), start=1):
        for row, names in zip(rows, tunable, strict=True):
            settings = {name: value for name, value in values.items() if name in names}
            label = f"{row.label}-trial{number}"
            tuned = replace(row, overrides={**row.overrides, **settings})
            model = resolve_model(tuned, f"{context}: --space")
            warmups = shorten_warmups(model, updates / experiment.train.max_updates)
            models.append(replace(tuned, label=label, overrides={**tuned.overrides, **warmups}))
            draws[label] = {"label": row.label, "trial": number, **settings}
    budget = experiment.budget
    if budget.match != "none":
        reference = budget.reference or experiment.models[0].label
        models += [row for row in experiment.models if row.label == reference]  # it is not trained
        budget = replace(budget, reference=reference)
    scoring = replace(experiment.scoring, baseline="", pairs=())  # candidates have other labels
    return replace(experiment, train=train, budget=budget, scoring=scoring, models=tuple(models)), draws


def _tunable(settings: Iterable[str]) -> list[str]:
    optimizer = {item.name for item in dataclasses.fields(OptimConfig)}
    return [
        name for name in settings if name in optimizer or name.endswith("dropout") or name == "variational"
    ]


def draw_settings(space: Space, trials: int, seed: int) -> list[dict[str, Any]]:
    """Draw the settings of each trial; more trials begin with the same draws.

    With lists only, no combination is drawn twice; too many trials are a ValueError.
    """
    random, names = Random(seed), sorted(space)

    def draw(dimension: LogRange | tuple[Any, ...]) -> Any:
        return dimension.draw(random) if isinstance(dimension, LogRange) else random.choice(dimension)

    if any(isinstance(space[name], LogRange) for name in names):
        return [{name: draw(space[name]) for name in names} for _ in range(trials)]
    grid = list(product(*(space[name] for name in names)))
    if trials > len(grid):
        raise ValueError(f"--trials {trials}: --space has only {len(grid)} combinations")
    random.shuffle(grid)
    return [dict(zip(names, values, strict=True)) for values in grid[:trials]]


def parse_space(texts: Iterable[str]) -> Space:
    """Read a search space from options, which replace settings of ``DEFAULT_SPACE`` or add some.

    A text is ``name=low:high`` (drawn log-uniformly), ``name=a,b,c`` or, for a fixed value, ``name=a``.
    """
    space = dict(DEFAULT_SPACE)
    for text in texts:
        name, _, value = text.partition("=")
        bounds = [parse_value(bound) for bound in value.split(":")]
        numbers = all(type(bound) in (int, float) for bound in bounds)
        if len(bounds) == 2 and numbers and 0 < bounds[0] < bounds[1]:
            space[name.strip()] = LogRange(*bounds)
        elif len(bounds) == 1 and name.strip() and value.strip():
            space[name.strip()] = tuple(map(parse_value, value.split(",")))
        else:
            raise ValueError(
                f"--space {text}: must look like learning_rate=3e-4:3e-2 (a range above 0) or dropout=0,0.1 "
                "(a list)"
            )
    return space


def _has_ended(result: Result) -> bool:
    return result.status != "unfinished" or result.reason is not None


def _collect_trials(folder: Path, plan: TuningPlan) -> list[TrialResult]:
    """Make the records of all ended trials; ValueError if one has other settings than its draw."""
    draws, trials = draw_settings(plan.space, plan.trials, plan.seed), list[TrialResult]()
    for result in read_results(folder) if (folder / REGISTRY).is_file() else ():
        label, _, number = result.label.rpartition("-trial")
        if not (number.isdecimal() and int(number) <= plan.trials and _has_ended(result)):
            continue
        run = RunFolder.read(folder / result.run)
        settings = run.run.model.settings()
        drawn = {name: value for name, value in draws[int(number) - 1].items() if name in settings}
        for name in sorted(drawn.keys() - {*WARM_UPS}):
            if settings[name] != drawn[name]:
                raise ValueError(
                    f"{folder} holds another search ({name} of trial {number} is {settings[name]} "
                    f"there, {drawn[name]} here): choose another folder with --out"
                )
        lines = read_metrics(run.metrics) if run.metrics.is_file() else []
        last = lines[-1] if lines else {}
        if result.status == "done" and last.get("kind") != "final":
            raise ValueError(
                f"{run.metrics} lacks its last line, which has the scores of this trial: delete {run.folder} "
                "and run the same command again, which trains the trial again"
            )
        scores = last if result.status == "done" else {}
        trials.append(
            TrialResult(
                label=label,
                trial=int(number),
                seed=result.seed,
                settings=drawn,
                status=result.status,
                **{name: scores.get(name) for name in ("bleu", "loss", "best_update")},
                updates=last.get("update", 0),
                seconds=round(last.get("seconds", 0.0) + last.get("validation_s", 0.0), 3),
                code_version=result.code_version or "",
                reason=result.reason,
                by=plan.by,
            )
        )
    return trials


def write_trials(folder: Path, trials: Sequence[TrialResult]) -> None:
    """Write trials.jsonl into the folder of a search."""
    write_atomically(folder / TRIALS_FILE, msgspec.json.Encoder().encode_lines(trials))


def read_trials(folder: str | Path) -> list[TrialResult]:
    """Read the ended trials of a search from its folder, or from a published experiment."""
    path = Path(folder) / TRIALS_FILE
    if not path.is_file() or not path.stat().st_size:
        raise ValueError(f"{path}: no trials of a search: name the folder that attnbench tune wrote")
    try:
        return msgspec.json.Decoder(TrialResult).decode_lines(path.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path}: a line is not the result of a trial: {error}; delete the file and repeat the search, "
            "which writes it again"
        ) from None


def group_trials(trials: Iterable[TrialResult]) -> dict[str, list[Candidate]]:
    """Group trials by model, in order of appearance, and then by number."""
    groups: dict[str, dict[int, list[TrialResult]]] = {}
    for trial in trials:
        groups.setdefault(trial.label, {}).setdefault(trial.trial, []).append(trial)
    return {label: [Candidate(group[number]) for number in sorted(group)] for label, group in groups.items()}


def criterion_of(candidates: Sequence[Candidate]) -> Criterion:
    """Return the figure that decides between the candidates of a model."""
    noise = all((candidate.bleu or 0.0) < LEAST_BLEU for candidate in candidates)
    return "loss" if noise else candidates[0].results[0].by


def find_winners(trials: Sequence[TrialResult]) -> dict[str, Candidate]:
    """Find the best candidate of each model among those with the most seeds.

    The highest BLEU wins if BLEU decides (see ``criterion_of``), else ``Candidate.rank``. Failed models have
    no winner.
    """
    winners = {}
    for label, candidates in group_trials(trials).items():
        seeds = max(len(candidate.results) for candidate in candidates)
        usable = [one for one in candidates if len(one.results) == seeds and one.loss < math.inf]
        if usable:
            by_bleu = criterion_of(candidates) == "bleu"
            winners[label] = max(usable, key=lambda one: ((by_bleu and one.bleu) or 0.0, *one.rank))
    return winners


def summarize(trials: Sequence[TrialResult]) -> list[dict[str, Any]]:
    """Return one row per model: its effort, and the settings and scores of its best trial."""
    winners, rows = find_winners(trials), []
    for label, candidates in group_trials(trials).items():
        winner, results = winners.get(label), [trial for trial in trials if trial.label == label]
        row = {
            "label": label,
            "trials": len(candidates),
            "failed": sum(result.status != "done" for result in results),
            "updates_per_trial": max(result.updates for result in results),
            "seconds": sum(result.seconds for result in results),
            "chosen_by": criterion_of(candidates),
            "best_trial": winner and winner.trial,
            **(winner.settings if winner else {}),
            "validation_bleu": winner and winner.bleu,
            "validation_loss": winner and winner.loss,
        }
        if len({trial.seed for trial in trials}) > 1:
            row["seeds"] = winner and len(winner.results)
            scores = [result.score for result in winner.results] if winner and winner.translates else None
            row["lowest_validation_bleu"] = scores and min(scores)
        rows.append(row)
    return rows


def best_config(experiment: Experiment, plan: TuningPlan, trials: Sequence[TrialResult]) -> str:
    """Write the experiment with the best settings as TOML, below a comment about the search."""
    winners, groups = find_winners(trials), group_trials(trials)
    space = ", ".join(
        f"{name} {(':' if isinstance(values, LogRange) else ',').join(map(str, values))}"
        for name, values in plan.space.items()
    )
    lines = [
        f"Made by attnbench tune: trials of {plan.updates or experiment.train.max_updates} updates, the same "
        "random draws",
        f"for all models (seed {plan.seed}) from: {space}.",
        f"The validation set chose; {TRIALS_FILE} lists all trials.",
    ]
    lines += [
        f"{label}: trial {winner.trial} of {len(groups[label])} by {criterion_of(groups[label])}, validation "
        + ("" if winner.bleu is None else f"BLEU {winner.bleu:.2f}, ")
        + f"loss {winner.loss:.3f}, means of {len(winner.results)} seeds"
        for label, winner in winners.items()
    ]
    settings = {label: winner.settings for label, winner in winners.items()}
    tables = [
        {"preset": row.preset, "label": row.label, **row.overrides, **settings.get(row.label, {})}
        for row in experiment.models
    ]
    systems = [{"label": system.label, **system.files} for system in experiment.systems]
    data, train = experiment.data, experiment.train
    sections = experiment.sections() | {  # a path from --set is relative to the working directory
        "data": replace(data, root=absolute_root(data.root, Path())),
        "train": replace(train, init_from=train.init_from and absolute_root(train.init_from, Path())),
    }
    text = to_toml(sections, tables, experiment.plugins, systems)
    comment = "".join(f"# {line}\n" for line in lines)
    seeds = f"seeds = {list(experiment.seeds)}\n" if experiment.seeds else ""
    return f"{comment}\nschema = {SCHEMA}\n{seeds}\n{text}"
