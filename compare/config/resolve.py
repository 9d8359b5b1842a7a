"""Resolve an experiment into runs: one model and one seed each, with every setting decided."""

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
from compare.optim_config import OptimConfig
from compare.scoring import language_tokenizer
from compare.settings import convert_setting
from compare.system.device import has_fast_bf16, pick_device
from compare.system.messages import abbreviate, did_you_mean
from data.vocabulary import readable

EXTERNAL_MODEL = ResolvedModel(architecture=ExternalSystem(), optim=OptimConfig())
DEFAULTS: dict[str, Any] = {"task": "translation", **SHARED}
"""Defaults of the settings that all rows of a table share, by "section.key"."""


def resolve_model(row: ModelConfig, context: str = "config") -> ResolvedModel:
    """Apply the overrides of a ``[[models]]`` table to its preset; ``context`` begins error messages.

    Raises:
        ValueError: the preset or a key is unknown, or a value is out of range.
    """
    context = f"{context}: models.{row.label}"
    model = EXTERNAL_MODEL if row.preset == EXTERNAL else find_preset(row.preset, f"{context}: ").model
    kinds = model.setting_types()
    values = {}
    for key, value in row.overrides.items():
        if key not in kinds:
            hint = did_you_mean(key, kinds, cutoff=0.5)
            for section, fields in SECTIONS.items():
                if key != "seed" and any(item.name == key for item in dataclasses.fields(fields)):
                    hint = f"all models share it: use [{section}], or --set {section}.{key}=VALUE"
            raise ValueError(f"{context}: unknown key {abbreviate(key)}; {hint}")
        values[key] = convert_setting(value, kinds[key], f"{context}: {key}")
    try:
        return model.override(values)
    except ValueError as error:
        raise ValueError(f"{context}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Run(Sections):
    """One model and one seed of an experiment, with every setting decided by ``resolve_models``.

    ``data.root`` is absolute or empty; device, precision and tokenizer are never "auto";
    ``decode.batch_tokens`` is never 0.
    """

    label: str
    """Name of the model in tables and folders."""
    preset: str
    model: ResolvedModel
    plugins: tuple[str, ...] = field(default=(), compare=False)
    """Modules of plug-ins that the results depend on."""

    @property
    def name(self) -> str:
        """Name of the run's folder: <label>-seed<k>, and -budget<b> if there are several budgets."""
        return run_name(self.label, self.train.seed, self.train.budget)

    @property
    def task(self) -> TaskName:
        """Task of the model, the same for all models of an experiment."""
        return self.model.task

    @property
    def translates(self) -> bool:
        """True for a translation model, False for a language model."""
        return self.task == "translation"

    @property
    def is_external(self) -> bool:
        """True if the run holds translations of another program, without model and training."""
        return self.preset == EXTERNAL

    def model_table(self) -> dict[str, Any]:
        """Return the ``[[models]]`` table of this model, with every setting written out."""
        settings = {} if self.is_external else self.model.settings()
        values = {name: value for name, value in settings.items() if value is not None}
        return {"preset": self.preset, "label": self.label, **values}

    def settings(self) -> dict[str, Any]:
        """Return every setting by "section.key"; those of the model are "model.key"."""
        sections = {
            f"{name}.{key}": value
            for name, section in self.sections().items()
            for key, value in dataclasses.asdict(section).items()
        }
        model = {f"model.{key}": value for key, value in self.model_table().items() if key != "label"}
        return sections | model

    def recorded_settings(self) -> dict[str, Any]:
        """Return the shared settings that differ from their defaults, and those of the model from its preset.

        Paths of attention masks are left out, because they hold for one machine.
        """
        if self.is_external:  # the other program had other settings
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
        """Return lines of the corpus with their pieces joined, as they are read and scored."""
        return readable(lines, self.vocabulary.kind)

    @property
    def warnings(self) -> list[str]:
        """Settings that are probably mistakes, one line each."""
        warm_up, updates = self.model.optim.warmup_updates, self.train.max_updates
        lines = [QUICK_TRY] * self.train.quick
        frozen = self.model.settings().get("attention_warmup", 0)
        if warm_up > updates:
            lines.append(f"the warm-up of {warm_up:,} updates is longer than the training of {updates:,}")
        if frozen >= updates:
            lines.append(
                f"attention_warmup {frozen:,} lasts for all {updates:,} updates: no score is trained"
            )
        if frozen and self.train.init_from is not None:
            lines.append(
                f"the attention trained in init_from is not used for the first {frozen:,} updates: "
                "set attention_warmup = 0"
            )
        return lines

    def with_seed(self, seed: int) -> "Run":
        """Return the same run with another seed of weights, dropout and batch order."""
        return dataclasses.replace(self, train=dataclasses.replace(self.train, seed=seed))

    def by_budget(self) -> "list[Run]":
        """Return one run per budget, smallest first; without budgets, the run itself."""
        budgets = self.train.budgets
        return [dataclasses.replace(self, train=self.train.for_budget(size)) for size in budgets] or [self]

    def to_toml(self) -> str:
        """Write the content of config.toml, from which ``RunFolder.read`` reads the same run."""
        return f"schema = {SCHEMA}\n\n{runs_to_toml([self])}"


def resolve_models(
    experiment: Experiment, context: str = "config", *, other_machine: bool = False
) -> list[Run]:
    """Decide all settings of each model, except for the widths of a matched budget, which need the data.

    Args:
        experiment: the experiment as written and checked.
        context: the file that error messages name.
        other_machine: accept a device that this machine lacks, to read what another machine has trained.

    Returns:
        One run per model, in the order of the experiment, with the seed of ``[train]``.

    Raises:
        ValueError: a preset, setting or device does not exist, or the models do not go together.
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
                f"{model.task}, and their figures cannot be compared: write one experiment file per task"
            )
        if method != "none" and model.settings().get("normaliser") == "reinforce":
            raise ValueError(
                f'{context}: regularization.consistency = "{method}" cannot train models.{row.label}: its '
                'normaliser "reinforce" samples positions, and the gradient of the KL divergence does not '
                "reach them; leave out one of the two"
            )
    device, precision = experiment.train.device, experiment.train.precision
    if device == "auto" or not other_machine:
        device = str(pick_device(device))
    if precision == "auto":
        precision = "bf16" if has_fast_bf16(pick_device(device)) else "fp32"
    train = dataclasses.replace(experiment.train, device=device, precision=precision)
    decode = dataclasses.replace(experiment.decode, batch_tokens=experiment.decode.batch_tokens_on(device))
    if task == "language modelling":  # there is no search, so its settings must not distinguish runs
        decode = DecodeConfig(batch_tokens=decode.batch_tokens, beam_size=1, length_penalties=(0.0,))
    data = dataclasses.replace(experiment.data, root=absolute_root(experiment.data.root, Path()))
    scoring = experiment.scoring
    if scoring.tokenize == "auto":
        scoring = dataclasses.replace(scoring, tokenize=language_tokenizer(data.tgt))
    sections = {**experiment.sections(), "data": data, "train": train, "decode": decode, "scoring": scoring}
    return [
        Run(label=row.label, preset=row.preset, model=model, plugins=experiment.plugins, **sections)
        for row, model in zip(experiment.models, models, strict=True)
    ]


def _on_trunk(row: ModelConfig, model: ResolvedModel, experiment: Experiment, context: str) -> ResolvedModel:
    """Give a model the schedule "stable", which several budgets need."""
    optim, smallest = model.optim, experiment.train.for_budget(experiment.train.budgets[0])
    if row.overrides.get("schedule", "stable") != "stable":
        raise ValueError(
            f'{context}: models.{row.label}: schedule = "{optim.schedule}" ends at one budget only, but '
            'train.budgets needs "stable": leave schedule out'
        )
    if optim.warmup_updates >= smallest.branch_update:
        raise ValueError(
            f"{context}: models.{row.label}: warmup_updates = {optim.warmup_updates} must end before the "
            f"smallest of train.budgets leaves the trunk, after {smallest.branch_update} updates: shorten "
            "it, or raise that budget"
        )
    return model.override({"schedule": "stable"})


def runs_to_toml(runs: Sequence[Run], systems: Iterable[Mapping[str, Any]] = ()) -> str:
    """Write the experiment of some runs: the sections of the first with the budgets of all, and each model.

    Where the runs were fine-tuned from different ones, ``init_from`` names the experiment of those.

    Args:
        runs: the runs, of any seeds and budgets.
        systems: ``[[systems]]``.
    """
    first = runs[0]
    train = first.train
    if budgets := sorted({run.train.budget for run in runs if run.train.budget is not None}):
        train = dataclasses.replace(train, budgets=tuple(budgets), max_updates=budgets[-1])
    if len({run.train.init_hash for run in runs}) > 1 and train.init_from is not None:
        train = dataclasses.replace(train, init_from=str(Path(train.init_from).parent), init_hash=None)
    models: dict[str, Run] = {}
    for run in runs:
        models.setdefault(run.label, run)
    plugins = dict.fromkeys(name for run in runs for name in run.plugins)
    sections = dataclasses.replace(first, train=train).sections()
    return to_toml(sections, [run.model_table() for run in models.values()], list(plugins), systems)


# Settings that all rows of one table share, and their hash, which proves it.


def shared_settings(run: Run) -> dict[str, Any]:
    """Return the settings that all rows of a table must share, by "section.key".

    ``compare.config.sections`` declares which settings are shared.
    """
    values = {"task": run.task, **run.settings()}
    settings = {name: values[name] for name in DEFAULTS}
    if not (run.data.root or run.data.train_size):
        settings["data.train_size"] = EMBEDDED_TRAIN_SIZE
    if run.scoring.tokenize == language_tokenizer(run.data.tgt):
        settings["scoring.tokenize"] = "auto"
    if run.train.budgets:  # runs of all budgets stand in one table, also those added later
        settings["train.max_updates"] = "budgets"
    if run.train.init_from is not None:  # fine-tuned runs do not compare with others
        settings["train.init_from"] = "weights of another run"
    return settings


def settings_hash(run: Run) -> str:
    """Return the sha256 of the shared settings that differ from their defaults.

    A setting that a later version adds changes no hash if its default means "as before".
    """
    settings = {name: value for name, value in shared_settings(run).items() if value != DEFAULTS.get(name)}
    content = json.dumps(settings, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()


def find_difference(run: Run, other: Run) -> str | None:
    """Describe the first shared setting in which ``other`` differs: "train.max_updates: 20, here 60"."""
    here, there = shared_settings(run), shared_settings(other)
    for name in dict.fromkeys([*there, *here]):
        if there.get(name) != here.get(name):
            was, now = ("nothing" if values.get(name) is None else values[name] for values in (there, here))
            return f"{name}: {was}, here {now}"
    return None
