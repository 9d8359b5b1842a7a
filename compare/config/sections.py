"""Sections of an experiment: frozen dataclasses whose fields are the settings that all models share.

A setting is declared here and nowhere else, with type, bounds, default and help. Hashes, comparisons,
results, columns of tables and the page of settings follow from the declaration.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from msgspec import Meta

from compare.optim_config import DECAY, decay_updates
from compare.scoring import LANGUAGE_TOKENIZERS, Tokenizer
from compare.settings import Fraction, Natural, NonNegative, Positive, Section, convert_setting, setting
from compare.system.messages import abbreviate
from data.vocabulary import SUBWORD_KINDS

CONSISTENCY = {"none": (None, None), "r-drop": (2.5, None), "simcut": (3.0, 0.05)}
"""Weight and cut of each method (Liang et al. 2021; Gao et al. 2022), None where the method has none. The
paper of R-Drop has alpha = 5, for the sum of two cross-entropies; we take their mean."""
EMBEDDED_TRAIN_SIZE = 20_000
"""Default number of training pairs of the built-in corpus."""
EXTRA_TOKENS = 10
"""A translation has at most ``max_ratio`` * source tokens + EXTRA_TOKENS tokens."""


QUICK_TRY = "QUICK TRY: small models and few updates, so the figures mean nothing."
"""Mark of a quick try, above its tables and in its results."""


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """The corpus and the direction of translation."""

    root: str = setting(
        "",
        "Folder with train, valid and test files; empty: the built-in grammar corpus. "
        "A relative path starts at the folder of the TOML file, or with `--set` at the working directory.",
        shared=False,  # data_hash covers the content
    )
    src: str = setting("en", "Source language: the suffix of its files, such as en.")
    tgt: str = setting("de", "Target language: the suffix of its files, such as de.")
    max_tokens: Positive = setting(100, "Drop training pairs with more tokens than this on either side.")
    max_test: Natural = setting(
        0, "Decode and score only the first pairs of each test set, for a quick look; 0: all pairs."
    )
    train_size: Natural = setting(
        0, "Number of training pairs; 0: all pairs of a folder, 20,000 pairs of the built-in corpus."
    )
    seed: Natural = setting(1, "Seed of the built-in corpus.")
    grammar: Literal["full", "short"] = setting(
        "full",
        "Grammar of the built-in corpus. full: sentences of 4 to 25 words, `test_long` 26 to 40. short: "
        "simple clauses from about 100 English words, 4 to 15 words, `test_long` 16 to 25.",
    )

    def __post_init__(self) -> None:
        """Raise ValueError for languages or a path that cannot be meant."""
        super().__post_init__()
        if self.src == self.tgt:
            raise ValueError(f"src and tgt are both {self.src!r}: give two different languages")
        if re.search("[A-Za-z]:[^/]*[\x00-\x1f]", self.root):  # "C:\temp" has a tab
            raise ValueError(f'root {self.root!r} has a control character: write / instead of \\ in "..."')
        if not self.root and (self.src, self.tgt) != ("en", "de"):
            raise ValueError(
                f"the built-in corpus is en -> de, found {self.src} -> {self.tgt}: "
                "set data.root to the folder of your corpus"
            )


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig(Section):
    """The vocabularies, which are built from the training split only."""

    kind: Literal["words", "characters", "unigram", "bpe", "given"] = setting(
        "unigram",
        "words, characters, unigram or bpe (the last two by SentencePiece), or given: the corpus is already "
        "cut into pieces, separated by spaces. Pieces are joined before scoring: `@@ ` is deleted, or "
        "spaces are deleted and each ▁ becomes a space.",
    )
    size: Annotated[int, Meta(ge=5)] = setting(
        8_000, "Maximum number of entries, including the four special ones."
    )
    joint: bool = setting(True, "One vocabulary for both languages.")
    min_count: Positive = setting(1, "Words or characters with fewer occurrences in training become <unk>.")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Section):
    """Training settings that all models share."""

    seed: Natural = setting(1, "Seed of weights, dropout and batch order.", shared=False)
    device: str = setting(
        "auto", "cpu, cuda, cuda:N (the GPU of that number), or auto: cuda if available.", shared=False
    )
    precision: Literal["auto", "fp32", "bf16"] = setting(
        "auto",
        "fp32, bf16 (autocast; weights stay fp32), or auto: bf16 if the device supports it natively. "
        "Translation and scoring always use fp32.",
    )
    deterministic: bool = setting(
        False,
        "Make results reproducible bit by bit; slower on a GPU. A CPU then keeps its number of threads.",
        shared=False,
    )
    batch_tokens: Positive = setting(4_096, "Maximum number of target tokens per batch, padding included.")
    accumulate: Positive = setting(
        1,
        "Number of parts in which each batch is computed, one after the other, to save memory.",
        shared=False,  # the sum of their gradients is that of the whole batch
    )
    max_updates: Positive = setting(6_000, "Number of optimizer updates; all models see the same batches.")
    budgets: tuple[Positive, ...] = setting(
        (),
        "Several numbers of updates in place of `max_updates`, such as [1000, 2000, 4000]; each model gets a "
        "result for each. All share one training at a constant rate, the trunk (schedule stable). The run of "
        "budget b leaves the trunk after (1 - decay) b updates, and its learning rate falls to 0.",
        shared=False,  # the hash records only that there are budgets
    )
    decay: Annotated[float, Meta(gt=0, lt=1)] = setting(
        DECAY, "Last share of the updates, in which the schedule stable lowers the learning rate to 0."
    )
    quick: bool = setting(False, "Marks a quick try (`run --quick`), whose figures mean nothing.")
    label_smoothing: Fraction = setting(
        0.1, "Probability mass spread evenly over the vocabulary (Szegedy et al. 2016)."
    )
    clip_norm: NonNegative = setting(
        1.0, "Maximum total gradient norm; larger gradients are scaled down. 0: no clipping."
    )
    valid_every: Positive = setting(500, "Updates between validations.")
    patience: Natural = setting(
        0,
        "Stop after this many validations without improvement of BLEU, or of likelihood below 1 BLEU and for "
        "language models. 0: never stop early.",
    )
    average: Positive = setting(
        1, "Average the weights of the last N validations, and use the average if it validates better."
    )
    average_every: Natural = setting(
        0, "Updates between the averaged weights; 0: average the weights saved at validations."
    )
    ema: Fraction = setting(
        0.0, "Decay per update of a moving average of the weights, used if it validates better; 0: none."
    )
    log_every: Positive = setting(50, "Updates between lines of metrics.jsonl.", shared=False)
    checkpoint_every: Positive = setting(500, "Updates between saves of the trainer state.", shared=False)
    init_from: str | None = setting(
        None,
        "Fine-tuning: folder of a finished run, whose weights and vocabularies are the start, or of an "
        "experiment: then each model starts from the run of its label and seed. Relative paths are as for "
        "`data.root`.",
        shared=False,  # ``shared_settings`` records that there is one
    )
    init_hash: str | None = setting(
        None, "The sha256 of these weights; attnbench writes it into config.toml.", shared=False
    )

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown device, or settings that do not go together."""
        super().__post_init__()
        if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", self.device):
            raise ValueError(
                f"device must be one of auto, cpu, cuda, cuda:N, found {abbreviate(self.device)}"
            )
        self._check_budgets()
        if self.average_every and self.average < 2:
            raise ValueError(f"average must be at least 2 where average_every is set, found {self.average}")

    def _check_budgets(self) -> None:
        """Check settings that exclude budgets, and set ``max_updates`` to the largest budget."""
        if not self.budgets:
            return
        if any(a >= b for a, b in pairwise(self.budgets)):
            raise ValueError(f"budgets must increase, found {list(self.budgets)}")
        if self.max_updates not in (type(self).max_updates, self.budgets[-1]):
            raise ValueError(
                f"max_updates = {self.max_updates} has no effect beside budgets = {list(self.budgets)}: "
                "leave out one of them"
            )
        if self.patience:
            raise ValueError(
                f"patience = {self.patience} could end the training before a budget: leave one of them out"
            )
        object.__setattr__(self, "max_updates", self.budgets[-1])

    @property
    def budget(self) -> int | None:
        """The only budget of a resolved run; None for a run without budgets."""
        return self.budgets[-1] if self.budgets else None

    @property
    def branch_update(self) -> int:
        """Number of updates after which the run leaves the trunk."""
        return self.max_updates - decay_updates(self.max_updates, self.decay)

    def for_budget(self, updates: int) -> "TrainConfig":
        """Return the settings of the run of one budget."""
        return replace(self, budgets=(updates,), max_updates=updates)


@dataclass(frozen=True, kw_only=True)
class RegularizationConfig(Section):
    """Regularisation that all models share; dropout is a setting of each model."""

    consistency: Literal["none", "r-drop", "simcut"] = setting(
        "none",
        "Loss on the KL divergence between two passes over a batch: none; r-drop, between two draws of "
        "dropout; or simcut, with a pass that lacks some tokens. The formulas are in compare/formulas.py.",
    )
    consistency_weight: NonNegative | None = setting(
        None, "Weight alpha of the divergence; by default 2.5 for r-drop and 3 for simcut."
    )
    cut: Annotated[float, Meta(gt=0, lt=1)] | None = setting(
        None,
        "Probability that the embedding of a token is set to zero in the second pass of simcut; by default "
        "0.05.",
    )
    subword_sampling: Fraction = setting(
        0.0,
        "Segment the training text anew in each epoch. For bpe: probability that a merge is dropped "
        "(BPE-dropout, Provilkov et al. 2020). For unigram: exponent alpha of the probability of a "
        "segmentation (Kudo 2018). 0: no sampling.",
    )

    def __post_init__(self) -> None:
        """Raise ValueError for settings without effect, and fill in the defaults of the method."""
        super().__post_init__()
        for name, default in zip(("consistency_weight", "cut"), CONSISTENCY[self.consistency], strict=True):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
            elif default is None:
                raise ValueError(f'{name} has no effect with consistency = "{self.consistency}"')

    @property
    def passes(self) -> int:
        """Forward and backward passes of the model over each batch."""
        return 1 if self.consistency == "none" else 2


@dataclass(frozen=True, kw_only=True)
class DecodeConfig(Section):
    """Search settings, the same for every model."""

    beam_size: Annotated[int, Meta(ge=1, le=1_000)] = setting(
        5, "Hypotheses kept per sentence; 1 is greedy search."
    )
    length_penalties: tuple[NonNegative, ...] = setting(
        (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0),
        "Values of alpha, the strength of the length penalty; validation chooses one of several.",
    )
    length_normalization: Literal["wu", "length", "both"] = setting(
        "wu",
        "Divisor of the log-probability. wu: ((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14). length: "
        "length ** alpha. both: validation chooses between the two.",
    )
    max_ratio: Annotated[float, Meta(gt=0)] = setting(
        2.0, "A translation has at most max_ratio * source tokens + 10 tokens."
    )
    batch_tokens: Natural = setting(
        0,
        "Maximum of source tokens times hypotheses in a decoding batch; 0: 4,096, or 65,536 on a GPU.",
        shared=False,  # translations do not depend on the batch
    )

    def __post_init__(self) -> None:
        """Raise ValueError unless the length penalties increase."""
        super().__post_init__()
        if not self.length_penalties or any(a >= b for a, b in pairwise(self.length_penalties)):
            penalties = list(self.length_penalties)
            raise ValueError(f"length_penalties must be one number or an increasing list, found {penalties}")

    def batch_tokens_on(self, device: str) -> int:
        """Return ``batch_tokens``, or if it is 0 the default of a device, such as "cuda:1"."""
        default = 4_096 if device == "cpu" else 65_536  # a GPU decodes a larger batch in nearly the same time
        return self.batch_tokens or default


@dataclass(frozen=True, kw_only=True)
class ScoringConfig(Section):
    """Computation of BLEU, and the comparison of models by it."""

    tokenize: Tokenizer = setting(
        "auto",
        "sacreBLEU's tokenizer for BLEU. auto: by target language, "
        f"{', '.join(f'{name} for {language}' for language, name in LANGUAGE_TOKENIZERS.items())}, else 13a. "
        "ja-mecab and ko-mecab need the extras ja and ko.",
    )
    baseline: str = setting(
        "", "Label of the model that all others are tested against; empty: all pairs are tested."
    )
    pairs: tuple[tuple[str, str], ...] = setting(
        (),
        'Further pairs of labels to test beside those with the baseline, such as [["gru", "lstm"]].',
    )
    outcome: str = setting(
        "first",
        "Test set whose BLEU decides which model is better: first, the name of a test set, or mean (the mean "
        "BLEU of all test sets).",
    )

    def __post_init__(self) -> None:
        """Raise ValueError for pairs that are tested already, or of one model."""
        super().__post_init__()
        if self.pairs and not self.baseline:
            raise ValueError("pairs has no effect without baseline, because all pairs are tested: set it too")
        for index, pair in enumerate(self.pairs):
            if len({*pair, self.baseline}) < 3 or {*pair} in map(set, self.pairs[:index]):
                raise ValueError(
                    f"pairs must have two models other than the baseline, each pair once, found {list(pair)}"
                )


@dataclass(frozen=True, kw_only=True)
class BenchConfig(Section):
    """Amounts of work of the timings, which follow the last run and time all models in turn."""

    updates: Positive = setting(10, "Training updates per timed repeat.", shared=False)
    sentences: Positive = setting(256, "Test sentences per timed decoding.", shared=False)
    repeats: Positive = setting(3, "Timed repeats; median, lowest and highest are reported.", shared=False)
    seconds: NonNegative = setting(
        5.0,
        "Minimum seconds of a timed repeat, which does its work as often as necessary; latency excepted.",
        shared=False,
    )
    latency_sentences: Positive = setting(
        100,
        "Sentences translated one by one for the latency; the 95th percentile needs at least 100.",
        shared=False,
    )


@dataclass(frozen=True, kw_only=True)
class BudgetConfig(Section):
    """Quantity that is made equal for all models, by changing their widths."""

    match: Literal["none", "params", "flops"] = setting(
        "none", "none, params (trainable weights) or flops (of training, per token)."
    )
    reference: str = setting(
        "",
        "Label of the model that stays unchanged and sets the amount of the others; empty: the first.",
        shared=False,
    )
    amount: NonNegative = setting(
        0.0, "The budget in weights or FLOPs per token; 0: the amount of the reference."
    )
    changed: str = setting(
        "", "Widths that the budget has changed, written into the config.toml of a run.", shared=False
    )

    def __post_init__(self) -> None:
        """Raise ValueError for settings without effect."""
        super().__post_init__()
        if self.match == "none" and (self.reference or self.amount):
            raise ValueError("reference and amount have no effect without match: set match too")


@dataclass(frozen=True, kw_only=True)
class Sections:
    """The sections of an experiment, which all its models share."""

    data: DataConfig = field(default_factory=DataConfig)
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    regularization: RegularizationConfig = field(default_factory=RegularizationConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    scoring: ScoringConfig = field(default_factory=ScoringConfig)
    bench: BenchConfig = field(default_factory=BenchConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)

    def sections(self) -> dict[str, Any]:
        """Return the sections by name."""
        return {name: getattr(self, name) for name in SECTIONS}


SECTIONS: dict[str, Any] = {item.name: item.type for item in fields(Sections)}
"""The dataclass of each section."""
SETTINGS = {f"{section}.{item.name}": item for section, kind in SECTIONS.items() for item in fields(kind)}
"""The field of each setting, by "section.key"."""
SHARED = {name: item.default for name, item in SETTINGS.items() if item.metadata["shared"]}
"""Defaults of the settings that must be equal in all rows of a table."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A ``[[models]]`` table."""

    preset: str
    label: str
    """Name of the model in tables and folders."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that replace those of the preset, by name."""


EXTERNAL = "external"
"""Preset of external systems."""


@dataclass(frozen=True, kw_only=True)
class SystemConfig:
    """A ``[[systems]]`` table: translations of another program."""

    label: str
    files: Mapping[str, str]
    """Absolute path of the translations of each test set, one line per sentence."""


@dataclass(frozen=True, kw_only=True)
class Experiment(Sections):
    """An experiment file, checked."""

    name: str
    """Name of the file without its suffix."""
    models: tuple[ModelConfig, ...]
    systems: tuple[SystemConfig, ...] = ()
    seeds: tuple[Natural, ...] = ()
    """Seeds of the runs of each model; by default that of ``[train]``."""
    plugins: tuple[str, ...] = ()
    """Modules that register models, scores, metrics or studies."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings that do not go together."""
        seeds = convert_setting(self.seeds, tuple[Natural, ...], "seeds")
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds must be different, found {list(seeds)}")
        if seeds and self.train.seed != TrainConfig().seed:
            raise ValueError("train.seed has no effect beside seeds: leave out one of them")
        object.__setattr__(self, "seeds", seeds)
        kind = self.vocabulary.kind
        if self.regularization.subword_sampling and kind not in SUBWORD_KINDS:
            raise ValueError(
                "regularization.subword_sampling needs subwords: "
                f'set vocabulary.kind to {" or ".join(SUBWORD_KINDS)}, found "{kind}"'
            )


def run_name(label: str, seed: int, budget: int | None = None) -> str:
    """Return the name of a run's folder; ``budget`` is None unless there are several."""
    return f"{label}-seed{seed}" + ("" if budget is None else f"-budget{budget}")
