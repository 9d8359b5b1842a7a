"""Records beside the result of a run: timings, likelihoods, choice of the length penalty."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated

from msgspec import Meta

from compare.decoding.search import GridPoint, LengthPenalty, choose_penalty
from compare.results.store import read_record
from compare.system.device import Machine
from compare.system.timer import Repeats, Speed
from compare.training.loss import perplexity

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
MEASURED_AGAIN = (
    "put the run's own {} back, or delete it and the run's result.json and run the experiment again"
)


# The file speed.json of a run: the raw repeats of everything that was timed.


@dataclass(frozen=True, kw_only=True)
class Latency(Repeats):
    """Times of sentences that were translated alone."""

    ms: list[list[Positive]]
    """Milliseconds by repeat and sentence."""


@dataclass(frozen=True, kw_only=True)
class Session(Machine):
    """Common timing of all models of an experiment, in turn, each with the lowest seed that has weights."""

    timed_together: str
    """Id of the timing, the same for all its models."""
    best_reference_s: Positive | None = None
    """Least seconds of ``ReferenceWork`` on this machine so far; None if it was not timed."""
    code_version: str | None = None
    """Version and hash of the sources that were timed; None where they are not known."""


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Raw repeats of one model; of a language model, which does not search, only training is timed."""

    greedy: Speed | None
    beam: Speed | None
    latency: Latency | None
    train: Speed
    session: Session

    def works(self) -> list[Speed | Latency]:
        """Return all that was timed."""
        return [work for work in (self.latency, self.train, self.greedy, self.beam) if work is not None]

    @property
    def reference_s(self) -> float | None:
        """Seconds of ``ReferenceWork`` beside the slowest timing, the median over its repeats."""
        medians = [statistics.median(work.reference_s) for work in self.works() if work.reference_s]
        return max(medians, default=None)


@dataclass(frozen=True, kw_only=True)
class RawSpeed:
    """Content of speed.json."""

    decode_s: Positive | None
    """Seconds of decoding all test sets; None where nothing is decoded."""
    peak_memory_bytes: Count | None
    """Peak memory of training and decoding; None where two processes did these."""
    train_peak_memory_bytes: Count | None = None
    """Peak memory of training; None where several processes did it one after the other."""
    decode_peak_memory_bytes: Count | None = None
    """Peak memory of decoding."""
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
    at_limit: Mapping[str, int] = field(default_factory=dict)
    """Translations of each test set that search ended at the limit; runs of earlier versions lack it."""
    sentences: Mapping[str, list[float]] = field(default_factory=dict)
    """Log-likelihood of each sentence by test set, to four decimals; runs of earlier versions lack it."""


def read_likelihoods(path: Path) -> Likelihoods:
    """Read a perplexity.json; errors are those of ``read_record``."""
    return read_record(
        path,
        Likelihoods,
        MEASURED_AGAIN.format("perplexity.json"),
    )


# The choice of a length penalty on validation, and the file selection.json that keeps it.


SELECTION = "selection.json"


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
    if found.chosen != (chosen := choose_penalty(found.grid)):
        raise ValueError(f"{path}: chosen is {found.chosen}, but the rule gives {chosen}: {remedy}")
    return found


# The file external.json of a run: scores of its translations by external metrics, such as COMET.


@dataclass(frozen=True, kw_only=True)
class SegmentScores:
    """Scores of one text by an external metric."""

    segments: Annotated[list[float], Meta(min_length=1)]
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


External = dict[str, dict[str, RecordedScores]]
"""Content of external.json: scores by test set and name of the metric."""


def read_external(path: Path) -> External:
    """Read an external.json; {} where there is none. Errors are those of ``read_record``."""
    if not path.exists():
        return {}
    remedy = "put the run's own back, or delete it and run attnbench score --external again"
    return read_record(path, External, remedy)
