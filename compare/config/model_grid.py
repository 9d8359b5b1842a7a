"""Grids: a ``[[models]]`` table with a list for a setting that takes one value stands for several models."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any, get_origin

from compare.system.hints import abbreviate

MAX_MODELS = 1_000
"""Models that one table can stand for."""


def expand_grid(row: Mapping[str, Any], context: str) -> Iterator[Mapping[str, Any]]:
    """Yield one ``[[models]]`` table per combination of the values that are listed in ``row``.

    A label gets every listed setting and its value: ``dropout = [0.1, 0.2]`` of the label "lstm" gives
    "lstm-dropout-0.1" and "lstm-dropout-0.2". Without lists, the table itself is yielded. Settings that the
    preset lacks, and presets that do not exist, are left to the checks that follow.

    Args:
        row: the table.
        context: what error messages begin with.

    Raises:
        ValueError: a list without values, or too many combinations.
    """
    lists = {key: value for key, value in row.items() if isinstance(value, list)}
    axes = {key: values for key, values in lists.items() if _takes_one_value(row, key)} if lists else {}
    if not axes:
        yield row
        return
    for key, values in axes.items():
        if not values:
            raise ValueError(f"{context}: {key} = []: a list of values, one model for each, has at least one")
    if (count := prod(map(len, axes.values()))) > MAX_MODELS:
        raise ValueError(
            f"{context}: the lists of {', '.join(axes)} make {count:,} models; at most {MAX_MODELS:,} are "
            "allowed: shorten them"
        )
    label = row.get("label", row.get("preset"))
    for combination in product(*axes.values()):
        chosen = dict(zip(axes, combination, strict=True))
        parts = "".join(f"-{key}-{_in_label(value)}" for key, value in chosen.items())
        yield {**row, **chosen, "label": f"{label}{parts}"}


def is_of_grid(label: str, table: str, settings: Iterable[str]) -> bool:
    """Return whether ``expand_grid`` may have made a model's label of a table's.

    Args:
        label: label of the model.
        table: label of the table.
        settings: names of the model's settings.
    """
    return re.fullmatch(rf"{re.escape(table)}-({'|'.join(settings)})-.+", label) is not None


def _takes_one_value(row: Mapping[str, Any], key: str) -> bool:
    """Return whether ``key`` is a setting of the table's preset that is not itself a list."""
    from compare.models.presets import PRESETS  # imports torch, which a file without lists does not need

    preset = row.get("preset")
    if not isinstance(preset, str) or preset not in PRESETS:
        return False
    kind = PRESETS[preset].model.setting_types().get(key)
    return kind is not None and get_origin(kind) is not tuple


def _in_label(value: Any) -> str:
    """Return a value as part of a label, which names a folder."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^\w.+-]", "_", abbreviate(text).strip("'\"") if len(text) > 40 else text)
