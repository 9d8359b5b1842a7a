"""A resolved run: one model and one seed of an experiment, with every setting decided."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compare.config.parse import SCHEMA, absolute_root, to_toml
from compare.config.sections import (
    EMBEDDED_TRAIN_SIZE,
    EXTERNAL,
    QUICK_TRY,
    SECTIONS,
    SHARED,
    DecodeConfig,
    Experiment,
    ModelConfig,
    Sections,
    run_name,
)
from compare.models.presets import find_preset
from compare.models.registry import ExternalSystem, ResolvedModel, TaskName
from compare.optim import OptimConfig
from compare.scoring import language_tokenizer
from compare.settings import convert_setting
from compare.system.device import has_fast_bf16, pick_device
from compare.system.messages import abbreviate, did_you_mean
from data.vocabulary import readable

EXTERNAL_MODEL = ResolvedModel(architecture=ExternalSystem(), optim=OptimConfig())
"""What an external system has in place of a model."""


def resolve_model(row: ModelConfig, context: str = "config") -> ResolvedModel:
    """Apply the overrides of a ``[[models]]`` table to its preset.

    Args:
        row: the preset's name, the label and the overrides.
        context: what error messages begin with.

    Raises:
        ValueError: unknown preset or key (with the nearest one), or a value out of range.
    """
    context = f"{context}: models.{row.label}"
    model = EXTERNAL_MODEL if row.preset == EXTERNAL else find_preset(row.preset, f"{context}: ").model
    kinds = model.setting_types()
    values = {}
    for key, value in row.overrides.items():
        if key not in kinds:
            raise ValueError(f"{context}: unknown key {abbreviate(key)}; {_suggest(key, kinds)}")
        values[key] = convert_setting(value, kinds[key], f"{context}: {key}")
    try:
        return model.override(values)
    except ValueError as error:
        raise ValueError(f"{context}: {error}") from None


def _suggest(key: str, known: Iterable[str]) -> str:
    """Suggest the nearest setting of a model, or say that all models share the setting ``key``."""
    for section, kind in SECTIONS.items():
        if key != "seed" and any(each.name == key for each in dataclasses.fields(kind)):
            return f"all models share it: write it into [{section}], or --set {section}.{key}=VALUE"
    return did_you_mean(key, known, cutoff=0.5)


@dataclass(frozen=True, kw_only=True)
class Run(Sections):
    """One model and one seed of an experiment; made once, by ``resolve_models``, and handed down.

    Everything is decided: ``data.root`` is absolute or empty, device, precision and tokenizer are never
    "auto", ``decode.batch_tokens`` is never 0, and a matched budget says what it was matched to.
    """

    label: str
    """Name of the model in tables and folders."""
    preset: str
    """Preset that the model was made from."""
    model: ResolvedModel
    """Architecture and optimizer settings."""
    plugins: tuple[str, ...] = field(default=(), compare=False)
    """Modules of plug-ins that the results depend on; runs that differ in these alone are the same run."""

    @property
    def name(self) -> str:
        """<label>-seed<k>, the name of the run's folder; with -budget<b> where there are several."""
        return run_name(self.label, self.train.seed, self.train.budget)

    @property
    def task(self) -> TaskName:
        """What the model is trained and judged for, the same for all models of an experiment."""
        return self.model.task

    @property
    def translates(self) -> bool:
        """Whether the model searches for translations, which are scored, timed and checked."""
        return self.task == "translation"

    @property
    def is_external(self) -> bool:
        """Whether it is an external system: translations of another program, without model and training."""
        return self.preset == EXTERNAL

    def model_table(self) -> dict[str, Any]:
        """The ``[[models]]`` table that gives this model, every setting written out."""
        known = {} if self.is_external else self.model.settings()
        settings = {name: value for name, value in known.items() if value is not None}
        return {"preset": self.preset, "label": self.label, **settings}

    def settings(self) -> dict[str, Any]:
        """Every setting by "section.key", defaults resolved; those of the model are "model.key"."""
        sections = {
            f"{name}.{key}": value
            for name, section in self.sections().items()
            for key, value in dataclasses.asdict(section).items()
        }
        model = {f"model.{key}": value for key, value in self.model_table().items() if key != "label"}
        return sections | model

    def recorded_settings(self) -> dict[str, Any]:
        """The settings that a result records: those that differ from their defaults, by "section.key".

        The defaults of "model.key" are those of the preset. Files of attention masks are not recorded: their
        paths hold for one machine.
        """
        if self.is_external:  # the settings of training and search are not its own
            return {}
        preset = find_preset(self.preset).model.settings()
        defaults = SHARED | {f"model.{key}": value for key, value in preset.items()}
        settings = {name: value for name, value in self.settings().items() if name in defaults}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
            if value != defaults[name] and not str(value).endswith(".npy")
        }

    def readable(self, lines: Sequence[str]) -> Sequence[str]:
        """Return lines of the corpus as people read them and as translations are scored: pieces joined."""
        return readable(lines, self.vocabulary.kind)

    @property
    def warnings(self) -> list[str]:
        """What to know of the settings."""
        warm_up, updates = self.model.optim.warmup_updates, self.train.max_updates
        found, held = [QUICK_TRY] * self.train.quick, self.model.settings().get("attention_warmup", 0)
        if warm_up > updates:
            found.append(f"the warm-up of {warm_up:,} updates is longer than the training of {updates:,}")
        if held >= updates:
            found.append(f"attention_warmup {held:,} lasts for all {updates:,} updates: no score is trained")
        if held and self.train.init_from is not None:
            found.append(
                f"attention that init_from has trained is not used for {held:,} updates: "
                "set attention_warmup = 0"
            )
        return found

    def with_seed(self, seed: int) -> "Run":
        """Return the same run with another seed.

        Args:
            seed: seed of weights, dropout and batch order.
        """
        return dataclasses.replace(self, train=dataclasses.replace(self.train, seed=seed))

    def by_budget(self) -> "list[Run]":
        """Return the run of each budget, smallest first; the run itself without budgets."""
        budgets = self.train.budgets
        return [dataclasses.replace(self, train=self.train.for_budget(each)) for each in budgets] or [self]

    def to_toml(self) -> str:
        """Write config.toml: ``RunFolder.read`` reads the same run from it."""
        return f"schema = {SCHEMA}\n\n{runs_to_toml([self])}"


def resolve_models(
    experiment: Experiment, context: str = "config", *, other_machine: bool = False
) -> list[Run]:
    """Decide the settings of each model, what is left to the device, and ``data.root``.

    Left to the device are ``train.device`` and ``train.precision`` where they are "auto", and
    ``decode.batch_tokens`` where it is 0.

    A ``data.root`` that is still relative is resolved against the working directory, so that the
    config.toml of a run is right from anywhere.

    A matched budget is decided later, by ``match_budget``, which needs the data.

    Args:
        experiment: the experiment as written and checked.
        context: the file that error messages name.
        other_machine: accept a device that this machine lacks, to read what another machine has trained.

    Returns:
        One run per model, in the order of the experiment, with the seed of ``[train]``.

    Raises:
        ValueError: an unknown preset or setting, a value out of range, models of different tasks,
            consistency regularisation of sampled attention, or a device that is not there.
    """
    models = [resolve_model(row, context) for row in experiment.models]
    task, method = models[0].task, experiment.regularization.consistency
    if experiment.train.budgets:
        models = [
            _on_trunk(*pair, experiment, context) for pair in zip(experiment.models, models, strict=True)
        ]
    for row, model in zip(experiment.models, models, strict=True):
        if model.task != task:
            raise ValueError(
                f"{context}: models.{experiment.models[0].label} is for {task} and models.{row.label} for "
                f"{model.task}, whose figures do not compare: give each task an experiment file of its own"
            )
        if method != "none" and model.settings().get("normaliser") == "reinforce":
            raise ValueError(
                f'{context}: regularization.consistency = "{method}" cannot train models.{row.label}, whose '
                'normaliser "reinforce" samples positions, which no gradient of the KL divergence reaches: '
                "leave one of the two out"
            )
    device, precision = experiment.train.device, experiment.train.precision
    if device == "auto" or not other_machine:
        device = str(pick_device(device))
    if precision == "auto":
        precision = "bf16" if has_fast_bf16(pick_device(device)) else "fp32"
    train = dataclasses.replace(experiment.train, device=device, precision=precision)
    decode = dataclasses.replace(experiment.decode, batch_tokens=experiment.decode.batch_tokens_on(device))
    if task == "language modelling":  # nothing is searched: every other setting of search means the same
        decode = DecodeConfig(batch_tokens=decode.batch_tokens, beam_size=1, length_penalties=(0.0,))
    data = dataclasses.replace(experiment.data, root=absolute_root(experiment.data.root, Path()))
    scoring = experiment.scoring
    if scoring.tokenize == "auto":
        scoring = dataclasses.replace(scoring, tokenize=language_tokenizer(data.tgt))
    sections = {**experiment.sections(), "data": data, "train": train, "decode": decode, "scoring": scoring}
    return [
        Run(
            label=row.label,
            preset=row.preset,
            model=model,
            plugins=experiment.plugins,
            **sections,
        )
        for row, model in zip(experiment.models, models, strict=True)
    ]


def _on_trunk(row: ModelConfig, model: ResolvedModel, experiment: Experiment, context: str) -> ResolvedModel:
    """Give a model the schedule that several budgets need; ValueError if it is given another one."""
    optim, smallest = model.optim, experiment.train.for_budget(experiment.train.budgets[0])
    if row.overrides.get("schedule", "stable") != "stable":
        raise ValueError(
            f'{context}: models.{row.label}: schedule = "{optim.schedule}" has one end, and train.budgets '
            'needs "stable": leave schedule out'
        )
    if optim.warmup_updates >= smallest.branch_update:
        raise ValueError(
            f"{context}: models.{row.label}: warmup_updates = {optim.warmup_updates} does not end before the "
            f"smallest of train.budgets leaves the trunk, after {smallest.branch_update} updates: shorten "
            "it, or raise that budget"
        )
    return model.override({"schedule": "stable"})


def runs_to_toml(
    runs: Sequence[Run], systems: Iterable[Mapping[str, Any]] = (), *, own_starts: bool = False
) -> str:
    """Write the experiment of one run of each model, with the sections of the first, and of ``[[systems]]``.

    Args:
        runs: the runs.
        systems: further tables.
        own_starts: whether each run was fine-tuned from the run of its name in another experiment, which
            ``init_from`` then names.
    """
    first, *_ = runs
    if own_starts and first.train.init_from is not None:
        start = str(Path(first.train.init_from).parent)
        train = dataclasses.replace(first.train, init_from=start, init_hash=None)
        first = dataclasses.replace(first, train=train)
    plugins = dict.fromkeys(name for run in runs for name in run.plugins)
    return to_toml(first.sections(), [run.model_table() for run in runs], list(plugins), systems)


# Settings that all rows of one table share, and their hash, which proves it.


DEFAULTS: dict[str, Any] = {"task": "translation", **SHARED}
"""The settings that rows must share, by "section.key", with their defaults."""


def shared_settings(run: Run) -> dict[str, Any]:
    """Return the settings that every row of a table must share, by "section.key".

    They cover the task, the data, the vocabularies, the training budget, the loss and the decoding procedure.
    A ``[[models]]`` table can override none of them. ``compare.config.sections`` declares which settings rows
    may differ in.
    """
    written = {"task": run.task, **run.settings()}
    settings = {name: written[name] for name in DEFAULTS}
    if not (run.data.root or run.data.train_size):
        settings["data.train_size"] = EMBEDDED_TRAIN_SIZE
    if run.scoring.tokenize == language_tokenizer(run.data.tgt):
        settings["scoring.tokenize"] = "auto"
    if run.train.budgets:  # all budgets of an experiment share their settings, later ones too
        settings["train.max_updates"] = "budgets"
    if run.train.init_from is not None:  # rows that start so stand in no table with rows that do not
        settings["train.init_from"] = "weights of another run"
    return settings


def settings_hash(run: Run) -> str:
    """Return the sha256 of the shared settings that differ from their defaults.

    So a setting that a later version adds, with a default that means what was before, changes no hash.
    """
    settings = {name: value for name, value in shared_settings(run).items() if value != DEFAULTS.get(name)}
    content = json.dumps(settings, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()


def find_difference(run: Run, other: Run) -> str | None:
    """Describe the first shared setting in which two runs differ: "train.max_updates: 20, here 60".

    Args:
        run: the run that is "here".
        other: the run whose value is named first.

    Returns:
        The description, or None if all are equal.
    """
    here, there = shared_settings(run), shared_settings(other)
    for name in dict.fromkeys([*there, *here]):
        if there.get(name) != here.get(name):
            was, now = ("nothing" if each.get(name) is None else each[name] for each in (there, here))
            return f"{name}: {was}, here {now}"
    return None
