"""Models, data and training that studies share."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np
import torch

from compare.config.sections import DecodeConfig
from compare.decoding.translator import Translator
from compare.experiment.likelihood import token_log_probabilities
from compare.models.registry import Architecture
from compare.models.styles import PLAIN, RECURRENT, TRANSFORMER
from compare.optim import OptimConfig, build_optimizer
from compare.studies.study import Settings
from compare.system.log import track
from compare.training.loss import TranslationLoss
from compare.training.step import train_step
from data.batches import Batch, BatchStream, make_batch
from data.corpus import Pairs
from data.encode import EncodedSplit, Sequences
from data.grammar import embedded_splits
from data.vocabulary import VocabularyPair, build_pair
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.model import Seq2Seq
from transformer.config import TransformerConfig
from transformer.layers import STANDARD, Parts
from transformer.model import Transformer

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
    if isinstance(architecture, TransformerConfig):
        return TRANSFORMER
    if not isinstance(architecture, Seq2SeqConfig) or architecture.cell != "lstm":
        return None
    return PLAIN if architecture.attention is None else RECURRENT


# Training for studies: the toolkit's loss, optimizer and step, without checkpoints and validation.


def make_split(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> EncodedSplit:
    """Make a split from sequences of ids."""
    rows = np.arange(len(sources), dtype=np.int64)
    return EncodedSplit(src=Sequences.of(sources), tgt=Sequences.of(targets), rows=rows, dropped=0)


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
    optimizer = build_optimizer(criterion.parameters(), optim)
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
