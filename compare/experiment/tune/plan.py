"""Plan of a search: what is drawn, and the runs that every trial starts from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compare.config.parse import load_experiment
from compare.config.run import Run, resolve_models
from compare.config.sections import Experiment
from compare.config.toml import find_experiment
from compare.experiment.budget import find_reference, match_budget, with_warmup
from compare.experiment.folder import choose_models
from compare.experiment.launch.node_settings import resolve_for_nodes
from compare.experiment.launch.slurm_options import SlurmOptions
from compare.experiment.prepare import PreparedData, ensure_models_fit, prepare_data
from compare.experiment.task import task_of
from compare.experiment.tune.candidates import find_finalists
from compare.experiment.tune.space import (
    DEFAULT_SPACE,
    Space,
    apply_settings,
    draw_settings,
    ensure_tunable,
)
from compare.experiment.tune.trial_log import MAX_TRIALS, TrialKey, TrialResult


@dataclass(frozen=True, kw_only=True)
class TuningPlan:
    """Effort of a search, the same for every model."""

    trials: int = 20
    """Trials per model."""
    updates: int = 0
    """Updates per trial; 0: those of the experiment."""
    seed: int = 1
    """Seed of the draws."""
    seeds: Sequence[int] = ()
    """Seeds of weights and batches, the first of them for all trials; by default the experiment's alone."""
    finalists: int = 0
    """How many trials of each model are repeated with the other seeds, those with the highest validation BLEU
    with the first; 0: all."""
    space: Space = field(default_factory=lambda: DEFAULT_SPACE)
    """Tuned settings; see ``parse_space``."""
    only: Sequence[str] = ()
    """As for ``choose_models``."""

    def __post_init__(self) -> None:
        """Reject numbers out of range."""
        if not 1 <= self.trials <= MAX_TRIALS:
            raise ValueError(f"--trials must be from 1 to {MAX_TRIALS:,}, found {self.trials}")
        if self.updates < 0:
            raise ValueError(f"--updates must be at least 0, found {self.updates}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed must be from 0 to 2**32 - 1, found {self.seed}")
        if self.finalists and len(self.seeds) < 2:
            raise ValueError("--finalists has no effect without several --seeds, such as 1,2,3")
        if self.finalists and not 2 <= self.finalists <= self.trials:
            raise ValueError(
                f"--finalists must be from 2 to the number of trials, {self.trials}, or 0 for all of them, "
                f"found {self.finalists}"
            )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One model with the settings of one draw and one seed."""

    run: Run
    """The model before the tuned settings are applied, with the updates and the seed of a trial."""
    number: int
    """Number of the draw, counted from 1."""
    settings: Mapping[str, Any]
    """Values of the tuned settings."""
    is_repeated: bool = False
    """Whether its seed is not the first of the search."""

    @property
    def key(self) -> TrialKey:
        """What the journal knows the trial by."""
        return self.run.label, self.number, self.run.train.seed

    @property
    def name(self) -> str:
        """Name in messages."""
        seed = f" seed {self.run.train.seed}" if self.is_repeated else ""
        return f"{self.run.label} trial {self.number}{seed}"


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search whose settings have been checked."""

    config: Path
    """The experiment's file."""
    experiment: Experiment
    """The experiment as written, with overrides; ``runs`` have the updates of a trial instead."""
    plan: TuningPlan
    runs: Sequence[Run]
    """One run per model, before the tuned settings are applied."""
    draws: Sequence[Mapping[str, Any]]
    """Settings of each trial, the same for every model."""

    @property
    def tuned(self) -> list[Run]:
        """The runs of the models that are tuned."""
        return choose_models(self.runs, self.plan.only)

    @property
    def seeds(self) -> Sequence[int]:
        """Seeds of weights and batches; the first is that of all trials."""
        return self.plan.seeds or (self.runs[0].train.seed,)

    def trials(self, ended: Mapping[TrialKey, TrialResult]) -> list[Trial]:
        """List the trials of the tuned models that have ended or can be begun, the first of each model first.

        Those with other seeds than the first follow; of a model whose finalists are not known yet, none.
        """
        return self._trials_of(self.tuned, ended)

    def knows_finalists(self, ended: Mapping[TrialKey, TrialResult]) -> bool:
        """Return whether it is decided for all tuned models which trials are repeated with other seeds."""
        return not any(self._count_unknown(run, ended) for run in self.tuned)

    def with_effort(self, description: Mapping[str, Any]) -> "Search":
        """Return the search with as many trials, seeds and finalists as ``read_description`` read."""
        seeds, trials = description["seeds"], description["trials"]
        plan = replace(self.plan, trials=trials, seeds=seeds, finalists=description["finalists"])
        return replace(self, plan=plan, draws=draw_settings(plan.space, trials, plan.seed))

    def count_missing(self, run: Run, ended: Mapping[TrialKey, TrialResult]) -> int:
        """Count the trials of a model that have not ended, those that cannot be begun yet included."""
        left = sum(trial.key not in ended for trial in self._trials_of([run], ended))
        return left + self._count_unknown(run, ended)

    def count_trials(self, ended: Mapping[TrialKey, TrialResult]) -> int:
        """Count all trials of the tuned models, those that cannot be begun yet included."""
        return len(self.trials(ended)) + sum(self._count_unknown(run, ended) for run in self.tuned)

    def _trials_of(self, runs: Sequence[Run], ended: Mapping[TrialKey, TrialResult]) -> list[Trial]:
        again = {run.label: self._numbers_to_repeat(run, ended) or () for run in runs}
        return [
            Trial(run=run.with_seed(seed), number=number, settings=draw, is_repeated=seed != self.seeds[0])
            for seed in self.seeds
            for number, draw in enumerate(self.draws, start=1)
            for run in runs
            if seed == self.seeds[0] or number in again[run.label]
        ]

    def _numbers_to_repeat(self, run: Run, ended: Mapping[TrialKey, TrialResult]) -> Sequence[int] | None:
        """Return the numbers of the trials that the other seeds are for; None while that is not known."""
        numbers = range(1, len(self.draws) + 1)
        if not self.plan.finalists:
            return numbers
        results = [ended.get((run.label, number, self.seeds[0])) for number in numbers]
        known = [result for result in results if result is not None]
        return find_finalists(known, self.plan.finalists) if len(known) == len(numbers) else None

    def _count_unknown(self, run: Run, ended: Mapping[TrialKey, TrialResult]) -> int:
        """Count the trials of a model that cannot be begun before its finalists are known."""
        is_known = self._numbers_to_repeat(run, ended) is not None
        return 0 if is_known else self.plan.finalists * (len(self.seeds) - 1)

    def prepare(self, encoded: Path) -> tuple["Search", PreparedData]:
        """Read the data without its test sets, and match the budget.

        Args:
            encoded: folder of the encoded splits.

        Raises:
            ValueError: data or vocabulary cannot be used, a budget cannot be met, or a model needs more
                memory than this machine has.
        """
        settings = replace(self.experiment, train=self.runs[0].train)
        prepared = prepare_data(settings, encoded, tests=False)
        runs = match_budget(self.runs, prepared, {})
        ensure_models_fit(runs, prepared.vocabulary_sizes)
        return replace(self, runs=runs), prepared


def plan_search(
    config: str | Path, plan: TuningPlan, overrides: Sequence[str] = (), slurm: SlurmOptions | None = None
) -> Search:
    """Read the experiment and draw the settings of all trials.

    Args:
        config: the experiment's file.
        plan: the effort.
        overrides: settings that replace those of the file.
        slurm: what the jobs of a cluster ask for, on whose nodes the trials run; None: they run here.

    Raises:
        OSError: the file cannot be read.
        ValueError: bad settings, a space that does not fit every model, a budget of time, or no cluster.
    """
    if find_spec("optuna") is None:
        raise ValueError("attnbench tune needs optuna, which is not installed: pip install 'attnbench[tune]'")
    experiment = load_experiment(config, overrides)
    if experiment.budget.match == "time":
        raise ValueError(
            f"{config}: budget.match = 'time' cannot be tuned, as trials are equal in updates: "
            "add --set budget.match=none, and put the best settings into the experiment"
        )
    if experiment.train.init_from is not None:
        raise ValueError(f"{config}: train.init_from cannot be tuned: trials start from random weights")
    updates = plan.updates or experiment.train.max_updates
    seed = plan.seeds[0] if plan.seeds else experiment.train.seed
    train = replace(experiment.train, max_updates=updates, patience=0, seed=seed)  # no trial is stopped early
    decided = replace(experiment, train=train)
    runs = resolve_for_nodes(decided, str(config), slurm) if slurm else resolve_models(decided, str(config))
    if not task_of(runs[0]).translates:
        raise ValueError(
            f"{config}: trials are compared by validation BLEU, which language models do not have: tune "
            "them by hand, by the validation loss in metrics.jsonl"
        )
    find_reference(runs)
    share = updates / experiment.train.max_updates  # with the whole warm-up, a short trial would end in it
    runs = [with_warmup(run, share) for run in runs]
    draws = draw_settings(plan.space, plan.trials, plan.seed)
    search = Search(config=find_experiment(config), experiment=experiment, plan=plan, runs=runs, draws=draws)
    ensure_tunable(plan.space, search.tuned)
    for run in search.tuned:
        for draw in draws:
            warmup = apply_settings(run, draw).model.optim.warmup_updates
            if "warmup_updates" in draw and warmup >= updates:
                raise ValueError(
                    f"--space warmup_updates: {warmup:,} was drawn, but a trial has {updates:,} updates, "
                    "which would all be warm-up: lower the range, or give trials more --updates"
                )
    return search
