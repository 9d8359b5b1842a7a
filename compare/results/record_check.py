"""Check of a result record read from JSON against the fields of its dataclass."""

from collections import abc
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from compare.system.hints import abbreviate


def check_record(record: Any, kind: type, source: str | Path) -> None:
    """Reject a record that cannot be one of the dataclass ``kind``, such as ``Result``.

    Args:
        record: the parsed JSON.
        kind: the dataclass; a ``tests`` mapping of its records has the same columns.
        source: the file that error messages name.

    Raises:
        ValueError: an unknown or missing key, or a value of the wrong type.
    """
    if not isinstance(record, dict):
        raise ValueError(f"{source}: expected one JSON object, found {type(record).__name__}")
    types = {item.name: item.type for item in fields(kind)}
    if unknown := sorted(record.keys() - types.keys()):
        raise ValueError(f"{source}: unknown key {abbreviate(unknown[0])}")
    required = [item.name for item in fields(kind) if item.default is item.default_factory is MISSING]
    if missing := [name for name in required if name not in record]:  # earlier versions had fewer figures
        raise ValueError(f"{source}: key {missing[0]!r} is missing")
    if wrong := [name for name, value in record.items() if not _fits(value, types[name])]:
        raise ValueError(f"{source}: {wrong[0]} cannot be {abbreviate(record[wrong[0]])}")
    for test, scores in record.get("tests", {}).items():
        for name, value in scores.items():
            if name in types and not _fits(value, types[name]):
                raise ValueError(
                    f"{source}: {abbreviate(name)} of {abbreviate(test)} cannot be {abbreviate(value)}"
                )


def _fits(value: Any, annotation: Any) -> bool:
    """Return whether a value from JSON matches a field's annotation; an integer is a valid float."""
    if get_origin(annotation) is abc.Mapping:
        inner = get_args(annotation)[1]
        return isinstance(value, dict) and all(_fits(item, inner) for item in value.values())
    if get_origin(annotation) is Literal:
        return value in get_args(annotation)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return False  # beyond the 64 bits of a data frame's column
    kinds = get_args(annotation) or (annotation,)
    return not isinstance(value, bool) and isinstance(value, kinds + (int,) * (float in kinds))
