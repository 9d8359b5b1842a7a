"""Check of a result record read from JSON against the fields of its dataclass."""

import re
from collections import abc
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from compare.system.hints import abbreviate

FILE_IN_RUN = re.compile(r"(?!/)[^\x00-\x1f\x7f\\:]{1,200}")
"""Path in a run's folder, relative, with / between folders."""
SHA256 = re.compile("[0-9a-f]{64}")


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
    _check_names(record, source)
    if record.get("budget") is not None and record.get("budget_off") is None:
        raise ValueError(f"{source}: budget is {abbreviate(record['budget'])} but budget_off is missing")
    for test, scores in record.get("tests", {}).items():
        for name, value in scores.items():
            if name in types and not _fits(value, types[name]):
                raise ValueError(
                    f"{source}: {abbreviate(name)} of {abbreviate(test)} cannot be {abbreviate(value)}"
                )


def can_name_folder(name: str) -> bool:
    """Return whether a name leads to a visible folder right below another one."""
    return bool(name) and not set("/\\\0") & set(name) and not name.startswith(".")


def _check_names(record: Mapping[str, Any], source: str | Path) -> None:
    """Reject names that lead out of the run's folder or cannot be drawn, and hashes that are none."""
    if not can_name_folder(record["label"]):
        raise ValueError(f"{source}: label {abbreviate(record['label'])} cannot name a folder")
    names = [*record.get("scores", {}), *record.get("tests", {})]
    names += [name for scores in record.get("tests", {}).values() for name in scores]
    for name in [record["label"], record["preset"], *names]:
        if not name.isprintable():
            raise ValueError(f"{source}: {abbreviate(name)} has characters that cannot be printed")
    for path, digest in record.get("files", {}).items():
        if not FILE_IN_RUN.fullmatch(path) or ".." in path.split("/"):
            raise ValueError(f"{source}: files names {abbreviate(path)}, which is no file of a run")
        if not SHA256.fullmatch(digest):
            raise ValueError(f"{source}: files[{path!r}] is {abbreviate(digest)}, not a sha256")


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
