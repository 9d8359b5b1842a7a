"""The file convergence.json of an experiment: what longer training gained on the validation set."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import isclose
from pathlib import Path

from compare.config.parse import check_type
from compare.system.messages import abbreviate
from data.files import parse_json, read_bytes, write_atomically

NAME = "convergence.json"
MAX_BYTES = 1_000_000
"""Size that no convergence.json reaches."""
STILL_IMPROVING = 0.5
"""Gain in validation BLEU from which a model counts as still improving when it was stopped."""


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """Validation BLEU of one run, and of the same run with more updates.

    Both are of greedy search with the checkpoint that was chosen, as in the last line of metrics.jsonl.
    """

    label: str
    """Label of the model."""
    seed: int
    """Seed of both runs."""
    factor: float
    """How many times ``train.max_updates`` the longer run may use."""
    updates: int
    """Updates of the run."""
    longer_updates: int
    """Updates of the longer run; fewer than ``factor`` times as many where patience stopped it."""
    bleu: float
    """Validation BLEU of the run."""
    longer_bleu: float
    """Validation BLEU of the longer run."""
    gain: float
    """Difference of the two; positive: longer training is better."""
    config_hash: str
    """sha256 of the run's config.toml; the entry of a run with other settings is ignored."""

    @property
    def still_improving(self) -> bool:
        """Whether the gain is at least ``STILL_IMPROVING``."""
        return self.gain >= STILL_IMPROVING


def read_convergence(experiment: Path) -> dict[str, Convergence]:
    """Read the convergence.json of an experiment's folder, by name of the run; {} where there is none.

    Raises:
        ValueError: the file is damaged.
    """
    path = experiment / NAME
    if not path.exists():
        return {}
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
        if not isinstance(content, dict):
            raise ValueError("expected one JSON object")
        return {name: _entry(entry, name) for name, entry in content.items()}
    except ValueError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: {reason}: delete the file and run attnbench converge again") from None


def write_convergence(experiment: Path, entries: Mapping[str, Convergence]) -> None:
    """Write the convergence.json of an experiment's folder."""
    write_atomically(experiment / NAME, to_json(entries))


def to_json(entries: Mapping[str, Convergence]) -> str:
    """Format entries, by name of the run, as the content of convergence.json."""
    return json.dumps({name: asdict(entry) for name, entry in entries.items()}, indent=2) + "\n"


def _entry(entry: object, name: str) -> Convergence:
    """Check one entry and build it."""
    types = {field.name: field.type for field in fields(Convergence)}
    if not isinstance(entry, dict) or entry.keys() != types.keys():
        raise ValueError(f"{abbreviate(name)} must hold {', '.join(types)}")
    values = {key: check_type(value, types[key], f"{abbreviate(name)}.{key}") for key, value in entry.items()}
    if not isclose(values["gain"], values["longer_bleu"] - values["bleu"], abs_tol=1e-9):
        raise ValueError(f"{abbreviate(name)}.gain is not longer_bleu - bleu")
    return Convergence(**values)
