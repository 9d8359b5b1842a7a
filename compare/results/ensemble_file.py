"""The file ensemble.json: figures of several runs that translated together, kept apart from those of runs."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from compare.results.record_check import check_record
from compare.results.result import without_nan
from data.text.files import parse_json, read_bytes, write_atomically

FOLDER, NAME = "ensembles", "ensemble.json"
"""Folder in that of the experiment, and the file in the folder of each ensemble."""
MAX_BYTES = 1_000_000
"""Size that no ensemble.json reaches."""


@dataclass(frozen=True, kw_only=True)
class EnsembleResult:
    """Figures of an ensemble; it is no row of its experiment, so no ranking and no test has it."""

    label: str
    """Name of its folder."""
    preset: str
    """Presets of the members, joined by "+"."""
    members: Mapping[str, str]
    """sha256 of the weights of each member, by the name of its run."""
    members_hash: str
    """sha256 over these hashes, sorted: the identity of the ensemble."""
    params: int
    """Trained weights of all members together."""
    beam: int
    """Beam size of the translations."""
    length_penalty: float
    """Alpha of the length penalty, chosen on validation as for a run."""
    length_normalization: str
    """Form of that penalty: wu or length."""
    settings_hash: str
    """sha256 of the settings that the members share."""
    tests: Mapping[str, Mapping[str, float | str | None]]
    """Score columns and perplexities of each test set."""
    files: Mapping[str, str]
    """sha256 of the translations of each test set, by file name."""

    def to_json(self) -> str:
        """Format as one JSON object."""
        return json.dumps(without_nan(asdict(self)), indent=2, ensure_ascii=False) + "\n"


def hash_members(hashes: Iterable[str]) -> str:
    """Compute the sha256 over the hashes of the members' weights, whatever their order."""
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()


def write_ensemble(path: Path, result: EnsembleResult) -> None:
    """Write an ensemble.json."""
    write_atomically(path, result.to_json())


def read_ensemble(path: Path) -> EnsembleResult:
    """Read an ensemble.json.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    try:
        record = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
    except ValueError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: not JSON ({reason}): delete it and run the ensemble again") from None
    check_record(record, EnsembleResult, path)
    return EnsembleResult(**record)


def read_ensembles(experiment: str | Path) -> list[EnsembleResult]:
    """Read the ensembles of an experiment.

    Args:
        experiment: the folder of the experiment.

    Returns:
        The ensembles, sorted by name; none where there are none.

    Raises:
        OSError: a file cannot be read.
        ValueError: an ensemble.json is damaged.
    """
    return [read_ensemble(path) for path in sorted((Path(experiment) / FOLDER).glob(f"*/{NAME}"))]
