"""The sections of an experiment: frozen dataclasses that check themselves."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from compare.system.messages import MAX_COMPARED, abbreviate
from data.subwords import KINDS as SUBWORD_KINDS

# Bounds of settings, with errors that name setting, bound and value.


def at_least(bound: int, **values: float) -> None:
    """Raise ValueError if a value is below ``bound``; the keywords are the names of settings."""
    for name, value in values.items():
        if value < bound:
            raise ValueError(f"{name} must be at least {bound}, found {value}")


def at_most(bound: int, **values: float) -> None:
    """Raise ValueError if a value is above ``bound``; the keywords are the names of settings."""
    for name, value in values.items():
        if value > bound:
            raise ValueError(f"{name} must be at most {bound:,}, found {value:,}")


def one_of(**choices: tuple[str, tuple[str, ...]]) -> None:
    """Raise ValueError if a value is none of those known, and name the nearest.

    Args:
        choices: the value and the known ones, by the name of the setting.
    """
    for name, (value, known) in choices.items():
        if value not in known:
            close = get_close_matches(value[:MAX_COMPARED], known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"{name} must be one of {', '.join(known)}, found {abbreviate(value)}{hint}")


def own(default: Any) -> Any:
    """Declare a setting that the rows of one table may differ in: it changes no score, or is the seed."""
    return field(default=default, metadata={"shared": False})


# The sections of an experiment on training: ``[train]`` and ``[regularization]``.


MAX_AVERAGED = 1_000
"""The most weights, at even distances, of which one average is made."""
CONSISTENCY_WEIGHTS: dict[str, float | None] = {"none": None, "r-drop": 2.5, "simcut": 3.0}
"""Default weights of consistency regularisation, those of the papers for translation: Liang et al. 2021,
whose alpha of 5 stands beside the sum of two cross-entropies, not their mean, and Gao et al. 2022."""
CUT = 0.05
"""Default probability of simcut that a token is cut, that of Gao et al. 2022."""


@dataclass(frozen=True, kw_only=True)
class UpdateOptions:
    """The part of ``TrainConfig`` that says how many updates are computed, where and from what."""

    seed: int = own(1)
    """Seed of weights, dropout and batch order."""
    device: str = own("auto")
    """cpu, cuda, cuda:N (the GPU of that number), mps, or auto: cuda if available."""
    precision: str = "auto"
    """fp32, bf16 (autocast; weights stay fp32), or auto: bf16 if the device supports it natively."""
    deterministic: bool = own(False)
    """On a GPU, compute the same bits each time, which is slower; a processor always does."""
    batch_tokens: int = 4_096
    """Maximum number of target tokens per batch, padding included."""
    accumulate: int = own(1)
    """Parts that a batch is computed in, one after the other, where memory cannot hold it at once."""
    max_updates: int = 6_000
    """Optimizer updates; all models see the same batches."""

    def __post_init__(self) -> None:
        """Reject unknown devices and precisions, and numbers out of range."""
        if not re.fullmatch(r"cuda:\d{1,3}", self.device):
            one_of(device=(self.device, ("auto", "cpu", "cuda", "cuda:0", "mps")))
        one_of(precision=(self.precision, ("auto", "fp32", "bf16")))
        at_least(0, seed=self.seed)
        at_least(1, batch_tokens=self.batch_tokens, accumulate=self.accumulate, max_updates=self.max_updates)
        at_most(1_000_000_000, batch_tokens=self.batch_tokens)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(UpdateOptions):
    """Training settings that all models share; those of one model are in ``[[models]]``."""

    label_smoothing: float = 0.1
    """Probability mass spread evenly over the vocabulary (Szegedy et al. 2016)."""
    clip_norm: float = 1.0
    """Maximum total gradient norm; larger gradients are scaled down. 0: none are."""
    valid_every: int = 500
    """Updates between validations."""
    patience: int = 0
    """Stop after this many validations without a better one, by BLEU, of language models by likelihood; 0:
    never stop early."""
    average: int = 1
    """Average the weights of the last N validations; used if better on validation."""
    average_every: int = 0
    """Updates between the weights that are averaged, instead of those of validations; 0: of validations."""
    ema: float = 0.0
    """Decay per update of a moving average of all weights, used if better on validation; 0: none."""
    log_every: int = own(50)
    """Updates between lines of metrics.jsonl."""
    checkpoint_every: int = own(500)
    """Updates between saves of the trainer state."""
    init_from: str | None = own(None)
    """Folder of a finished run whose weights and vocabularies training starts from (fine-tuning), or of an
    experiment: then each model starts from the run of its label and seed. A relative path is read as for
    ``data.root``."""
    init_hash: str | None = own(None)
    """The sha256 of these weights, written into the config.toml of a run."""

    def __post_init__(self) -> None:
        """Reject invalid values before training, and averages that cannot be formed."""
        super().__post_init__()
        at_least(
            1,
            valid_every=self.valid_every,
            average=self.average,
            log_every=self.log_every,
            checkpoint_every=self.checkpoint_every,
        )
        at_least(0, patience=self.patience, average_every=self.average_every)
        if self.init_from == "" or (self.init_hash and not self.init_from):
            raise ValueError("init_from must name the folder of a run, or be left out")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), found {self.label_smoothing}")
        at_least(0, clip_norm=self.clip_norm)
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema must be in [0, 1), found {self.ema}")
        if self.average_every and not 1 < self.average <= MAX_AVERAGED:
            raise ValueError(
                f"average must be from 2 to {MAX_AVERAGED:,} where average_every is set, found {self.average}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class RegularizationConfig:
    """Regularisation that all models share; the dropouts of one model are in ``[[models]]``.

    Two are equal if they mean the same: a default may be written out or left out.
    """

    consistency: str = "none"
    """Loss on the KL divergence between two passes of a batch: none, r-drop, which compares two draws of
    dropout, or simcut, which compares with a pass that lacks some tokens; the formulas are in
    compare/training/consistency.py."""
    consistency_weight: float | None = None
    """Weight alpha of that divergence; by default 2.5 for r-drop and 3 for simcut."""
    cut: float | None = None
    """Probability of a source or target token that its embedding is set to zero in the second pass of simcut;
    by default 0.05."""
    subword_sampling: float = 0.0
    """Segment the training text anew for each epoch: of a bpe vocabulary the probability that a merge is
    dropped (BPE-dropout, Provilkov et al. 2020), of a unigram one the exponent alpha of the probabilities
    that a segmentation is drawn by (Kudo 2018); 0: never."""

    def __post_init__(self) -> None:
        """Reject invalid values and settings that would have no effect."""
        one_of(consistency=(self.consistency, tuple(CONSISTENCY_WEIGHTS)))
        if self.consistency == "none" and self.consistency_weight is not None:
            raise ValueError("consistency_weight has no effect without consistency: set r-drop or simcut")
        if self.consistency != "simcut" and self.cut is not None:
            raise ValueError(f'cut has no effect with consistency = "{self.consistency}": set simcut')
        if self.consistency_weight is not None and self.consistency_weight < 0:
            raise ValueError(f"consistency_weight must not be negative, found {self.consistency_weight}")
        if self.cut is not None and not 0 < self.cut < 1:
            raise ValueError(f"cut must be between 0 and 1, found {self.cut}")
        if not 0 <= self.subword_sampling < 1:
            raise ValueError(f"subword_sampling must be in [0, 1), found {self.subword_sampling}")

    @property
    def weight(self) -> float | None:
        """The weight alpha of the divergence; None without one."""
        default = CONSISTENCY_WEIGHTS[self.consistency]
        return default if self.consistency_weight is None else self.consistency_weight

    @property
    def cut_probability(self) -> float | None:
        """The probability that a token is cut; None for methods that cut none."""
        return CUT if self.consistency == "simcut" and self.cut is None else self.cut

    def __eq__(self, other: object) -> bool:
        """Compare what the settings mean."""
        return isinstance(other, RegularizationConfig) and self._meaning == other._meaning

    def __hash__(self) -> int:
        """Hash what the settings mean."""
        return hash(self._meaning)

    @property
    def _meaning(self) -> tuple[str, float | None, float | None, float]:
        return self.consistency, self.weight, self.cut_probability, self.subword_sampling

    @property
    def passes(self) -> int:
        """Forward and backward passes of the model over each batch."""
        return 1 if self.consistency == "none" else 2

    @property
    def consistency_summary(self) -> str | None:
        """The method with its settings, such as "simcut, weight 3, cut 0.05"; None without one."""
        if self.consistency == "none":
            return None
        cut = "" if self.cut_probability is None else f", cut {self.cut_probability:g}"
        return f"{self.consistency}, weight {self.weight:g}{cut}"


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

    root: str = own("")
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
    batch_tokens: int = own(0)
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

    updates: int = own(10)
    """Training updates per timed repeat."""
    sentences: int = own(256)
    """Test sentences per timed decoding."""
    repeats: int = own(3)
    """Timed repeats; the median, the lowest and the highest are reported."""
    latency_sentences: int = own(100)
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
    reference: str = own("")
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


SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "vocabulary": VocabularyConfig,
    "train": TrainConfig,
    "regularization": RegularizationConfig,
    "decode": DecodeConfig,
    "bench": BenchConfig,
    "budget": BudgetConfig,
}
"""The dataclass of each section that all models share."""


def is_shared(setting: str) -> bool:
    """Return whether all rows of a table must have the same value of a setting, "section.key"."""
    section, _, key = setting.partition(".")
    declared = {each.name: each for each in fields(SECTIONS[section])} if section in SECTIONS else {}
    return key not in declared or bool(declared[key].metadata.get("shared", True))


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
