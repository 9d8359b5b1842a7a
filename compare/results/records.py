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
    "restore the original {}, or delete it and the run's result.json and run the experiment again"
)


# The file speed.json of a run: the raw repeats of everything that was timed.


@dataclass(frozen=True, kw_only=True)
class Latency(Repeats):
    """Times of sentences that were translated alone."""

    ms: list[list[Positive]]
    """Milliseconds by repeat and sentence."""


@dataclass(frozen=True, kw_only=True)
class Session(Machine):
    """Common timing of all models of an experiment, in turn, with their lowest seed that has weights."""

    timed_together: str
    best_reference_s: Positive | None = None
    """Least seconds of ``ReferenceWork`` on this machine so far."""
    code_version: str | None = None
    """Version and hash of the sources that were timed."""


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Raw repeats of one model; of a language model only training is timed."""

    greedy: Speed | None
    beam: Speed | None
    latency: Latency | None
    train: Speed
    session: Session

    def works(self) -> list[Speed | Latency]:
        """Return everything that was timed."""
        return [work for work in (self.latency, self.train, self.greedy, self.beam) if work is not None]

    @property
    def reference_s(self) -> float | None:
        """Seconds of ``ReferenceWork`` beside the slowest timing, median over its repeats."""
        medians = [statistics.median(work.reference_s) for work in self.works() if work.reference_s]
        return max(medians, default=None)


@dataclass(frozen=True, kw_only=True)
class RawSpeed:
    """Content of speed.json."""

    decode_s: Positive | None
    peak_memory_bytes: Count | None
    """Peak of training and decoding, if one process did both."""
    train_peak_memory_bytes: Count | None = None
    """Peak of training, if one process did it."""
    decode_peak_memory_bytes: Count | None = None
    decoded_on: Machine | None = None
    """Machine of decoding, perhaps not that of the timings."""
    timings: Timings | None = None
    """None until all runs of the experiment have ended."""


def read_speed(path: Path) -> RawSpeed:
    """Read a speed.json; errors are those of ``read_record``."""
    return read_record(path, RawSpeed, "restore the original speed.json")


# The file perplexity.json of a run: the likelihood of the references under its model.


@dataclass(frozen=True, kw_only=True)
class LikelihoodSums:
    """Sums over the sentences of a text that give its perplexities."""

    nll: Annotated[float, Meta(ge=0)]
    """Negative log-likelihood of all translations, in nats, without label smoothing."""
    tokens: Annotated[int, Meta(ge=1)]
    """Target tokens, one end of sentence per line included."""
    characters: Annotated[int, Meta(ge=1)]
    """Unicode characters, one line end per line included."""
    unknown: Count
    """Tokens that are <unk>, which are easier to predict than words."""

    @property
    def perplexity(self) -> float:
        """exp(nll / tokens), which depends on the vocabulary."""
        return perplexity(self.nll / self.tokens)

    @property
    def char_perplexity(self) -> float:
        """exp(nll / characters), which compares vocabularies without unknown words."""
        return perplexity(self.nll / self.characters)


@dataclass(frozen=True, kw_only=True)
class Likelihoods:
    """Content of perplexity.json."""

    tests: Mapping[str, LikelihoodSums]
    weights: str
    at_limit: Mapping[str, int] = field(default_factory=dict)
    """Translations that search ended at the limit, by test set; early versions lack it."""
    sentences: Mapping[str, list[float]] = field(default_factory=dict)
    """Log-likelihood of each sentence by test set; early versions lack it."""


def read_likelihoods(path: Path) -> Likelihoods:
    """Read a perplexity.json; errors are those of ``read_record``."""
    return read_record(path, Likelihoods, MEASURED_AGAIN.format("perplexity.json"))


# The file selection.json of a run: the choice of a length penalty on validation.


SELECTION = "selection.json"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Content of selection.json."""

    grid: list[GridPoint]
    chosen: int
    """Index in ``grid``."""
    weights: str

    @property
    def penalty(self) -> LengthPenalty:
        """The chosen length penalty."""
        return self.grid[self.chosen].penalty


def read_selection(path: Path, penalties: Sequence[LengthPenalty]) -> Selection:
    """Read a selection.json; ValueError if it is missing, damaged, or does not fit config and rule."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: run the experiment again to choose a length penalty")
    remedy = MEASURED_AGAIN.format(SELECTION)
    selection = read_record(path, Selection, remedy)
    if [point.penalty for point in selection.grid] != list(penalties):
        raise ValueError(f"{path}: the grid differs from config.toml: {remedy}")
    if selection.chosen != (chosen := choose_penalty(selection.grid)):
        raise ValueError(f"{path}: chosen is {selection.chosen}, but the rule gives {chosen}: {remedy}")
    return selection


# The file external.json of a run: scores of its translations by external metrics, such as COMET.


@dataclass(frozen=True, kw_only=True)
class SegmentScores:
    """Scores of one text by an external metric."""

    segments: Annotated[list[float], Meta(min_length=1)]
    """One score per line."""
    signature: str
    """Version and settings; scores compare only under the same signature."""

    @property
    def score(self) -> float:
        """The mean of the segments."""
        return fmean(self.segments)

    def columns(self, name: str) -> dict[str, float | str]:
        """Return score and signature by column: "comet", "comet_signature"."""
        return {name: self.score, f"{name}_signature": self.signature}


@dataclass(frozen=True, kw_only=True)
class RecordedScores(SegmentScores):
    """Scores of the translations of one test set, as a run stores them."""

    translations: str
    """sha256 of the translations; scores of others are not shown."""


External = dict[str, dict[str, RecordedScores]]
"""Content of external.json: scores by test set and metric."""


def read_external(path: Path) -> External:
    """Read an external.json, if there is one; errors are those of ``read_record``."""
    if not path.exists():
        return {}
    remedy = "restore the original, or delete it and run attnbench score --external again"
    return read_record(path, External, remedy)
