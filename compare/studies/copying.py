"""Copying of random symbols, which needs nothing but their order: studies ``order`` and ``positions``."""

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from compare.analysis.tables import Row
from compare.optim import OptimConfig
from compare.studies.kit import Panel, column, draw_panels, lines_of
from compare.studies.study import Settings
from compare.studies.tasks import fit, make_split, transformer
from data.batches import Batch, make_batch
from data.encode import EncodedSplit
from data.symbols import EOS
from transformer.config import Positions
from transformer.model import Transformer

logger = logging.getLogger(__name__)

SYMBOLS = 20
FIRST = EOS + 1
"""Id of the first symbol."""
WIDTH = 64
"""d of the models, which have two layers per side."""


class Copying(NamedTuple):
    """The task: its sizes, and the lengths to measure."""

    longest: int
    """Symbols of the longest sequence of training."""
    updates: int
    tokens: int
    """Tokens of a batch."""
    tests: int
    """New sequences per length."""
    lengths: list[int]

    @classmethod
    def of(cls, settings: Settings, shares: Sequence[float]) -> "Copying":
        """Choose the sizes, and as lengths ``shares`` of the longest."""
        sizes = (4, 2, 64, 5) if settings.quick else (20, 1_000, 1_024, 200)
        return cls(*sizes, lengths=sorted({max(1, round(sizes[0] * share)) for share in shares}))

    def measure(self, kinds: Sequence[Positions], seed: int) -> list[Row]:
        """Train a model with each kind of position.

        Returns:
            One row per length: the accuracies ``kind`` over all tokens and, past the longest length of
            training, ``kind_past`` over the symbols beyond it.
        """
        rows: list[Row] = [{"length": length} for length in self.lengths]
        for kind in kinds:
            logger.info(f"copying: {kind} positions, seed {seed}, {self.updates:,} updates")
            model = self.train(kind, seed)
            for row in rows:
                row |= self.probe(model, kind, row["length"], seed)
        return rows

    def train(self, positions: Positions, seed: int) -> Transformer:
        """Train a model to copy sequences of 1 to ``longest`` symbols."""
        draw = random.Random(seed)
        split = copies([draw.randint(1, self.longest) for _ in range(20 * self.tokens)], draw)
        torch.manual_seed(seed)  # the same initial weights for all kinds of positions
        model = transformer(WIDTH, positions=positions)(FIRST + SYMBOLS, FIRST + SYMBOLS)
        optim = OptimConfig(learning_rate=2e-3, warmup_updates=min(100, self.updates))
        fit(model, split, optim, batch_tokens=self.tokens, updates=self.updates, seed=seed)
        return model

    def probe(self, model: Transformer, positions: Positions, length: int, seed: int) -> Row:
        """Measure the accuracies at one length."""
        split = copies([length] * self.tests, random.Random(f"{seed} {length}"))
        batch = make_batch(split, np.arange(self.tests))
        row: Row = {positions: accuracy(model, batch)}
        if length > self.longest:
            past = batch.tgt_mask.clone()
            past[:, : self.longest] = past[:, length] = False  # not the end of sequence either
            row[f"{positions}_past"] = accuracy(model, replace(batch, tgt_mask=past))
        return row

    def learned(self, rows: Sequence[Row], kind: Positions) -> float:
        """Return the least accuracy at the lengths of training."""
        return min(float(row[kind]) for row in rows if row["length"] <= self.longest)

    def beyond(self, rows: Sequence[Row]) -> Row:
        """Return the row of 1.5 times the longest length."""
        return next(row for row in rows if row["length"] >= 1.5 * self.longest)

    def plot(self, rows: Sequence[Row], kinds: Sequence[Positions], note: str = "") -> Figure:
        """Plot both accuracies by length; ``note`` ends the title."""
        longer = [row for row in rows if row["length"] > self.longest]
        beyond = column(longer, "length")
        return draw_panels(
            Panel(
                title=f"Copying: all tokens{note}",
                x="length (symbols)",
                y="share of tokens correct",
                lines=lines_of(rows, "length", kinds),
                predicted={f"longest in training: {self.longest}": ([self.longest] * 2, [0, 1])},
                limits=(0, 1.05),
            ),
            Panel(
                title=f"Copying: symbols after number {self.longest}",
                x="length (symbols)",
                y="share of symbols correct",
                lines={kind: (beyond, column(longer, f"{kind}_past")) for kind in kinds},
                predicted={"chance": (beyond, [1 / SYMBOLS] * len(beyond))},
                limits=(0, 1.05),
            ),
        )


def copies(lengths: list[int], draw: random.Random) -> EncodedSplit:
    """Draw sequences of random symbols, each its own translation."""
    sequences = [draw.choices(range(FIRST, FIRST + SYMBOLS), k=length) for length in lengths]
    return make_split(sequences, sequences)


@torch.inference_mode()
def accuracy(model: Transformer, batch: Batch) -> float:
    """Compute the share of target tokens that are the most likely ones, given the reference before them."""
    model.eval()
    best = model(batch.src, batch.src_mask, batch.tgt_in).argmax(-1)
    return float((best == batch.tgt_out)[batch.tgt_mask].float().mean())
