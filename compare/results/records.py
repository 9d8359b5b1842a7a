"""Records beside the result of a run: timings, likelihoods, choice of the length penalty, ensembles."""

import dataclasses
import hashlib
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from compare.decoding.length_penalty import LengthPenalty, Normalization
from compare.results.result import check_record, without_nan
from compare.system.device import Machine
from compare.system.measure import Speed
from compare.system.messages import abbreviate
from compare.training.metrics_log import is_finite
from compare.training.validation import perplexity
from data.files import parse_json, read_bytes, write_atomically

# The file speed.json of a run: the raw repeats of everything that was timed.


AnyMachine = TypeVar("AnyMachine", bound=Machine)
SPEED_MAX_BYTES = 100_000_000
"""Size that no speed.json reaches."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Times of sentences that were translated alone."""

    ms: list[list[float]]
    """Milliseconds by repeat and sentence."""
    cpu_shares: list[float]
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
    """Raw repeats of one model; those of earlier versions have neither ``train`` nor ``session``.

    Of a language model, which does not search, only training is timed.
    """

    greedy: Speed | None
    beam: Speed | None
    latency: Latency | None
    train: Speed | None
    session: Session | None


@dataclass(frozen=True, kw_only=True)
class RawSpeed:
    """Content of speed.json."""

    decode_s: float | None
    """Seconds of decoding all test sets; None where nothing is decoded."""
    peak_memory_bytes: int | None
    """Peak memory of training and decoding; None where two processes did these."""
    decoded_on: Machine | None = None
    """Machine and threads of decoding, which are not always those of the timings; earlier versions: None."""
    timings: Timings | None = None
    """None until all runs of the experiment have ended."""


def write_speed(path: Path, raw: RawSpeed) -> None:
    """Write a speed.json."""
    content = dataclasses.asdict(raw)
    content |= content.pop("timings") or {}
    write_atomically(path, json.dumps(content, indent=2) + "\n")


def read_speed(path: Path) -> RawSpeed:
    """Read a speed.json.

    Raises:
        ValueError: the file is damaged; the error names the value.
    """
    try:
        content = parse_json(read_bytes(path, max_bytes=SPEED_MAX_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it must be a JSON object")
        return _raw_speed(content)
    except ValueError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: not what was timed ({reason}): put the run's own back") from None


def _raw_speed(content: Mapping[str, Any]) -> RawSpeed:
    """Check the content of a speed.json."""
    for name in ("decode_s", "peak_memory_bytes"):
        if name not in content:
            raise ValueError(f"{name} is missing")
    seconds, peak = content["decode_s"], content["peak_memory_bytes"]
    if seconds is not None and not (is_finite(seconds) and seconds > 0):
        raise ValueError(f"decode_s must be a positive number, found {abbreviate(seconds)}")
    if peak is not None:
        _ensure_count("peak_memory_bytes", peak)
    timed = {"greedy", "beam", "latency", "latency_ms", "train", "session"} & content.keys()
    decoded_on = content.get("decoded_on")
    return RawSpeed(
        decode_s=seconds,
        peak_memory_bytes=peak,
        decoded_on=None if decoded_on is None else _machine("decoded_on", decoded_on, Machine),
        timings=_timings(content) if timed else None,
    )


def _timings(content: Mapping[str, Any]) -> Timings:
    """Check the timings of a speed.json, also those of earlier versions."""
    if not any(content.get(name) for name in ("greedy", "beam", "latency", "latency_ms", "decode_s")):
        train = _speed("train", content.get("train"))
        session = _machine("session", content.get("session"), Session)
        return Timings(greedy=None, beam=None, latency=None, train=train, session=session)
    greedy, beam = (_speed(name, content.get(name)) for name in ("greedy", "beam"))
    if "latency_ms" in content:
        latency = Latency(ms=[_times("latency_ms", content["latency_ms"])], cpu_shares=[])
        return Timings(greedy=greedy, beam=beam, latency=latency, train=None, session=None)
    return Timings(
        greedy=greedy,
        beam=beam,
        latency=_latency(content.get("latency")),
        train=_speed("train", content.get("train")),
        session=_machine("session", content.get("session"), Session),
    )


def _speed(name: str, content: Any) -> Speed:
    """Check the repeats of one kind of work."""
    known = {"cpu_shares": [], **content} if isinstance(content, dict) else {}
    if known.keys() != {item.name for item in fields(Speed)}:
        raise ValueError(f"{name} must hold {', '.join(item.name for item in fields(Speed))}")
    for count in ("sentences", "tokens"):
        _ensure_count(f"{name}.{count}", known[count])
    seconds = _times(f"{name}.seconds", known["seconds"])
    shares = _shares(f"{name}.cpu_shares", known["cpu_shares"])
    return Speed(sentences=known["sentences"], tokens=known["tokens"], seconds=seconds, cpu_shares=shares)


def _latency(content: Any) -> Latency:
    """Check the times of single sentences."""
    _ensure_keys("latency", content, Latency)
    repeats = content["ms"]
    if not (isinstance(repeats, list) and repeats):
        raise ValueError(f"latency.ms must be a list of repeats, found {abbreviate(repeats)}")
    return Latency(
        ms=[_times("latency.ms", repeat) for repeat in repeats],
        cpu_shares=_shares("latency.cpu_shares", content["cpu_shares"]),
    )


def _machine(context: str, content: Any, kind: type[AnyMachine]) -> AnyMachine:
    """Check the description of a machine, or of a common timing."""
    _ensure_keys(context, content, kind)
    for name in ("threads", "cores"):
        _ensure_count(f"{context}.{name}", content[name])
    clock = content["clock_mhz"]
    if clock is not None and not is_finite(clock):
        raise ValueError(f"{context}.clock_mhz must be a number, found {abbreviate(clock)}")
    for name in content.keys() - {"threads", "cores", "clock_mhz"}:
        if not isinstance(content[name], str):
            raise ValueError(f"{context}.{name} must be text, found {abbreviate(content[name])}")
    return kind(**content)


def _ensure_keys(name: str, content: Any, kind: type[Latency | Machine]) -> None:
    """Reject content that has not exactly the fields of ``kind``."""
    names = [item.name for item in fields(kind)]
    if not isinstance(content, dict) or content.keys() != set(names):
        raise ValueError(f"{name} must hold {', '.join(names)}")


def _ensure_count(name: str, content: Any) -> None:
    """Reject what is not a whole number from 0 on."""
    if not (type(content) is int and 0 <= content < 2**63):
        raise ValueError(f"{name} must be a whole number, found {abbreviate(content)}")


def _times(name: str, content: Any) -> list[float]:
    """Check a list of times."""
    if not (isinstance(content, list) and content and all(is_finite(item) and item > 0 for item in content)):
        raise ValueError(f"{name} must be a list of positive numbers, found {abbreviate(content)}")
    return content


def _shares(name: str, content: Any) -> list[float]:
    """Check a list of shares."""
    if not (isinstance(content, list) and all(is_finite(item) and 0 <= item <= 1 for item in content)):
        raise ValueError(f"{name} must be a list of numbers from 0 to 1, found {abbreviate(content)}")
    return content


# The file perplexity.json of a run: the likelihood that its model gives to the references.


LIKELIHOOD_MAX_BYTES = 1_000_000
"""Size that no perplexity.json reaches."""


@dataclass(frozen=True, kw_only=True)
class LikelihoodSums:
    """Sums over the sentences of a text that give its perplexities."""

    nll: float
    """Negative log-likelihood of all translations, in nats, without label smoothing."""
    tokens: int
    """Number of target tokens, one end of sentence per line included."""
    characters: int
    """Unicode characters of the translations, one line end per line included."""
    unknown: int
    """Tokens among them that are <unk>, which are easier to predict than the words that they stand for."""

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens): depends on the vocabulary."""
        return perplexity(self.nll / self.tokens)

    @property
    def char_perplexity(self) -> float:
        """exp(nll / characters): compares models of different vocabularies where nothing is unknown."""
        return perplexity(self.nll / self.characters)


class Likelihoods(NamedTuple):
    """Content of perplexity.json."""

    tests: Mapping[str, LikelihoodSums]
    """The sums by test set; its references are the scored translations."""
    weights: str
    """sha256 of the weights file that they were computed with."""


def write_likelihoods(path: Path, likelihoods: Likelihoods) -> None:
    """Write a perplexity.json."""
    tests = {test: asdict(sums) for test, sums in likelihoods.tests.items()}
    write_atomically(path, json.dumps({"tests": tests, "weights": likelihoods.weights}, indent=2) + "\n")


def read_likelihoods(path: Path) -> Likelihoods:
    """Read a perplexity.json.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    try:
        content = parse_json(read_bytes(path, max_bytes=LIKELIHOOD_MAX_BYTES))
    except ValueError as error:
        raise _damaged(path, str(error).removeprefix(f"{path}: ")) from None
    if not isinstance(content, dict) or content.keys() != set(Likelihoods._fields):
        raise _damaged(path, f"it must hold {' and '.join(Likelihoods._fields)}")
    tests, weights = content["tests"], content["weights"]
    if not isinstance(weights, str) or not isinstance(tests, dict):
        raise _damaged(path, "tests must be an object and weights a sha256")
    return Likelihoods({test: _sums(path, test, item) for test, item in tests.items()}, weights)


def _sums(path: Path, test: str, item: Any) -> LikelihoodSums:
    """Check the sums of one test set."""
    names = [field.name for field in fields(LikelihoodSums)]
    if not isinstance(item, dict) or item.keys() != set(names):
        raise _damaged(path, f"{abbreviate(test)} must hold {', '.join(names)}")
    for name in names:
        value, low = item[name], 1 if name in ("tokens", "characters") else 0
        valid = is_finite(value) if name == "nll" else type(value) is int
        if not (valid and value >= low):
            raise _damaged(path, f"{name} of {abbreviate(test)} cannot be {abbreviate(value)}")
    return LikelihoodSums(**item)


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(
        f"{path}: not what was measured on the test sets ({reason}): put the run's own back, or delete it "
        "and the run's result.json and run the experiment again"
    )


# The choice of a length penalty on validation, and the file selection.json that keeps it.


SELECTION = "selection.json"
TOLERANCE = 0.2
"""BLEU below the best that still counts as equal to it."""
SELECTION_MAX_BYTES = 1_000_000
"""Size that no selection.json reaches."""


@dataclass(frozen=True, kw_only=True)
class GridPoint:
    """One length penalty, and the scores of beam search with it on the validation set."""

    normalization: Normalization
    """Form of the penalty, as in ``LengthPenalty``."""
    length_penalty: float
    """Alpha."""
    bleu: float
    """BLEU, 0 to 100."""
    length_ratio: float
    """Tokens of the translations over tokens of the references."""

    @property
    def penalty(self) -> LengthPenalty:
        """The length penalty."""
        return LengthPenalty(self.length_penalty, self.normalization)


class Selection(NamedTuple):
    """Content of selection.json."""

    grid: Sequence[GridPoint]
    chosen: int
    """Index in ``grid``."""
    weights: str
    """sha256 of the weights file that was searched with."""

    @property
    def penalty(self) -> LengthPenalty:
        """The chosen length penalty."""
        return self.grid[self.chosen].penalty

    def to_json(self) -> str:
        """Format as the content of selection.json."""
        content = {**self._asdict(), "grid": [asdict(point) for point in self.grid]}
        return json.dumps(content, indent=2) + "\n"


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
    try:
        content = parse_json(read_bytes(path, max_bytes=SELECTION_MAX_BYTES))
    except ValueError as error:
        raise _damaged_selection(path, str(error).removeprefix(f"{path}: ")) from None
    if not isinstance(content, dict) or content.keys() != set(Selection._fields):
        raise _damaged_selection(path, f"it must hold {', '.join(Selection._fields)}")
    if not isinstance(content["weights"], str):
        raise _damaged_selection(path, f"weights must be a sha256, found {abbreviate(content['weights'])}")
    if not isinstance(content["grid"], list):
        raise _damaged_selection(path, f"grid must be a list, found {abbreviate(content['grid'])}")
    grid = [_point(path, f"grid[{index}]", item) for index, item in enumerate(content["grid"])]
    if [point.penalty for point in grid] != list(penalties):
        raise _damaged_selection(path, "grid is not that of config.toml")
    chosen = choose(grid)
    if type(content["chosen"]) is not int or content["chosen"] != chosen:
        raise _damaged_selection(
            path, f"chosen is {abbreviate(content['chosen'])}, but the rule gives {chosen}"
        )
    return Selection(grid, chosen, content["weights"])


def _point(path: Path, name: str, item: Any) -> GridPoint:
    """Check one point of the grid; ``name`` is its place in the file."""
    names = [field.name for field in fields(GridPoint)]
    if not isinstance(item, dict) or item.keys() != set(names):
        raise _damaged_selection(path, f"{name} must hold {', '.join(names)}")
    if item["normalization"] not in get_args(Normalization):
        raise _damaged_selection(
            path, f"{name}.normalization is not a form: {abbreviate(item['normalization'])}"
        )
    for key in names[1:]:
        if not (is_finite(item[key]) and item[key] >= 0):
            raise _damaged_selection(
                path, f"{name}.{key} must be a number from 0 on, found {abbreviate(item[key])}"
            )
    return GridPoint(**item)


def _damaged_selection(path: Path, reason: str) -> ValueError:
    return ValueError(
        f"{path}: not what was chosen on validation ({reason}): put the run's own back, or delete it and "
        "the run's result.json and run the experiment again"
    )


# The file ensemble.json: figures of several runs that translated together, kept apart from those of
# runs.


FOLDER, ENSEMBLE = "ensembles", "ensemble.json"
"""Folder in that of the experiment, and the file in the folder of each ensemble."""
ENSEMBLE_MAX_BYTES = 1_000_000
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
        record = parse_json(read_bytes(path, max_bytes=ENSEMBLE_MAX_BYTES))
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
    return [read_ensemble(path) for path in sorted((Path(experiment) / FOLDER).glob(f"*/{ENSEMBLE}"))]
