"""Records beside the result of a run: timings, likelihoods, choice of the length penalty, ensembles."""

import hashlib
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from compare.decoding.length_penalty import LengthPenalty, Normalization
from compare.system.device import Machine
from compare.system.measure import Share, Speed
from compare.training.validation import perplexity
from data.files import read_bytes, write_atomically

Record = TypeVar("Record")
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
MAX_BYTES = 100_000_000
"""Size that no record reaches."""
MEASURED_AGAIN = (
    "put the run's own {} back, or delete it and the run's result.json and run the experiment again"
)


def read_record(path: Path, kind: type[Record], remedy: str) -> Record:
    """Read a JSON file as a typed record.

    Args:
        path: the file.
        kind: dataclass, or another type that msgspec decodes.
        remedy: what to do about a damaged file, for the message.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged; the message names the value.
    """
    try:
        return msgspec.json.decode(read_bytes(path, max_bytes=MAX_BYTES), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}: {remedy}") from None


def write_record(path: Path, record: Any) -> None:
    """Write a dataclass, or nested dicts of them, as a JSON file."""
    write_atomically(path, json.dumps(record, default=asdict, indent=2, ensure_ascii=False) + "\n")


# The file speed.json of a run: the raw repeats of everything that was timed.


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Times of sentences that were translated alone."""

    ms: list[list[Positive]]
    """Milliseconds by repeat and sentence."""
    cpu_shares: list[Share]
    """Share of the processor in each repeat; empty if it was not measured."""

    @property
    def cpu_share(self) -> float | None:
        """Median share of the processor over the repeats."""
        return statistics.median(self.cpu_shares) if self.cpu_shares else None


@dataclass(frozen=True, kw_only=True)
class Session(Machine):
    """Common timing of all models of an experiment, in turn."""

    timed_together: str
    """Id of the timing, the same for all its models."""
    timed_run: str
    """Run whose weights were timed: that of the model's lowest finished seed."""
    decode_precision: str
    """Precision that decoding was computed in."""


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Raw repeats of one model; of a language model, which does not search, only training is timed."""

    greedy: Speed | None
    beam: Speed | None
    latency: Latency | None
    train: Speed | None
    session: Session | None


@dataclass(frozen=True, kw_only=True)
class RawSpeed:
    """Content of speed.json."""

    decode_s: Positive | None
    """Seconds of decoding all test sets; None where nothing is decoded."""
    peak_memory_bytes: Count | None
    """Peak memory of training and decoding; None where two processes did these."""
    decoded_on: Machine | None = None
    """Machine and threads of decoding, which are not always those of the timings; None where unknown."""
    timings: Timings | None = None
    """None until all runs of the experiment have ended."""


def read_speed(path: Path) -> RawSpeed:
    """Read a speed.json; errors are those of ``read_record``."""
    return read_record(path, RawSpeed, "put the run's own speed.json back")


# The file perplexity.json of a run: the likelihood that its model gives to the references.


@dataclass(frozen=True, kw_only=True)
class LikelihoodSums:
    """Sums over the sentences of a text that give its perplexities."""

    nll: Annotated[float, Meta(ge=0)]
    """Negative log-likelihood of all translations, in nats, without label smoothing."""
    tokens: Annotated[int, Meta(ge=1)]
    """Number of target tokens, one end of sentence per line included."""
    characters: Annotated[int, Meta(ge=1)]
    """Unicode characters of the translations, one line end per line included."""
    unknown: Count
    """Tokens among them that are <unk>, which are easier to predict than the words that they stand for."""

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens): depends on the vocabulary."""
        return perplexity(self.nll / self.tokens)

    @property
    def char_perplexity(self) -> float:
        """exp(nll / characters): compares models of different vocabularies where nothing is unknown."""
        return perplexity(self.nll / self.characters)


@dataclass(frozen=True, kw_only=True)
class Likelihoods:
    """Content of perplexity.json."""

    tests: Mapping[str, LikelihoodSums]
    """The sums by test set; its references are the scored translations."""
    weights: str
    """sha256 of the weights file that they were computed with."""


def read_likelihoods(path: Path) -> Likelihoods:
    """Read a perplexity.json; errors are those of ``read_record``."""
    return read_record(
        path,
        Likelihoods,
        MEASURED_AGAIN.format("perplexity.json"),
    )


# The choice of a length penalty on validation, and the file selection.json that keeps it.


SELECTION = "selection.json"
TOLERANCE = 0.2
"""BLEU below the best that still counts as equal to it."""


@dataclass(frozen=True, kw_only=True)
class GridPoint:
    """One length penalty, and the scores of beam search with it on the validation set."""

    normalization: Normalization
    """Form of the penalty, as in ``LengthPenalty``."""
    length_penalty: Annotated[float, Meta(ge=0)]
    """Alpha."""
    bleu: Annotated[float, Meta(ge=0)]
    """BLEU, 0 to 100."""
    length_ratio: Annotated[float, Meta(ge=0)]
    """Tokens of the translations over tokens of the references."""

    @property
    def penalty(self) -> LengthPenalty:
        """The length penalty."""
        return LengthPenalty(self.length_penalty, self.normalization)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Content of selection.json."""

    grid: list[GridPoint]
    chosen: int
    """Index in ``grid``."""
    weights: str
    """sha256 of the weights file that was searched with."""

    @property
    def penalty(self) -> LengthPenalty:
        """The chosen length penalty."""
        return self.grid[self.chosen].penalty


def choose(grid: Sequence[GridPoint]) -> int:
    """Choose the smallest penalty whose validation BLEU is within ``TOLERANCE`` of the best.

    This is a one-standard-error rule (Breiman et al. 1984, section 3.4.3; Hastie et al. 2009, section 7.10):
    a few tenths of BLEU are within the noise of a validation set, so the simplest of the equally good points
    is taken, here the one with the shortest translations. The very best on validation fits the length of its
    references, which need not be that of other text.

    In one form, a smaller alpha gives shorter translations. Values of alpha in two forms do not compare:
    there the smallest penalty is that with the smallest length ratio, then with the smallest alpha.

    Args:
        grid: at least one point.

    Returns:
        Its index.
    """
    best = max(point.bleu for point in grid)
    several_forms = len({point.normalization for point in grid}) > 1

    def size(index: int) -> tuple[float, float]:
        point = grid[index]
        return point.length_ratio if several_forms else 0.0, point.length_penalty

    return min((index for index, point in enumerate(grid) if point.bleu >= best - TOLERANCE), key=size)


def read_selection(path: Path, penalties: Sequence[LengthPenalty]) -> Selection:
    """Read a selection.json.

    Args:
        path: the file.
        penalties: the grid of the run's config.

    Raises:
        ValueError: no such file, or it is damaged, of another grid, or chose another point than the rule.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file: run the experiment again, which chooses a length penalty")
    remedy = MEASURED_AGAIN.format(SELECTION)
    found = read_record(path, Selection, remedy)
    if [point.penalty for point in found.grid] != list(penalties):
        raise ValueError(f"{path}: grid is not that of config.toml: {remedy}")
    if found.chosen != (chosen := choose(found.grid)):
        raise ValueError(f"{path}: chosen is {found.chosen}, but the rule gives {chosen}: {remedy}")
    return found


# The file ensemble.json: figures of several runs that translated together, kept apart from those of
# runs.


FOLDER, ENSEMBLE = "ensembles", "ensemble.json"
"""Folder in that of the experiment, and the file in the folder of each ensemble."""


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


def hash_members(hashes: Iterable[str]) -> str:
    """Compute the sha256 over the hashes of the members' weights, whatever their order."""
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()


def read_ensemble(path: Path) -> EnsembleResult:
    """Read an ensemble.json; errors are those of ``read_record``."""
    return read_record(path, EnsembleResult, "delete it and run the ensemble again")


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
    return [read_ensemble(path) for path in sorted((Path(experiment) / FOLDER).glob(f"*/{ENSEMBLE}"))]
