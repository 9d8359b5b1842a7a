"""Copying of random symbols, which needs nothing but their order: studies ``order`` and ``positions``."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from matplotlib.figure import Figure

from compare.analysis.tables import Row
from compare.optim import OptimConfig
from compare.report.plots import make_panels
from compare.studies.figures import draw_lines
from compare.studies.tasks import accuracy, fit, make_split
from data.batches import make_batch
from data.encode import EncodedSplit
from data.symbols import EOS
from transformer.config import Positions, TransformerConfig
from transformer.model import Transformer

SYMBOLS = 20
FIRST = EOS + 1
"""Id of the first symbol."""
CONFIG = TransformerConfig(d_model=64, encoder_layers=2, decoder_layers=2, ffn_size=256, dropout=0.0)


def learn_to_copy(positions: Positions, longest: int, updates: int, tokens: int, seed: int) -> Transformer:
    """Train a model to copy sequences of 1 to ``longest`` symbols, in batches of ``tokens`` tokens."""
    draw = random.Random(seed)
    split = copies([draw.randint(1, longest) for _ in range(20 * tokens)], draw)
    torch.manual_seed(seed)  # the same initial weights for all kinds of positions
    model = Transformer(replace(CONFIG, positions=positions), FIRST + SYMBOLS, FIRST + SYMBOLS)
    optim = OptimConfig(learning_rate=2e-3, warmup_updates=min(100, updates))
    fit(model, split, optim, batch_tokens=tokens, updates=updates, seed=seed)
    return model


def copies(lengths: list[int], draw: random.Random) -> EncodedSplit:
    """Draw sequences of random symbols, each its own translation."""
    sequences = [draw.choices(range(FIRST, FIRST + SYMBOLS), k=length) for length in lengths]
    return make_split(sequences, sequences)


def probe_copying(
    model: Transformer, positions: Positions, length: int, longest: int, tests: int, seed: int
) -> Row:
    """Measure accuracy at one length: over all tokens, and over those past the ``longest`` of training."""
    split = copies([length] * tests, random.Random(f"{seed} {length}"))
    batch = make_batch(split, np.arange(tests))
    row: Row = {positions: accuracy(model, batch)}
    if length > longest:
        past = batch.tgt_mask.clone()
        past[:, :longest] = past[:, length] = False  # not the end of sequence either
        row[f"{positions}_past"] = accuracy(model, replace(batch, tgt_mask=past))
    return row


def plot_copying(rows: Sequence[Row], kinds: Sequence[Positions], longest: int, note: str = "") -> Figure:
    """Plot accuracy by length: of all tokens, and of the symbols beyond the longest sequence of training.

    Args:
        rows: one per length, with the accuracies ``kind`` and ``kind_past`` of every kind of position.
        kinds: the lines to draw.
        longest: length of the longest sequence of training.
        note: what the title of the left panel adds.
    """
    figure, (left, right) = make_panels(2)
    lengths = [row["length"] for row in rows]
    draw_lines(
        left,
        {kind: (lengths, [row[kind] for row in rows]) for kind in kinds},
        predicted={f"longest in training: {longest}": ([longest, longest], [0, 1])},
        title=f"Copying: all tokens{note}",
        x="length (symbols)",
        y="share of tokens correct",
    )
    longer = [row for row in rows if row["length"] > longest]
    beyond = [row["length"] for row in longer]
    draw_lines(
        right,
        {kind: (beyond, [row[f"{kind}_past"] for row in longer]) for kind in kinds},
        predicted={"chance": (beyond, [1 / SYMBOLS] * len(beyond))},
        title=f"Copying: symbols after number {longest}",
        x="length (symbols)",
        y="share of symbols correct",
    )
    for axes in (left, right):
        axes.set_ylim(0, 1.05)
    return figure
