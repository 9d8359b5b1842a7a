"""The file external.json of a run: scores of its translations by metrics from outside, such as COMET."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from compare.results.run_folder import RunFolder
from compare.system.hints import abbreviate
from compare.training.metrics_log import is_finite
from data.text.compression import hash_decompressed
from data.text.files import parse_json, read_bytes, write_atomically

MAX_BYTES = 100_000_000
"""Size that no external.json reaches."""


@dataclass(frozen=True, kw_only=True)
class SegmentScores:
    """Scores of one text by a metric from outside."""

    segments: Sequence[float]
    """One score per line."""
    signature: str
    """Version and settings of the metric; scores compare only under the same signature."""

    @property
    def score(self) -> float:
        """The score of the text: the mean of its segments."""
        return fmean(self.segments)

    def columns(self, name: str) -> dict[str, float | str]:
        """Return score and signature under the names of their columns: "comet", "comet_signature"."""
        return {name: self.score, f"{name}_signature": self.signature}


@dataclass(frozen=True, kw_only=True)
class RecordedScores(SegmentScores):
    """Scores of the translations of one test set, as a run keeps them."""

    translations: str
    """sha256 of the translations; those of other translations are not shown."""


External = Mapping[str, Mapping[str, RecordedScores]]
"""Content of external.json: scores by test set and name of the metric."""


def write_external(path: Path, scores: External) -> None:
    """Write an external.json."""
    content = {
        test: {name: asdict(recorded) for name, recorded in metrics.items()}
        for test, metrics in scores.items()
    }
    write_atomically(path, json.dumps(content, indent=1) + "\n")


def read_external(path: Path) -> External:
    """Read an external.json; {} where there is none.

    Raises:
        ValueError: it is damaged.
    """
    if not path.exists():
        return {}
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
        if not isinstance(content, dict) or not all(isinstance(item, dict) for item in content.values()):
            raise ValueError("expected an object of test sets, each an object of metrics")
        return {
            test: {name: _recorded(item, f"{test}.{name}") for name, item in metrics.items()}
            for test, metrics in content.items()
        }
    except ValueError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise ValueError(
            f"{path}: no scores of metrics from outside ({reason}): put the run's own back, or delete it and "
            "run attnbench add-scores again"
        ) from None


def external_columns(folder: RunFolder, test: str) -> dict[str, float | str]:
    """Return the columns of all metrics from outside that have scored the present translations of a test set.

    Raises:
        ValueError: external.json is damaged.
    """
    found: dict[str, float | str] = {}
    metrics = read_external(folder.external).get(test, {})
    if not metrics or not folder.output(test).is_file():
        return found
    translations = hash_decompressed(folder.output(test))
    for name, recorded in metrics.items():
        if recorded.translations == translations:
            found |= recorded.columns(name)
    return found


def _recorded(item: Any, name: str) -> RecordedScores:
    """Check the scores of one metric."""
    names = {field.name for field in fields(RecordedScores)}
    if not isinstance(item, dict) or item.keys() != names:
        raise ValueError(f"{abbreviate(name)} must hold {', '.join(sorted(names))}")
    segments = item["segments"]
    if not (isinstance(segments, list) and segments and all(map(is_finite, segments))):
        raise ValueError(f"segments of {abbreviate(name)} must be numbers, found {abbreviate(segments)}")
    if not (isinstance(item["signature"], str) and isinstance(item["translations"], str)):
        raise ValueError(f"signature and translations of {abbreviate(name)} must be text")
    return RecordedScores(**item)
