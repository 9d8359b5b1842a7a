"""The sections of an experiment, which all its models share: frozen dataclasses whose fields are settings.

A setting is declared here and nowhere else: its type with bounds, its default, its help, and whether the rows
of a table share it. What is hashed, compared, documented and recorded in results follows; tables have a
column of each shared setting in which rows differ, and below them stand those that are not the default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from msgspec import Meta

from compare.optim import DECAY, decay_updates
from compare.scoring import LANGUAGE_TOKENIZERS, Tokenizer
from compare.settings import Fraction, Natural, NonNegative, Positive, Section, convert_setting, setting
from compare.system.messages import abbreviate
from data.vocabulary import SUBWORD_KINDS

CONSISTENCY = {"none": (None, None), "r-drop": (2.5, None), "simcut": (3.0, 0.05)}
"""Weight and cut of each method, None if it has none: those of the papers for translation, Liang et al. 2021,
whose alpha of 5 stands beside the sum of two cross-entropies, not their mean, and Gao et al. 2022."""
MAX_BEAM_SIZE = 1_000
"""The largest beam that the literature tries (Koehn and Knowles 2017, section 3.6)."""
EMBEDDED_TRAIN_SIZE = 20_000
"""Training pairs of the built-in corpus, unless the config says otherwise."""
EXTRA_TOKENS = 10
"""Tokens that a translation may have beyond ``max_ratio`` times those of its source."""


QUICK_TRY = "QUICK TRY: small models and few updates, so the figures mean nothing."
"""Mark of a quick try, above its tables and in its results."""


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """The corpus and the direction of translation."""

    root: str = setting(
        "",
        "Folder with train, valid and test files; empty: the built-in grammar corpus. "
        "In a TOML file it is relative to the folder of the file, in `--set` to the working directory.",
        shared=False,  # a path of this machine; data_hash covers the content
    )
    src: str = setting("en", "Source language: the suffix of its files, such as en.")
    tgt: str = setting("de", "Target language: the suffix of its files, such as de.")
    max_tokens: Positive = setting(
        100, "Training pairs with more tokens than this on either side are dropped and counted."
    )
    max_test: Natural = setting(
        0, "Decode and score only this many pairs of each test set, for a quick look; 0: all."
    )
    train_size: Natural = setting(
        0,
        "Number of training pairs: the first of a folder, or as many as the built-in corpus generates; "
        "0: all of a folder, 20,000 of the built-in corpus.",
    )
    seed: Natural = setting(1, "Seed of the built-in corpus.")
    grammar: Literal["full", "short"] = setting(
        "full",
        "The built-in corpus: full, sentences of 4 to 25 words, `test_long` 26 to 40; or short, chains of "
        "simple clauses with about 100 English words, of 4 to 15 words, `test_long` 16 to 25.",
    )

    def __post_init__(self) -> None:
        """Reject languages that the corpus cannot have."""
        super().__post_init__()
        if self.src == self.tgt:
            raise ValueError(f"src and tgt are both {self.src!r}: a translation needs two languages")
        if re.search("[A-Za-z]:[^/]*[\x00-\x1f]", self.root):  # of a Windows path, such as C:\temp
            raise ValueError(f'root {self.root!r} has a control character: in "..." write / instead of \\')
        if not self.root and (self.src, self.tgt) != ("en", "de"):
            raise ValueError(
                f"the built-in corpus is en -> de, found {self.src} -> {self.tgt}: "
                "set data.root to the folder of your corpus"
            )


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig(Section):
    """The vocabularies; built from the training split only."""

    kind: Literal["words", "characters", "unigram", "bpe", "given"] = setting(
        "unigram",
        "words, characters, unigram or bpe (the last two by SentencePiece), or given: what spaces separate, "
        "for a corpus that is cut into pieces already. Translations and references are joined before "
        "scoring: `@@ ` is deleted, or else spaces are deleted and each ▁ becomes a space.",
    )
    size: Annotated[int, Meta(ge=5)] = setting(
        8_000, "Maximum number of entries, the four special ones included."
    )
    joint: bool = setting(True, "One vocabulary for both languages.")
    min_count: Positive = setting(1, "Words or characters seen less often in training become <unk>.")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Section):
    """Training settings that all models share; those of one model are in ``[[models]]``."""

    seed: Natural = setting(1, "Seed of weights, dropout and batch order.", shared=False)
    device: str = setting(
        "auto",
        "cpu, cuda, cuda:N (the GPU of that number), or auto: cuda if available.",
        shared=False,
    )
    precision: Literal["auto", "fp32", "bf16"] = setting(
        "auto",
        "fp32, bf16 (autocast; weights stay fp32), or auto: bf16 if the device supports it natively. "
        "Translations and scores are computed in fp32 in any case.",
    )
    deterministic: bool = setting(
        False,
        "Compute the same bits each time: a GPU is slower then; a processor keeps its number of threads.",
        shared=False,
    )
    batch_tokens: Positive = setting(4_096, "Maximum number of target tokens per batch, padding included.")
    accumulate: Positive = setting(
        1,
        "Parts that a batch is computed in, one after the other, where memory cannot hold it at once.",
        shared=False,  # their gradients have the sum of the whole batch's
    )
    max_updates: Positive = setting(6_000, "Optimizer updates; all models see the same batches.")
    budgets: tuple[Positive, ...] = setting(
        (),
        "Several numbers of updates in place of `max_updates`, such as [1000, 2000, 4000]; each model has a "
        "result at each of them. All share one training at a constant rate, the trunk (schedule stable). The "
        "run of budget b leaves it after (1 - decay) b updates, and its rate falls to 0.",
        shared=False,  # the hash says only that there are budgets
    )
    decay: Annotated[float, Meta(gt=0, lt=1)] = setting(
        DECAY, "Last share of the updates, in which the learning rate of the schedule stable falls to 0."
    )
    quick: bool = setting(False, "Marks a quick try (`run --quick`), whose figures mean nothing.")
    label_smoothing: Fraction = setting(
        0.1, "Probability mass spread evenly over the vocabulary (Szegedy et al. 2016)."
    )
    clip_norm: NonNegative = setting(
        1.0, "Maximum total gradient norm; larger gradients are scaled down. 0: none are."
    )
    valid_every: Positive = setting(500, "Updates between validations.")
    patience: Natural = setting(
        0,
        "Stop after this many validations without a better one, by BLEU; by likelihood below "
        "1 BLEU and for language models. 0: never stop early.",
    )
    average: Positive = setting(
        1, "Average the weights of the last N validations; used if better on validation."
    )
    average_every: Natural = setting(
        0,
        "Updates between the weights that are averaged; 0: average those saved at validations.",
    )
    ema: Fraction = setting(
        0.0, "Decay per update of a moving average of all weights, used if better on validation; 0: none."
    )
    log_every: Positive = setting(50, "Updates between lines of metrics.jsonl.", shared=False)
    checkpoint_every: Positive = setting(500, "Updates between saves of the trainer state.", shared=False)
    init_from: str | None = setting(
        None,
        "Folder of a finished run whose weights and vocabularies training starts from (fine-tuning), or of "
        "an experiment: then each model starts from the run of its label and seed. A relative path is read "
        "as for `data.root`.",
        shared=False,  # ``shared_settings`` has what it means
    )
    init_hash: str | None = setting(
        None, "The sha256 of these weights, written into the config.toml of a run.", shared=False
    )

    def __post_init__(self) -> None:
        """Reject unknown devices, and averages that cannot be formed."""
        super().__post_init__()
        if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", self.device):
            raise ValueError(
                f"device must be one of auto, cpu, cuda, cuda:N, found {abbreviate(self.device)}"
            )
        self._check_budgets()
        if self.average_every and self.average < 2:
            raise ValueError(f"average must be at least 2 where average_every is set, found {self.average}")

    def _check_budgets(self) -> None:
        """Reject budgets that do not increase, and what has no effect beside them; set ``max_updates``."""
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
                f"patience = {self.patience} could end the training before a budget: leave it out beside "
                "budgets"
            )
        object.__setattr__(self, "max_updates", self.budgets[-1])

    @property
    def budget(self) -> int | None:
        """The only budget of a resolved run; None for a run without budgets."""
        return self.budgets[-1] if self.budgets else None

    @property
    def branch_update(self) -> int:
        """Updates after which a training to ``max_updates`` leaves the trunk."""
        return self.max_updates - decay_updates(self.max_updates, self.decay)

    def for_budget(self, updates: int) -> "TrainConfig":
        """Return the settings of a run of one budget."""
        return replace(self, budgets=(updates,), max_updates=updates)


@dataclass(frozen=True, kw_only=True)
class RegularizationConfig(Section):
    """Regularisation that all models share; the dropouts of one model are in ``[[models]]``.

    With consistency regularisation, a weight and a probability that are left out become the method's own.
    """

    consistency: Literal["none", "r-drop", "simcut"] = setting(
        "none",
        "Loss on the KL divergence between two passes of a batch: none, r-drop, which compares two draws of "
        "dropout, or simcut, which compares with a pass that lacks some tokens; the formulas are in "
        "compare/formulas.py.",
    )
    consistency_weight: NonNegative | None = setting(
        None, "Weight alpha of that divergence; by default 2.5 for r-drop and 3 for simcut."
    )
    cut: Annotated[float, Meta(gt=0, lt=1)] | None = setting(
        None,
        "Probability of a source or target token that its embedding is set to zero in the second pass of "
        "simcut; by default 0.05.",
    )
    subword_sampling: Fraction = setting(
        0.0,
        "Segment the training text anew for each epoch: of a bpe vocabulary the probability that a merge is "
        "dropped (BPE-dropout, Provilkov et al. 2020), of a unigram one the exponent alpha of the "
        "probabilities that a segmentation is drawn by (Kudo 2018); 0: never.",
    )

    def __post_init__(self) -> None:
        """Reject settings that would have no effect, and complete the others."""
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

    beam_size: Annotated[int, Meta(ge=1, le=MAX_BEAM_SIZE)] = setting(
        5, "Hypotheses kept per sentence; 1 is greedy search."
    )
    length_penalties: tuple[NonNegative, ...] = setting(
        (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0),
        "Values of alpha, the strength of the length penalty; one of several is chosen on validation.",
    )
    length_normalization: Literal["wu", "length", "both"] = setting(
        "wu",
        "Divisor of a log-probability: wu, ((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14), length, "
        "length ** alpha, or both: one of the two is chosen too.",
    )
    max_ratio: Annotated[float, Meta(gt=0)] = setting(
        2.0, "A translation has at most max_ratio * source tokens + 10 tokens."
    )
    batch_tokens: Natural = setting(
        0,
        "Maximum of source tokens times hypotheses decoded together; 0: 4,096, or 65,536 on a GPU.",
        shared=False,  # a translation does not depend on the sentences that are decoded with it
    )

    def __post_init__(self) -> None:
        """Reject length penalties that are no list of different ones."""
        super().__post_init__()
        if not self.length_penalties or any(a >= b for a, b in pairwise(self.length_penalties)):
            found = list(self.length_penalties)
            raise ValueError(f"length_penalties must be one number or several that rise, found {found}")

    def batch_tokens_on(self, device: str) -> int:
        """Return ``batch_tokens``, or if it is 0 the number that suits a device, such as "cuda:1"."""
        default = 4_096 if device == "cpu" else 65_536  # a GPU takes nearly the same time for a larger batch
        return self.batch_tokens or default


@dataclass(frozen=True, kw_only=True)
class ScoringConfig(Section):
    """How BLEU is computed, in validation and on test sets, and which models are compared by it."""

    tokenize: Tokenizer = setting(
        "auto",
        "sacreBLEU's tokenizer of BLEU; auto: that of the target language, "
        f"{', '.join(f'{name} for {language}' for language, name in LANGUAGE_TOKENIZERS.items())}, else 13a. "
        "ja-mecab and ko-mecab need the extras ja and ko.",
    )
    baseline: str = setting(
        "", "Label of the model that each other one is tested against; empty: all pairs are tested."
    )
    outcome: str = setting(
        "first",
        "Test set whose BLEU decides which model is better: first, the name of a test set, or mean, the mean "
        "BLEU of all test sets.",
    )


@dataclass(frozen=True, kw_only=True)
class BenchConfig(Section):
    """Amounts of work of the timings, which follow the last run and take all models in turn."""

    updates: Positive = setting(10, "Training updates per timed repeat.", shared=False)
    sentences: Positive = setting(256, "Test sentences per timed decoding.", shared=False)
    repeats: Positive = setting(
        3, "Timed repeats; the median, the lowest and the highest are reported.", shared=False
    )
    seconds: NonNegative = setting(
        5.0,
        "Seconds that a timed repeat lasts at least, in which its work is done as often as it takes; "
        "not of the latency.",
        shared=False,
    )
    latency_sentences: Positive = setting(
        100,
        "Sentences translated one at a time for the latency; below 100 there is no 95th percentile.",
        shared=False,
    )


@dataclass(frozen=True, kw_only=True)
class BudgetConfig(Section):
    """The quantity in which the models are made equal (see compare/experiment/budget.py)."""

    match: Literal["none", "params", "flops"] = setting(
        "none",
        "none, params (trainable weights) or flops (of training, per token).",
    )
    reference: str = setting(
        "",
        "Label of the model that stays unchanged and whose amount the others get; empty: the first.",
        shared=False,
    )
    amount: NonNegative = setting(
        0.0, "The budget in weights or FLOPs per token; 0: the amount of the reference."
    )
    changed: str = setting(
        "", "Widths that the budget has changed, written into the config.toml of a run.", shared=False
    )

    def __post_init__(self) -> None:
        """Reject settings that would have no effect."""
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


SECTIONS: dict[str, Any] = {each.name: each.type for each in fields(Sections)}
"""The dataclass of each section."""


SETTINGS = {f"{section}.{each.name}": each for section, kind in SECTIONS.items() for each in fields(kind)}
"""The declaration of each setting that all models share, by "section.key"."""
SHARED = {name: each.default for name, each in SETTINGS.items() if each.metadata["shared"]}
"""Settings of which all rows of a table must have the same value, with their defaults."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A ``[[models]]`` table: a preset, a label, and the settings of the preset that it overrides."""

    preset: str
    """Name of the preset."""
    label: str
    """Name of the model in tables and folders."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the preset, by name."""


EXTERNAL = "external"
"""Stands for the preset of an external system."""


@dataclass(frozen=True, kw_only=True)
class SystemConfig:
    """A ``[[systems]]`` table: an external system, whose translations were made by another program."""

    label: str
    """Name of the row in tables and folders."""
    files: Mapping[str, str]
    """Absolute path of its translations by name of the test set, one line per sentence."""


@dataclass(frozen=True, kw_only=True)
class Experiment(Sections):
    """A comparison as written and checked: shared sections, and one entry of ``models`` per model."""

    name: str
    """Name of the file without its suffix."""
    models: tuple[ModelConfig, ...]
    """Presets, labels and overrides, in the order of the table."""
    systems: tuple[SystemConfig, ...] = ()
    """External systems."""
    seeds: tuple[Natural, ...] = ()
    """Seeds that each model is trained from; by default that of ``[train]``."""
    plugins: tuple[str, ...] = ()
    """Modules from outside this repository that register models, scores, metrics or studies."""

    def __post_init__(self) -> None:
        """Reject settings that do not go together."""
        seeds = convert_setting(self.seeds, tuple[Natural, ...], "seeds")
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds must be different, found {list(seeds)}")
        if seeds and self.train.seed != TrainConfig().seed:
            raise ValueError("train.seed has no effect beside seeds: leave out one of them")
        object.__setattr__(self, "seeds", seeds)
        kind = self.vocabulary.kind
        if self.regularization.subword_sampling and kind not in SUBWORD_KINDS:
            raise ValueError(
                "regularization.subword_sampling needs a vocabulary of several segmentations: "
                f'set vocabulary.kind to {" or ".join(SUBWORD_KINDS)}, found "{kind}"'
            )


def run_name(label: str, seed: int, budget: int | None = None) -> str:
    """Name the folder of one model and seed, and of one of several budgets."""
    return f"{label}-seed{seed}" + ("" if budget is None else f"-budget{budget}")
