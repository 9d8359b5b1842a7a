"""Models, data and training that studies share, and designs of a model trained with equal effort.

Each design is trained with every learning rate and the first seed, and with the best of them and the other
seeds. The best is that of the lowest validation loss, so no design is judged at a rate that suits
another one. The measure itself chooses, which favours no design: all have as many rates to choose from.
"""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compare.analysis.finished_experiment import load_finished
from compare.config.sections import DecodeConfig
from compare.decoding.translator import Translator
from compare.experiment.likelihood import make_split, token_log_probabilities
from compare.models.registry import Architecture
from compare.models.styles import PLAIN, RECURRENT, TRANSFORMER
from compare.optim import OptimConfig
from compare.results.run_folder import load_model
from compare.studies.kit import mean
from compare.studies.study import Settings
from compare.system.log import track
from compare.training.loss import TranslationLoss
from compare.training.optimizer import build_optimizer
from compare.training.step import train_step
from data.batches import Batch, BatchStream, make_batch
from data.corpus import Pairs
from data.encode import EncodedSplit
from data.grammar import embedded_splits
from data.vocabulary import VocabularyPair, build_pair
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.model import Seq2Seq
from transformer.config import TransformerConfig
from transformer.model import STANDARD, Parts, Transformer

logger = logging.getLogger(__name__)

# Encoder-decoders of three families: LSTM, LSTM with attention, Transformer.


Model = Seq2Seq | Transformer
Build = Callable[[int, int], Model]
"""Makes a fresh model from the sizes of the source and the target vocabulary."""
TRANSLATORS = (PLAIN, RECURRENT, TRANSFORMER)
"""Families that the studies compare; the first has no attention."""


def lstm(family: str, size: int, **options: Any) -> Callable[[int, int], Seq2Seq]:
    """Configure an LSTM whose embeddings and states have one size: one layer per side, no dropout.

    Args:
        family: ``RECURRENT`` has additive attention, ``PLAIN`` none.
        size: of embeddings and states.
        **options: other settings of ``Seq2SeqConfig``.
    """
    attention = AttentionConfig(score="additive") if family == RECURRENT else None
    settings = {"embedding_size": size, "hidden_size": size, "dropout": 0.0, **options}
    return partial(Seq2Seq, Seq2SeqConfig(attention=attention, **settings))


def transformer(
    d: int, layers: int = 2, parts: Parts = STANDARD, **options: Any
) -> Callable[[int, int], Transformer]:
    """Configure a Transformer of ``layers`` layers per side without dropout; see ``TransformerConfig``."""
    sizes = {"d_model": d, "encoder_layers": layers, "decoder_layers": layers, "ffn_size": 4 * d}
    return partial(Transformer, TransformerConfig(**{**sizes, "dropout": 0.0, **options}), parts=parts)


def one_way(family: str, d: int) -> Build:
    """Configure a model whose LSTMs read from left to right: one path between two positions."""
    return transformer(d) if family == TRANSFORMER else lstm(family, d, direction="forward")


def translator(family: str, d: int, dropout: float) -> Build:
    """Configure a model of ``TRANSLATORS`` whose weights without embeddings are about 50 d^2.

    The recurrent ones have one layer per side, the encoder in both directions, and states of 1.5 d; the
    Transformer has two layers per side, pre-norm, with d / 16 heads.
    """
    if family == TRANSFORMER:
        return transformer(d, num_heads=max(1, d // 16), dropout=dropout)
    return lstm(family, 3 * d // 2, dropout=dropout, tie="output")


def family_of(architecture: Architecture) -> str | None:
    """Classify a model as one of ``TRANSLATORS``; None for any other."""
    if type(architecture) is TransformerConfig:  # not one with other layers
        return TRANSFORMER
    if not isinstance(architecture, Seq2SeqConfig) or architecture.cell != "lstm":
        return None
    return PLAIN if architecture.attention is None else RECURRENT


# Training for studies: the toolkit's loss, optimizer and step, without checkpoints and validation.


def fit(
    model: Model,
    split: EncodedSplit,
    optim: OptimConfig,
    *,
    batch_tokens: int,
    updates: int,
    seed: int,
    observe: Callable[[int], None] | None = None,
) -> None:
    """Train a model.

    Args:
        model: the model, on the CPU.
        split: its training pairs, repeated as often as needed.
        optim: optimizer and schedule; a decaying schedule ends at ``updates``.
        batch_tokens: largest number of target tokens of a batch.
        updates: number of batches.
        seed: seed of the batches.
        observe: called with the number of each update after it.
    """
    criterion = TranslationLoss(model, label_smoothing=0.0)
    optimizer = build_optimizer(criterion, optim)
    stream = BatchStream(split, batch_tokens=batch_tokens, seed=seed)
    batches = (batch for epoch in count(1) for batch in stream.epoch(epoch))
    shown = track(islice(batches, updates), "training", "updates", total=updates)
    for update, batch in enumerate(shown, start=1):
        criterion.train()
        for group in optimizer.param_groups:
            group["lr"] = optim.learning_rate_at(update, updates)
        train_step(criterion, optimizer, batch, precision="fp32", clip_norm=1.0)
        if observe is not None:
            observe(update)
    criterion.eval()


# Translation of the embedded corpus as a task of studies: encoded pairs, validation loss, translations.


SHORT_WORDS = 8
"""Longest source of ``short_task``, in words: sentences that small models learn in some hundred updates."""
SHARE_OF_SHORT, DRAWS_PER_SHORT = 0.29, 4
"""Share of the corpus that is so short, and number of pairs to draw for one that surely is."""
MAX_WORDS = 4_000
"""Size of the vocabularies; the lexicon of the grammar has fewer words."""


class TranslationTask(NamedTuple):
    """A part of the embedded English-German corpus, in words of the training pairs."""

    vocabularies: VocabularyPair
    train: EncodedSplit
    train_src: Sequence[str]
    """Training sources, as text."""
    valid: EncodedSplit
    test: Pairs
    """With gold links."""

    @property
    def valid_batch(self) -> Batch:
        """All validation pairs."""
        return make_batch(self.valid, np.arange(len(self.valid)))

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of entries of the source and of the target vocabulary."""
        return len(self.vocabularies.src), len(self.vocabularies.tgt)

    def translator(self, model: Model) -> Translator:
        """Combine a model with the vocabularies, for greedy search."""
        decode = DecodeConfig(beam_size=1, batch_tokens=4_096)
        return Translator(model, self.vocabularies, decode, torch.device("cpu"))

    def translate(self, model: Model) -> Sequence[str]:
        """Translate the test sources by greedy search."""
        return self.translator(model).translate(self.test.src)


def embedded_task(
    seed: int,
    *,
    train: int,
    valid: int = 1,
    test: int = 1,
    longest: int | None = None,
    keep: int | None = None,
) -> TranslationTask:
    """Draw a part of the embedded corpus.

    Args:
        seed: seed of the sentences. Validation and test pairs do not depend on the number of training pairs,
            and fewer training pairs are the first of more.
        train: number of training pairs to draw.
        valid: number of validation pairs to draw.
        test: number of test pairs to draw.
        longest: leave out pairs whose source has more words than this; None keeps all.
        keep: keep only so many of the training pairs that are left, the first; None keeps all.

    Raises:
        ValueError: fewer than ``keep`` training pairs are left.
    """
    corpus = embedded_splits(seed=seed, train=train, valid=valid, test=test, test_long=1)
    pairs = {}
    for name in ("train", "valid", "test"):
        kept = [pair for pair in corpus[name] if longest is None or len(pair.src.split()) <= longest]
        pairs[name] = Pairs(*zip(*kept, strict=True)) if kept else Pairs((), ())
    if keep is not None:
        if len(pairs["train"].src) < keep:
            raise ValueError(f"{keep} training pairs are to be kept, but only {len(pairs['train'].src)} fit")
        pairs["train"] = Pairs(*(column[:keep] for column in pairs["train"]))
    vocabularies = build_pair(pairs["train"], kind="words", size=MAX_WORDS, joint=False)
    encoded = {
        name: make_split(
            vocabularies.src.encode_all(pairs[name].src), vocabularies.tgt.encode_all(pairs[name].tgt)
        )
        for name in ("train", "valid")
    }
    return TranslationTask(
        vocabularies, encoded["train"], pairs["train"].src, encoded["valid"], pairs["test"]
    )


def short_task(settings: Settings, *, pairs: int = 5_000, tests: int = 0) -> TranslationTask:
    """Draw sentences of at most ``SHORT_WORDS`` words, or for a quick run a few of any length.

    Args:
        settings: of the study.
        pairs: number of training pairs.
        tests: approximate number of test pairs; validation has about 200.
    """
    if settings.quick:
        return embedded_task(settings.seed, train=60, valid=10, test=10, keep=min(pairs, 60))
    draws = DRAWS_PER_SHORT * pairs
    return embedded_task(
        settings.seed,
        train=max(draws, 2_000),
        valid=700,
        test=max(1, round(tests / SHARE_OF_SHORT)),
        longest=SHORT_WORDS,
        keep=pairs,
    )


def valid_loss(model: Model, batch: Batch) -> float:
    """Compute the mean negative log-likelihood of the target tokens of a batch, in nats."""
    return -float(token_log_probabilities(model.eval(), batch).mean())


# Designs trained with equal effort.


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Training that all designs share; the rate decays linearly to 0."""

    updates: int = 600
    batch_tokens: int = 512
    measure_every: int = 20
    """Updates between measurements of the validation loss."""
    learning_rates: tuple[float, ...] = (1e-3, 3e-3)
    """Peak rates to choose from."""
    warmup_updates: int = 100
    seeds: Sequence[int]
    """Seeds of weights and batches; the first chooses the rate."""

    @property
    def text(self) -> str:
        """The plan in words, for the description of a method; without the warm-up."""
        rates = " or ".join(f"{rate:g}" for rate in self.learning_rates)
        return (
            f"{self.updates:,} updates of at most {self.batch_tokens:,} target tokens in fp32, Adam at a "
            f"peak learning rate of {rates}, chosen per design by the first of {len(self.seeds)} seeds, then "
            "decaying linearly to 0"
        )


def make_plan(settings: Settings, **changes: Any) -> Plan:
    """Make the plan of a study, with the fields that differ, or a tiny one for a quick run."""
    return Plan(seeds=settings.seeds, **(QUICK if settings.quick else changes))


QUICK: dict[str, Any] = {
    "updates": 2,
    "batch_tokens": 64,
    "measure_every": 1,
    "learning_rates": (1e-3,),
    "warmup_updates": 1,
}
"""The plan of a quick run."""


class Trained(NamedTuple):
    """Validation losses of a design, by seed."""

    learning_rate: float
    """The chosen one."""
    updates: list[int]
    """Updates after which the loss was measured."""
    curves: Sequence[list[float]]
    """Loss per target token in nats, per seed and measurement; infinite where training has diverged."""
    models: Sequence[Model] = ()
    """The model of each seed, with the weights of its lowest loss."""

    @property
    def final(self) -> list[float]:
        """The loss after the last update, by seed."""
        return [curve[-1] for curve in self.curves]

    @property
    def mean_curve(self) -> list[float]:
        """The mean over seeds at each measurement."""
        return [mean(losses) for losses in zip(*self.curves, strict=True)]


class Task(NamedTuple):
    """Data to train designs with."""

    train: EncodedSplit
    """Training pairs."""
    valid_batch: Batch
    """All validation pairs."""
    sizes: tuple[int, int]
    """Number of entries of the source and of the target vocabulary."""


def train_designs(
    study: str, builds: Mapping[str, Build], task: Task | TranslationTask, plan: Plan
) -> dict[str, Trained]:
    """Train all designs.

    Args:
        study: its name, for messages.
        builds: constructors by label.
        task: the data.
        plan: what all designs share.
    """
    first, *others = plan.seeds
    updates = list(range(plan.measure_every, plan.updates + 1, plan.measure_every))
    trained = {}
    for label, build in builds.items():
        each = partial(train, f"{study}: {label}", build, task, plan)
        tried = {rate: each(rate, first) for rate in plan.learning_rates}
        best = min(tried, key=lambda rate: min(tried[rate][0]))
        curves, models = zip(tried[best], *(each(best, seed) for seed in others), strict=True)
        trained[label] = Trained(best, updates, curves, models)
    return trained


def train(
    label: str, build: Build, task: Task | TranslationTask, plan: Plan, learning_rate: float, seed: int
) -> tuple[list[float], Model]:
    """Train one design with one learning rate and seed.

    Returns:
        The validation losses, and the model with the weights of the lowest.
    """
    torch.manual_seed(seed)
    model = build(*task.sizes)
    batch = task.valid_batch
    losses: list[float] = []
    best: dict[str, Tensor] = {}

    def observe(update: int) -> None:
        if update % plan.measure_every:
            return
        loss = valid_loss(model, batch)
        losses.append(loss if math.isfinite(loss) else math.inf)
        if losses[-1] == min(losses):
            best.update({name: weights.clone() for name, weights in model.state_dict().items()})

    optim = OptimConfig(learning_rate=learning_rate, warmup_updates=plan.warmup_updates)
    amount = {"batch_tokens": plan.batch_tokens, "updates": plan.updates}
    fit(model, task.train, optim, **amount, seed=seed, observe=observe)
    model.load_state_dict(best)
    logger.info(
        f"{label}, learning rate {learning_rate:g}, seed {seed}: loss {losses[-1]:.3f} "
        f"after {plan.updates:,} updates"
    )
    return losses, model


class Translators(NamedTuple):
    """Trained models, for a study that measures what they have learned."""

    method: str
    """How they were made, in words."""
    models: dict[str, dict[int, Translator]]
    """By family and seed."""
    train_src: Collection[str]
    """The sources of their training."""
    test: Pairs
    languages: tuple[str, str]


def obtain_translators(
    study: str, settings: Settings, families: Sequence[str], *, needed: Sequence[str], tests: int = 1
) -> Translators:
    """Train models of some families, or load those of a finished experiment.

    Args:
        study: its name, for messages.
        settings: of the study, which name the experiment, if any.
        families: of ``TRANSLATORS``.
        needed: those that an experiment must have.
        tests: number of test pairs to draw.

    Raises:
        ValueError: the experiment lacks a family of ``needed``, or a seed that all have.
    """
    if settings.runs is not None:
        return _load_translators(settings.runs, settings.data_root, families, needed)
    d, pairs, valid = (16, 60, 10) if settings.quick else (128, 20_000, 200)
    dropout, rates = 0.1, (3e-3, 8e-3)
    plan = make_plan(settings, updates=900, batch_tokens=1_024, measure_every=50, learning_rates=rates)
    task = embedded_task(settings.seed, train=pairs, valid=valid, test=tests)
    builds = {family: translator(family, d, dropout) for family in families}
    method = (
        f"Fresh models ({', '.join(families)}; d = {d}, {d // 16} heads, dropout {dropout}) are trained to "
        f"translate the embedded corpus ({pairs:,} pairs, words): {plan.text}, after {plan.warmup_updates} "
        "updates of warm-up; the weights of the lowest validation loss are kept."
    )
    models = {
        family: dict(zip(plan.seeds, map(task.translator, trained.models), strict=True))
        for family, trained in train_designs(study, builds, task, plan).items()
    }
    return Translators(method, models, task.train_src, task.test, ("en", "de"))


def _load_translators(
    folder: Path, data_root: str, families: Sequence[str], needed: Sequence[str]
) -> Translators:
    """Load the first model of each family in the order of the table, with the seeds that all have."""
    finished = load_finished(folder, data_root=data_root)
    found: dict[str, dict[int, Path]] = {}
    for runs in finished.labels.values():
        family = family_of(runs[0].run.model.architecture)
        if family is not None and family in families:
            found.setdefault(family, {run.result.seed: run.folder for run in runs})
    missing = [family for family in needed if family not in found]
    seeds = sorted(set.intersection(*map(set, found.values()))) if found else []
    if missing or not seeds:
        lack = f"no {missing[0]}" if missing else "no seed that all families have"
        raise ValueError(f"{folder} has {lack}: needs {' and '.join(needed)}, finished")
    corpus = finished.corpus
    return Translators(
        f"The models of the experiment {folder.resolve().name}, of each family the first, with the "
        "seeds that all have.",
        {family: {seed: load_model(folders[seed]) for seed in seeds} for family, folders in found.items()},
        corpus.splits["train"].src,
        corpus.splits[corpus.tests[0]],
        (corpus.src_lang, corpus.tgt_lang),
    )
