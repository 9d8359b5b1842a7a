"""Documentation of the settings of an experiment file."""

import json
from dataclasses import MISSING, Field, fields
from typing import Any

from compare.config.field_docstrings import field_docstrings
from compare.config.sections import BenchConfig, BudgetConfig, DataConfig, DecodeConfig, VocabularyConfig
from compare.config.training_sections import RegularizationConfig, TrainConfig
from compare.optim.config import OptimConfig

SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "vocabulary": VocabularyConfig,
    "train": TrainConfig,
    "regularization": RegularizationConfig,
    "decode": DecodeConfig,
    "budget": BudgetConfig,
    "bench": BenchConfig,
}
"""The sections that all models share, in the order of a file."""
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
