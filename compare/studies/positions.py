"""Positions that carry over to sequences longer than those of training: copying with each kind of position.

Copying of random symbols needs nothing but their order. Press et al. 2022 (figure 1) report for language
models that sinusoids fail just past the lengths of training, that rotary positions (Su et al. 2021) reach
little farther, and that ALiBi does not degrade. Shaw et al. 2018 (section 3.2) clip distances so that
relative positions generalise to lengths not seen. The study ``order`` copies with sinusoids and learned
vectors and one seed; this one compares five kinds with three.
"""

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from compare.analysis.tables import Row, Table
from compare.optim import OptimConfig
from compare.studies.kit import Panel, column, draw_panels, lines_of, mean
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from compare.studies.tasks import fit, make_split, transformer
from data.batches import Batch, make_batch
from data.encode import EncodedSplit
from data.symbols import EOS
from transformer.config import Positions
from transformer.model import Transformer

logger = logging.getLogger(__name__)

CARRIES_OVER: dict[Positions, str] = {
    "rotary": "Rotary positions",
    "relative": "Relative positions",
    "alibi": "Biases of ALiBi",
}
"""Kinds that are said to carry over, with the subject of a claim."""
FAILS: dict[Positions, str] = {"sinusoidal": "Sinusoids", "learned": "Learned positions"}
"""Kinds that are expected to fail past the lengths of training."""
KINDS: tuple[Positions, ...] = (*FAILS, *CARRIES_OVER)
GOOD, BAD = 0.9, 0.5
"""Accuracies from which on a kind carries over, and up to which it fails."""
SYMBOLS = 20
FIRST = EOS + 1
"""Id of the first symbol."""
WIDTH = 64
"""d of the models, which have two layers per side."""


def run(settings: Settings) -> StudyResult:
    """Train every kind with every seed and measure copies of all lengths."""
    copying = Copying.of(settings, (0.25, 0.5, 1, 1.1, 1.25, 1.5, 2))
    by_seed = [copying.measure(KINDS, seed) for seed in settings.seeds]
    means = average(by_seed)
    every = [
        {"seed": seed, **row} for seed, rows in zip(settings.seeds, by_seed, strict=True) for row in rows
    ]
    return StudyResult(
        method=f"""
            Transformers of two layers per side (d = {WIDTH}, 4 heads) learn to copy sequences of 1 to
            {copying.longest} of {SYMBOLS} symbols ({copying.updates:,} updates of about {copying.tokens:,}
            tokens, fp32), with each kind of position and {len(by_seed)} seeds; with the same seed all see the
            same batches. Rotary, relative and ALiBi positions act in self-attention only, so attention to the
            source knows places through the states alone. Accuracy is the share of tokens that are the
            likeliest after the reference before them, over {copying.tests} new sequences per length; past: of
            the symbols after number {copying.longest}. Chance is {1 / SYMBOLS:.2f}. Each claim is tested for
            every seed. The rule was fixed before, at 1.5 times the longest length: a kind carries over with
            {GOOD} of those symbols right, and fails with at most {BAD}. Hold means with all seeds; undecided:
            with some.""",
        tables={
            "lengths": Table(
                "Mean accuracy by length; past: over the symbols beyond the longest sequence of training.",
                means,
            ),
            "seeds": Table("The same for each seed.", every),
        },
        claims=judge(by_seed, copying),
        figure=copying.plot(means, KINDS, ", mean over seeds"),
    )


def average(by_seed: list[list[Row]]) -> list[Row]:
    """Average the accuracies of each length over seeds."""
    return [
        rows[0] | {name: mean([row[name] for row in rows]) for name in rows[0] if name != "length"}
        for rows in zip(*by_seed, strict=True)
    ]


def judge(by_seed: list[list[Row]], copying: "Copying") -> list[Claim]:
    """Compare the claims with the accuracies of each seed."""
    half = [copying.beyond(rows) for rows in by_seed]
    past = f"accuracy after symbol {copying.longest} of sequences of {half[0]['length']}"
    return [
        *(
            at_least(
                f"{kind} positions: training lengths are learned: least accuracy",
                [copying.learned(rows, kind) for rows in by_seed],
                0.99,
            )
            for kind in KINDS
        ),
        *(
            at_least(
                f"{subject} carry over to longer sequences: {past}",
                [row[f"{kind}_past"] for row in half],
                GOOD,
            )
            for kind, subject in CARRIES_OVER.items()
        ),
        *(
            at_most(f"{subject} do not: {past}", [row[f"{kind}_past"] for row in half], BAD)
            for kind, subject in FAILS.items()
        ),
    ]


# The task, also of the study ``order``.


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
