"""The winning experiment file: the given file with the tuned values of each model's best trial."""

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from compare.config.parse import SECTIONS, experiment_from
from compare.config.sections import Experiment
from compare.config.toml import SCHEMA, current_config, to_toml, toml_assignments
from compare.experiment.tune.candidates import Candidate

HEADER = re.compile(r"\s*\[{1,2}\s*(\w+)\s*\]{1,2}\s*(#.*)?")
"""The line that begins a table."""


def best_experiment(experiment: Experiment, winners: Mapping[str, Candidate]) -> Experiment:
    """Return the experiment with the settings of the best trials; a model without one keeps its own."""
    models = tuple(
        dataclasses.replace(row, overrides={**row.overrides, **winners[row.label].settings})
        if row.label in winners
        else row
        for row in experiment.models
    )
    return dataclasses.replace(experiment, models=models)


def best_config(text: str, experiment: Experiment, winners: Mapping[str, Candidate], about: str) -> str:
    """Write the winning experiment as TOML.

    Comments and order of the given file stay, unless its form is unusual (dotted keys, inline tables): then
    the same settings are written anew.

    Args:
        text: content of the experiment's file.
        experiment: the experiment as read from it, with overrides and absolute ``data.root``.
        winners: the best trial of each tuned model, by label; the others keep their settings.
        about: what the search was, for the comment at the top.
    """
    best = best_experiment(experiment, winners)
    top = "".join(f"# {line}\n" for line in about.splitlines()) + "\n"
    edited = top + _edit(text, experiment, winners)
    if _parse(edited, experiment.name) == best:
        return edited
    sections = {name: getattr(best, name) for name in SECTIONS}
    tables = [{"preset": row.preset, "label": row.label, **row.overrides} for row in best.models]
    return f"{top}schema = {SCHEMA}\n\n{to_toml(sections, tables, best.plugins)}"


def _parse(text: str, name: str) -> Experiment | None:
    """Read an experiment from text; None where it cannot be read."""
    try:
        return experiment_from(current_config(tomllib.loads(text), name), name=name, context=name)
    except (ValueError, RecursionError):
        return None


def _edit(text: str, experiment: Experiment, winners: Mapping[str, Candidate]) -> str:
    """Assign the tuned values, and those of sections that overrides have changed, in the text."""
    blocks = _blocks(text)
    written = _parse(text, experiment.name)
    for name in SECTIONS if written else ():
        changed = _changes(getattr(written, name), getattr(experiment, name))
        found = [lines for title, lines in blocks if title == name]
        if changed and not found:
            blocks.append((name, found_lines := [f"[{name}]"]))
            found = [found_lines]
        for lines in found[:1]:
            _assign(lines, changed)
    models = [lines for title, lines in blocks if title == "models"]
    for lines, row in zip(models, experiment.models, strict=False):
        if trial := winners.get(row.label):
            comment = f"trial {trial.trial}: validation BLEU {trial.bleu:.2f}, loss {trial.loss:.3f}"
            if len(trial.results) > 1:
                comment += f", means of {len(trial.results)} seeds, lowest BLEU {trial.lowest_bleu:.2f}"
            _assign(lines, trial.settings, comment)
    return "\n".join(line for _, lines in blocks for line in lines) + "\n"


def _changes(old: Any, new: Any) -> dict[str, Any]:
    """Return the fields of a section in which ``new`` differs from ``old``."""
    values = dataclasses.asdict(new)
    return {name: value for name, value in values.items() if value != getattr(old, name)}


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """Divide a TOML file into its tables, as (name, lines); what precedes the first one has no name."""
    blocks: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        if match := HEADER.fullmatch(line):
            blocks.append((match[1], []))
        blocks[-1][1].append(line)
    return blocks


def _assign(lines: list[str], values: Mapping[str, Any], comment: str = "") -> None:
    """Assign values in the lines of a table: in place, or after its last assignment."""
    for line in toml_assignments(values):
        key = line.partition(" = ")[0]
        new = f"{line}  # {comment}" if comment else line
        places = [index for index, old in enumerate(lines) if re.match(rf"\s*{re.escape(key)}\s*=", old)]
        if places:
            lines[places[0]] = new
            continue
        used = [index for index, old in enumerate(lines) if old.strip() and not old.lstrip().startswith("#")]
        lines.insert(used[-1] + 1, new)
