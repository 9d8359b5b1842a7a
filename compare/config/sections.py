"""The sections of an experiment: frozen dataclasses that check themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from compare.config.bounds import at_least, at_most, one_of
from compare.config.training_sections import RegularizationConfig, TrainConfig
from compare.system.hints import abbreviate
from data.subwords import KINDS as SUBWORD_KINDS

MAX_BEAM_SIZE = 1_000
"""The largest beam that the literature tries (Koehn and Knowles 2017, section 3.6)."""
EMBEDDED_TRAIN_SIZE = 20_000
"""Training pairs of the built-in corpus, unless the config says otherwise."""
EXTRA_TOKENS = 10
"""Tokens that a translation may have beyond ``max_ratio`` times those of its source."""
MAX_PENALTIES = 50
"""Length penalties that one search serves: it keeps the best translation for each."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The corpus and the direction of translation."""

    root: str = ""
    """Folder with train, valid and test files; empty: the built-in grammar corpus.

    In a TOML file it is relative to the folder of the file, in ``--set`` to the working directory.
    """
    src: str = "en"
    """Source language: the suffix of its files, such as en."""
    tgt: str = "de"
    """Target language: the suffix of its files, such as de."""
    max_tokens: int = 100
    """Training pairs with more tokens than this on either side are dropped and counted."""
    max_test: int = 0
    """Decode and score only this many pairs of each test set, for a quick look; 0: all."""
    train_size: int = 0
    """Number of training pairs: the first of a folder, or as many as the built-in corpus generates; 0: all of
    a folder, 20,000 of the built-in corpus."""
    seed: int = 1
    """Seed of the built-in corpus."""

    def __post_init__(self) -> None:
        """Reject invalid values before the corpus is read."""
        at_least(1, max_tokens=self.max_tokens)
        at_least(0, seed=self.seed, max_test=self.max_test, train_size=self.train_size)
        at_most(10_000_000, train_size=self.train_size)
        if self.src == self.tgt:
            raise ValueError(f"src and tgt are both {self.src!r}: a translation needs two languages")
        if not self.root and (self.src, self.tgt) != ("en", "de"):
            raise ValueError(
                f"the built-in corpus is en -> de, found {self.src} -> {self.tgt}: "
                "set data.root to the folder of your corpus"
            )


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """The vocabularies; built from the training split only."""

    kind: str = "unigram"
    """words, characters, unigram or bpe (the last two by SentencePiece)."""
    size: int = 8_000
    """Maximum number of entries, the four special ones included."""
    joint: bool = True
    """One vocabulary for both languages."""
    min_count: int = 1
    """Words or characters seen less often in training become <unk>."""

    def __post_init__(self) -> None:
        """Reject an unknown kind, and a size that only fits the special entries."""
        one_of(kind=(self.kind, ("words", "characters", "unigram", "bpe")))
        at_least(5, size=self.size)
        at_most(10_000_000, size=self.size)
        at_least(1, min_count=self.min_count)


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Search settings, the same for every model."""

    beam_size: int = 5
    """Hypotheses kept per sentence; 1 is greedy search."""
    length_penalties: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0)
    """Values of alpha, the strength of the length penalty; one of several is chosen on validation."""
    length_normalization: str = "wu"
    """Divisor of a log-probability: wu, ((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14), length,
    length ** alpha, or both: one of the two is chosen too."""
    max_ratio: float = 2.0
    """A translation has at most max_ratio * source tokens + 10 tokens."""
    batch_tokens: int = 0
    """Maximum of source tokens times hypotheses decoded together; 0: 4,096, or 65,536 on a GPU."""

    def __post_init__(self) -> None:
        """Reject invalid values."""
        at_least(1, beam_size=self.beam_size)
        at_least(0, batch_tokens=self.batch_tokens)
        if not self.max_ratio > 0:
            raise ValueError(f"max_ratio must be positive, found {self.max_ratio}")
        at_most(MAX_BEAM_SIZE, beam_size=self.beam_size)
        at_most(1_000_000_000, batch_tokens=self.batch_tokens)
        at_most(1_000, max_ratio=self.max_ratio)
        one_of(length_normalization=(self.length_normalization, ("wu", "length", "both")))
        if not 1 <= (count := len(self.length_penalties)) <= MAX_PENALTIES:
            raise ValueError(f"length_penalties must hold 1 to {MAX_PENALTIES} numbers, found {count}")
        for alpha in self.length_penalties:
            at_most(10, length_penalties=alpha)
            if alpha < 0:
                raise ValueError(f"length_penalties must not be negative, found {alpha}")
        if any(later <= earlier for earlier, later in pairwise(self.length_penalties)):
            raise ValueError(
                f"length_penalties must rise, found {', '.join(map(str, self.length_penalties))}"
            )

    def batch_tokens_on(self, device: str) -> int:
        """Return ``batch_tokens``, or if it is 0 the number that suits a device, such as "cuda:1"."""
        default = 4_096 if device == "cpu" else 65_536  # a GPU takes nearly the same time for a larger batch
        return self.batch_tokens or default


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """Amounts of work of the timings, which follow the last run and take all models in turn."""

    updates: int = 10
    """Training updates per timed repeat."""
    sentences: int = 256
    """Test sentences per timed decoding."""
    repeats: int = 3
    """Timed repeats; the median, the lowest and the highest are reported."""
    latency_sentences: int = 100
    """Sentences translated one at a time for the latency; below 100 there is no 95th percentile."""

    def __post_init__(self) -> None:
        """Reject counts below 1."""
        at_least(1, updates=self.updates, sentences=self.sentences, repeats=self.repeats)
        at_least(1, latency_sentences=self.latency_sentences)


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    """The quantity in which the models are made equal (see compare/experiment/budget/)."""

    match: str = "none"
    """none, params (trainable weights), flops (of training, per token) or time (seconds of training)."""
    reference: str = ""
    """Label of the model that stays unchanged and whose amount the others get; empty: the first."""
    amount: float = 0.0
    """The budget in weights, FLOPs per token or seconds; 0: the amount of the reference."""

    def __post_init__(self) -> None:
        """Reject invalid values, and settings that would have no effect."""
        one_of(match=(self.match, ("none", "params", "flops", "time")))
        if self.amount < 0:
            raise ValueError(f"amount must be at least 0, found {self.amount:g}")
        if self.match == "none" and (self.reference or self.amount):
            raise ValueError("reference and amount have no effect without match: set match too")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A ``[[models]]`` table: a preset, a label, and the settings of the preset that it overrides."""

    preset: str
    """Name of the preset."""
    label: str
    """Name of the model in tables and folders."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the preset, by name."""

    def __post_init__(self) -> None:
        """Reject labels that cannot name a folder."""
        if not self.label or not all(c.isalnum() or c in "-_.+" for c in self.label) or self.label[0] == ".":
            raise ValueError(
                f"label {abbreviate(self.label)} names a folder: only letters, digits and -_.+ are allowed"
            )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A comparison as written and checked: shared sections, and one entry of ``models`` per model."""

    name: str
    """Name of the file without its suffix."""
    data: DataConfig
    """Corpus and direction of translation."""
    vocabulary: VocabularyConfig
    """Kind and size of the vocabularies."""
    train: TrainConfig
    """Training settings that all models share."""
    regularization: RegularizationConfig = field(default_factory=RegularizationConfig)
    """Regularisation that all models share."""
    decode: DecodeConfig
    """Search settings."""
    bench: BenchConfig
    """Amounts of work of the timings."""
    budget: BudgetConfig
    """Quantity in which the models are made equal."""
    models: tuple[ModelConfig, ...]
    """Presets, labels and overrides, in the order of the table."""
    plugins: tuple[str, ...] = ()
    """Modules from outside this repository that register models, scores, metrics or studies."""

    def __post_init__(self) -> None:
        """Reject sections that do not go together."""
        kind = self.vocabulary.kind
        if self.regularization.subword_sampling and kind not in SUBWORD_KINDS:
            raise ValueError(
                "regularization.subword_sampling needs a vocabulary of several segmentations: "
                f'set vocabulary.kind to {" or ".join(SUBWORD_KINDS)}, found "{kind}"'
            )


def run_name(label: str, seed: int) -> str:
    """Name the folder of one model and seed."""
    return f"{label}-seed{seed}"
