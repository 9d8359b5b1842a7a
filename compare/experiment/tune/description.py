"""The file tune.json: the effort of a search, and all settings that its trials share."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compare.system.messages import abbreviate
from data.files import parse_json, read_bytes

DESCRIPTION = "tune.json"
"""Name of the file."""
MAX_BYTES = 10_000_000
"""Size that no tune.json reaches."""
MODELS = "models."
"""What the names of a model's settings begin with; its label and the setting's own name follow."""


def read_description(path: Path) -> dict[str, Any]:
    """Read a tune.json: the effort of a search and its "settings".

    The effort is "trials", "updates", "seed" of the draws, "finalists", and the list "seeds", which is empty
    for a search with one seed.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged.
    """
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
    except ValueError as error:
        raise ValueError(f"{path}: not the description of a search: {abbreviate(str(error))}") from None
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict):
        raise ValueError(f"{path}: not the description of a search: move it away")
    content = {"seeds": [], "finalists": 0, **content}
    numbers = [content.get(name) for name in ("trials", "updates", "seed", "finalists")]
    if not isinstance(content["seeds"], list) or not all(map(_is_count, [*numbers, *content["seeds"]])):
        raise ValueError(f"{path}: not the description of a search: move it away")
    return content


def _is_count(value: Any) -> bool:
    """Return whether ``value``, from JSON, is a number of trials or a seed."""
    return type(value) is int and 0 <= value < 2**63


def label_of(name: str) -> str | None:
    """Return the label of the model that a setting in tune.json is of; None if all models share it."""
    # Labels may have dots, as those of grids; names of settings have none.
    return name.removeprefix(MODELS).rpartition(".")[0] if name.startswith(MODELS) else None


def key_of(settings: Mapping[str, Any], label: str) -> str:
    """Return the sha256 of all that the trials of a model share.

    Args:
        settings: the settings in tune.json.
        label: label of the model.
    """
    of_trials = {name: value for name, value in settings.items() if label_of(name) in (None, label)}
    return hashlib.sha256(json.dumps(of_trials, sort_keys=True).encode()).hexdigest()
