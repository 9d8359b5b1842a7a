"""Translation of the embedded corpus as a task of studies: encoded pairs, validation loss, translations."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from compare.config.sections import DecodeConfig
from compare.decoding.translator import Translator
from compare.experiment.forced_scoring import token_log_probabilities
from compare.studies.families import Model
from compare.studies.study import Settings
from compare.studies.training import make_split
from data.batch import Batch, make_batch
from data.corpus import Pairs
from data.encoded_split import EncodedSplit
from data.grammar import AlignedPair, embedded_splits
from data.vocabulary import VocabularyPair, build_pair

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
