"""Presets: models of the literature under the names used there, each a file of ``compare/models/presets``.

A file has the description and the paper, the settings that differ from the defaults of the family and of the
optimizer, the formulas by package, and the departures from the model of the paper, to which ``departures_of``
adds those of another preset. Batches, vocabulary, loss and search are no part of a preset: the experiment
sets them for all models alike.
"""

import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, get_args

import msgspec

from compare.models import read_preset_files
from compare.models.hybrid import HybridConfig
from compare.models.registry import (
    FAMILIES,
    Architecture,
    ResolvedModel,
    build_meta_model,
    count_weights,
    family_of,
    forward_flops,
)
from compare.optim_config import OptimConfig
from compare.system.messages import abbreviate, did_you_mean

SENTENCE_TOKENS = 20


@dataclass(frozen=True)
class Departure:
    """One difference between a preset and the model of its paper: part, here and in the paper."""

    part: str
    here: str
    paper: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A model of the literature with its default settings."""

    about: str
    source: str
    """The paper, with section or table if only a part of it is meant."""
    architecture: Architecture
    optim: OptimConfig = field(default_factory=OptimConfig)
    paper_size: bool = False
    """Whether the model has the size of its paper, which needs a GPU; else it suits a quick comparison."""
    formulas: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By package, "seq2seq" or "transformer", the functions of its ``formulas.py`` that the model uses."""
    departures: tuple[Departure, ...] | None = None
    """Differences from the model of the paper; None: not listed."""

    @property
    def model(self) -> ResolvedModel:
        """Architecture and optimizer settings, nothing overridden."""
        return ResolvedModel(architecture=self.architecture, optim=self.optim)


def _read_presets() -> dict[str, Preset]:
    presets, tables = {}, read_preset_files()
    listed = {name: table.pop("departures", []) for name, table in tables.items()}
    for name, table in tables.items():
        architecture = _read_config(table.pop("model"))
        optim = msgspec.convert(table.pop("optim", {}), OptimConfig)
        all_listed = [*listed.get(table.pop("departures_of", ""), []), *listed[name]]
        departures = msgspec.convert(all_listed, tuple[Departure, ...])
        presets[name] = Preset(architecture=architecture, optim=optim, departures=departures, **table)
    return presets


def _read_config(table: Mapping[str, Any]) -> Any:
    kind = next(config for config, family in FAMILIES.items() if family.name == table["family"])
    if kind is HybridConfig:
        return kind(encoder=_read_config(table["encoder"]), decoder=_read_config(table["decoder"]))
    values = {key: value for key, value in table.items() if key != "family"}
    if values.get("attention") == "none":
        values["attention"] = None
    return msgspec.convert(values, kind)


PRESETS: dict[str, Preset] = _read_presets()


def find_preset(name: str, context: str = "") -> Preset:
    """Look up a preset; an error begins with ``context`` and suggests the nearest name."""
    if name in PRESETS:
        return PRESETS[name]
    for example, preset in PRESETS.items():
        for setting, kind in preset.model.setting_types().items():
            if name in [choice for part in (kind, *get_args(kind)) for choice in get_args(part)]:
                similar = [other for other in PRESETS if name in other.split("-")]
                presets = f"; presets with it: {', '.join(similar)}" if similar else ""
                raise ValueError(
                    f"{context}unknown preset {abbreviate(name)}; it is a value of a setting: "
                    f'preset = "{example}", {setting} = "{name}"{presets}'
                )
    hint = did_you_mean(name, PRESETS, cutoff=0.7)
    plugin_hint = "" if hint.endswith("?") else " (one of your own needs its plug-in: docs/own-model.md)"
    raise ValueError(f"{context}unknown preset {abbreviate(name)}; {hint}{plugin_hint}")


def list_presets() -> list[str]:
    """Return the names of all presets, registered ones included."""
    return list(PRESETS)


def register_preset(name: str, preset: Preset) -> None:
    """Add a preset of a registered family, so that ``preset = name`` works in a ``[[models]]`` table.

    A ValueError says that the name is taken, or that the config is of no registered family.
    """
    if name in PRESETS:
        raise ValueError(f"the preset {name!r} exists already: choose another name")
    family_of(preset.architecture)
    PRESETS[name] = preset


# The list of presets, and the description of one.


def describe_preset(name: str, vocabulary: int = 8000) -> dict[str, Any]:
    """Describe a preset: settings, departures from its paper, formulas, and the module tree.

    Returns a dict that ``json.dumps`` accepts, with keys "preset", "about", "source", "vocabulary" (size of
    both), "params" (trainable weights, tied ones counted once), "forward_flops" (of a pair of sentences of
    ``SENTENCE_TOKENS``), "settings", "departures" (None: not listed), "formulas" (source text by name) and
    "tree" (one entry per module, with the number of its weights).
    """
    preset = find_preset(name)
    model = build_meta_model(preset.architecture, vocabulary, vocabulary)
    sizes = {"src_len": SENTENCE_TOKENS, "tgt_len": SENTENCE_TOKENS, "tgt_vocabulary": vocabulary}
    return {
        "preset": name,
        "about": preset.about,
        "source": preset.source,
        "vocabulary": vocabulary,
        "params": count_weights(model),
        "forward_flops": round(forward_flops(preset.architecture, **sizes)),
        "settings": {key: value for key, value in preset.model.settings().items() if value is not None},
        "departures": preset.departures and [asdict(departure) for departure in preset.departures],
        "formulas": {
            f"{package}.{function}": inspect.getsource(
                getattr(import_module(f"{package}.formulas"), function)
            ).rstrip()
            for package, functions in preset.formulas.items()
            for function in functions
        },
        "tree": [
            {"module": path or name, "class": type(module).__name__, "params": count_weights(module)}
            for path, module in model.named_modules(remove_duplicate=False)
        ],
    }


def render_description(description: Mapping[str, Any]) -> str:
    """Render the result of ``describe_preset`` as text."""
    params, flops = description["params"] / 1e6, description["forward_flops"] / 1e9
    lines = [
        f"{description['preset']}: {description['about']} ({description['source']})",
        f"{params:,.2f} million weights with {description['vocabulary']:,} entries per side; "
        f"{flops:.3f} GFLOP for a forward pass of one pair of {SENTENCE_TOKENS} tokens on each side",
        "",
    ]
    lines += [f"  {key} = {value}" for key, value in description["settings"].items()]
    departures = description["departures"]
    none = "not listed" if departures is None else "none"
    lines += ["", f"  departures from the paper:{'' if departures else f' {none}'}"]
    for departure in departures or ():
        part, here, paper, source = (departure[name] for name in ("part", "here", "paper", "source"))
        lines.append(f"    {part}: {here}; in the paper: {paper} ({source})")
    lines.append("")
    for module in description["tree"]:
        path = "  " * module["module"].count(".") + module["module"]
        lines.append(f"  {path:<50} {module['class']:<20} {module['params']:>12,}")
    lines += ["", "  formulas:"]
    for name, source in description["formulas"].items():
        lines += ["", f"  # {name.partition('.')[0]}/formulas.py", textwrap.indent(source, "  ")]
    return "\n".join(lines)
