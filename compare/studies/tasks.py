"""Models, data and training that studies share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from compare.analysis.finished_experiment import FinishedExperiment, FinishedRun, load_finished
from compare.config.sections import DecodeConfig
from compare.decoding.translator import Translator
from compare.experiment.likelihood import token_log_probabilities
from compare.models.registry import Architecture
from compare.optim import OptimConfig, build_optimizer
from compare.studies.study import Settings
from compare.training.loss import TranslationLoss
from compare.training.step import train_step
from data.batches import Batch, BatchStream, make_batch
from data.corpus import Pairs
from data.encode import EncodedSplit, Sequences
from data.grammar import AlignedPair, embedded_splits
from data.vocabulary import VocabularyPair, build_pair
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.model import Seq2Seq
from transformer.config import Norm, TransformerConfig
from transformer.layers import Parts
from transformer.model import Transformer

# Encoder-decoders of three families at one small size: LSTM, LSTM with attention, Transformer.


Model = Seq2Seq | Transformer

FAMILIES: dict[str, Callable[[int, int], Model]] = {
    "LSTM": lambda d, vocabulary: Seq2Seq(recurrent(d, None), vocabulary, vocabulary),
    "LSTM with attention": lambda d, vocabulary: Seq2Seq(
        recurrent(d, AttentionConfig(score="additive")), vocabulary, vocabulary
    ),
    "Transformer": lambda d, vocabulary: Transformer(
        TransformerConfig(d_model=d, encoder_layers=2, decoder_layers=2, ffn_size=4 * d, dropout=0.0),
        vocabulary,
        vocabulary,
    ),
}
"""Constructors of fresh models from width and vocabulary size, by family."""


PLAIN, RECURRENT, TRANSFORMER = "LSTM", "LSTM with attention", "Transformer"
TRANSLATORS = (PLAIN, RECURRENT, TRANSFORMER)
"""Families that the studies of translation compare; the first has no attention."""


def build_translator(family: str, d: int, dropout: float, src_vocabulary: int, tgt_vocabulary: int) -> Model:
    """Build a fresh model of ``TRANSLATORS`` whose weights without embeddings are about 50 d^2.

    The recurrent ones have one layer per side, the encoder in both directions, and states of 1.5 d; the
    Transformer has two layers per side, pre-norm, with d / 16 heads.
    """
    if family == TRANSFORMER:
        transformer = TransformerConfig(
            d_model=d,
            num_heads=max(1, d // 16),
            encoder_layers=2,
            decoder_layers=2,
            ffn_size=4 * d,
            dropout=dropout,
        )
        return Transformer(transformer, src_vocabulary, tgt_vocabulary)
    attention = AttentionConfig(score="additive") if family == RECURRENT else None
    size = 3 * d // 2
    recurrent = Seq2SeqConfig(
        attention=attention, embedding_size=size, hidden_size=size, dropout=dropout, tie="output"
    )
    return Seq2Seq(recurrent, src_vocabulary, tgt_vocabulary)


def build_deep_transformer(
    layers: int,
    d: int,
    norm: Norm,
    parts: Parts,
    src_vocabulary: int,
    tgt_vocabulary: int,
) -> Transformer:
    """Build a fresh Transformer of ``layers`` layers per side, without dropout."""
    config = TransformerConfig(
        d_model=d, encoder_layers=layers, decoder_layers=layers, ffn_size=4 * d, dropout=0.0, norm=norm
    )
    return Transformer(config, src_vocabulary, tgt_vocabulary, parts)


def recurrent(d: int, attention: AttentionConfig | None) -> Seq2SeqConfig:
    """Configure one LSTM layer per side that reads from left to right: one path between two positions."""
    return Seq2SeqConfig(
        attention=attention, direction="forward", embedding_size=d, hidden_size=d, dropout=0.0
    )


def source_embedding(model: Model) -> nn.Embedding:
    """Find the embedding of the source tokens."""
    return next(part for part in model.encoder.modules() if isinstance(part, nn.Embedding))


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
    observe_every: int = 1,
) -> None:
    """Train a model.

    Args:
        model: the model, on the CPU.
        split: its training pairs, repeated as often as needed.
        optim: optimizer and schedule; a decaying schedule ends at ``updates``.
        batch_tokens: largest number of target tokens of a batch.
        updates: number of batches.
        seed: seed of the batches.
        observe: called with the number of the update after some of them, with the model in eval mode.
        observe_every: updates from one call of ``observe`` to the next.
    """
    criterion = TranslationLoss(model, label_smoothing=0.0)
    optimizer = build_optimizer(criterion.parameters(), optim)
    stream = BatchStream(split, batch_tokens=batch_tokens, seed=seed)
    criterion.train()
    for update, batch in enumerate(islice(_endless(stream), updates), start=1):
        for group in optimizer.param_groups:
            group["lr"] = optim.learning_rate_at(update, updates)
        train_step(criterion, optimizer, batch, precision="fp32", clip_norm=1.0)
        if observe is not None and update % observe_every == 0:
            criterion.eval()
            observe(update)
            criterion.train()
    criterion.eval()


def _endless(stream: BatchStream) -> Iterator[Batch]:
    """Yield the batches of one epoch after another."""
    for epoch in count(1):
        yield from stream.epoch(epoch)


@torch.inference_mode()
def accuracy(model: Model, batch: Batch) -> float:
    """Compute the share of target tokens that are the most likely ones, given the reference before them."""
    model.eval()
    best = model(batch.src, batch.src_mask, batch.tgt_in).argmax(-1)
    return float((best == batch.tgt_out)[batch.tgt_mask].float().mean())


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

    def translate(self, model: Model) -> list[str]:
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
    pairs = {name: _columns(corpus[name], longest) for name in ("train", "valid", "test")}
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


def _columns(split: Iterable[AlignedPair], longest: int | None) -> Pairs:
    kept = [pair for pair in split if longest is None or len(pair.src.split()) <= longest]
    return Pairs(*zip(*kept, strict=True)) if kept else Pairs((), ())


def valid_loss(model: Model, batch: Batch) -> float:
    """Compute the mean negative log-likelihood of the target tokens of a batch, in nats."""
    return -float(token_log_probabilities(model.eval(), batch).mean())


# Models of a finished experiment by the kinds or families that studies compare.


FORWARD, REVERSED, BOTH = "LSTM, forward", "LSTM, reversed", "LSTM, both directions"
ATTENTION = "LSTM with attention"


class Translations(NamedTuple):
    """A test set and its translations by each model."""

    pairs: Pairs
    lines: dict[str, list[str]]
    """Translations by the model's name."""
    kinds: dict[str, str]
    """Name of the first model of each kind present."""


def read_translations(folder: Path, data_root: str = "") -> Translations:
    """Read the translations of the first test set by an experiment's finished runs.

    Args:
        folder: the experiment.
        data_root: the folder of its corpus; empty: that of its config.
    """
    finished = load_finished(folder, data_root=data_root)
    test = finished.corpus.tests[0]
    translations = Translations(finished.corpus.splits[test], {}, {})
    for name, run in finished.named.items():
        translations.lines[name] = list(run.outputs[test])
        kind = kind_of(run.run.model.architecture)
        if kind is not None:
            translations.kinds.setdefault(kind, name)
    return translations


def kind_of(architecture: Architecture) -> str | None:
    """Classify a model as one of the four kinds; None for any other."""
    if not isinstance(architecture, Seq2SeqConfig) or architecture.cell != "lstm":
        return None
    if architecture.attention is not None:
        return ATTENTION
    return {"forward": FORWARD, "backward": REVERSED, "both": BOTH}.get(architecture.direction)


def runs_by_family(finished: FinishedExperiment) -> dict[str, dict[int, FinishedRun]]:
    """Find the finished runs of each family of ``TRANSLATORS``, by seed.

    Of several models of a family the first in the order of the table counts.
    """
    found: dict[str, dict[int, FinishedRun]] = {}
    for runs in finished.labels.values():
        family = family_of(runs[0].run.model.architecture)
        if family is not None:
            found.setdefault(family, {run.result.seed: run for run in runs})
    return found


def family_of(architecture: Architecture) -> str | None:
    """Classify a model as one of ``TRANSLATORS``; None for any other."""
    if isinstance(architecture, TransformerConfig):
        return TRANSFORMER
    if not isinstance(architecture, Seq2SeqConfig) or architecture.cell != "lstm":
        return None
    return PLAIN if architecture.attention is None else RECURRENT
