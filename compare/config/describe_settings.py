"""Documentation of the settings of an experiment file."""

import json
from dataclasses import MISSING, Field, fields
from typing import Any

from compare.config.field_docstrings import field_docstrings
from compare.config.parse import SECTIONS
from compare.optim.config import OptimConfig

OPTIMIZER = "[models]"
"""Heading of the settings of the optimizer, which stand in ``[[models]]`` tables."""


def describe_settings() -> dict[str, list[dict[str, str]]]:
    """Describe each shared setting, and those of the optimizer, which every model has.

    Returns:
        By section, per setting its name, its default as TOML (empty: there is none, or a model's preset has
        its own) and a description.
    """
    described = {section: _describe(kind) for section, kind in SECTIONS.items()}
    optimizer = [row | {"default": ""} for row in _describe(OptimConfig)]
    return {**described, OPTIMIZER: optimizer}


def _describe(kind: type) -> list[dict[str, str]]:
    texts = field_docstrings(kind)
    return [
        {"setting": each.name, "default": _default(each), "meaning": texts[each.name]}
        for each in fields(kind)
    ]


def _default(field: Field[Any]) -> str:
    return "" if field.default in (None, MISSING) else json.dumps(field.default)  # as TOML writes it
