"""The file tune.json: the effort of a search, and all settings that its trials share."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compare.system.hints import abbreviate
from data.text.files import parse_json, read_bytes

DESCRIPTION = "tune.json"
"""Name of the file."""
MAX_BYTES = 10_000_000
"""Size that no tune.json reaches."""
MODELS = "models."
"""What the names of a model's settings begin with; its label and the setting's own name follow."""


def read_description(path: Path) -> dict[str, Any]:
    """Read a tune.json: the effort of a search ("trials", "updates", "seed") and its "settings".

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged.
    """
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
    except ValueError as error:
        raise ValueError(f"{path}: not the description of a search: {abbreviate(str(error))}") from None
    numbers = ("trials", "updates", "seed")
    if (
        not isinstance(content, dict)
        or not isinstance(content.get("settings"), dict)
        or any(type(content.get(name)) is not int or not 0 <= content[name] < 2**63 for name in numbers)
    ):
        raise ValueError(f"{path}: not the description of a search: move it away")
    return content


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
