"""The sections of an experiment on training: ``[train]`` and ``[regularization]``."""

import re
from dataclasses import dataclass

from compare.config.bounds import at_least, at_most, one_of

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

    seed: int = 1
    """Seed of weights, dropout and batch order."""
    device: str = "auto"
    """cpu, cuda, cuda:N (the GPU of that number), mps, or auto: cuda if available."""
    precision: str = "auto"
    """fp32, bf16 (autocast; weights stay fp32), or auto: bf16 if the device supports it natively."""
    deterministic: bool = False
    """On a GPU, compute the same bits each time, which is slower; a processor always does."""
    batch_tokens: int = 4_096
    """Maximum number of target tokens per batch, padding included."""
    accumulate: int = 1
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
    log_every: int = 50
    """Updates between lines of metrics.jsonl."""
    checkpoint_every: int = 500
    """Updates between saves of the trainer state."""
    init_from: str | None = None
    """Folder of a finished run whose weights and vocabularies training starts from (fine-tuning), or of an
    experiment: then each model starts from the run of its label and seed. A relative path is read as for
    ``data.root``."""
    init_hash: str | None = None
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
