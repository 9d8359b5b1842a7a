"""Order of the input: lost without positions, and which kinds of positions reach beyond the training lengths.

**order.** That attention without positions is permutation-equivariant follows from its definition: a sum over
all keys does not depend on their order. Vaswani et al. 2017 (section 3.5) state that PE(pos + k) is a linear
function of PE(pos), which follows from the addition theorems of sine and cosine (see ``rotation``), and
hypothesise that sinusoids may extrapolate to longer sequences.

**positions.** Copying of random symbols needs nothing but their order. Press et al. 2022 (figure 1) report
for language models that sinusoids fail just past the lengths of training, that rotary positions (Su et al.
2021) reach little farther, and that ALiBi does not degrade. Shaw et al. 2018 (section 3.2) clip distances so
that relative positions generalise to lengths not seen. ``order`` copies with sinusoids and learned vectors
and one seed; ``positions`` compares five kinds with three.

Shapes: B sentences, S source positions, d model width.
"""

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compare.experiment.likelihood import make_split
from compare.optim import OptimConfig
from compare.results.table import Row
from compare.studies.kit import Panel, column, conclude, lines_of, mean, relative_error
from compare.studies.study import Settings, StudyResult
from compare.studies.training import Model, fit, transformer
from data.batches import Batch, make_batch
from data.encode import EncodedSplit
from data.vocabulary import EOS
from transformer.config import Positions
from transformer.model import Transformer
from transformer.positions import sinusoids

logger = logging.getLogger(__name__)

SYMBOLS = 20
FIRST = EOS + 1
"""Id of the first symbol."""
WIDTH = 64
"""d of the models, which have two layers per side."""

# The task of both: copying.


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

    @property
    def words(self) -> dict[str, Any]:
        """The sizes, for the descriptions; ``past``: what is measured at 1.5 times the longest length."""
        sizes = {name: value for name, value in self._asdict().items() if name != "lengths"}
        half = next(length for length in self.lengths if length >= 1.5 * self.longest)
        past = f"after symbol {self.longest} of sequences of {half}"
        return {**sizes, "past": past, "width": WIDTH, "symbols": SYMBOLS, "chance": 1 / SYMBOLS}

    def learned(self, rows: Sequence[Row], kind: Positions) -> float:
        """Return the least accuracy at the lengths of training."""
        return min(float(row[kind]) for row in rows if row["length"] <= self.longest)

    def beyond(self, rows: Sequence[Row]) -> Row:
        """Return the row of 1.5 times the longest length."""
        return next(row for row in rows if row["length"] >= 1.5 * self.longest)

    def panels(self, rows: Sequence[Row], kinds: Sequence[Positions]) -> dict[str, Panel]:
        """Plot both accuracies by length."""
        longer = [row for row in rows if row["length"] > self.longest]
        beyond = column(longer, "length")
        return {
            "all": Panel(
                lines_of(rows, "length", kinds),
                predicted={f"longest in training: {self.longest}": ([self.longest] * 2, [0, 1])},
            ),
            "past": Panel(
                {kind: (beyond, column(longer, f"{kind}_past")) for kind in kinds},
                predicted={"chance": (beyond, [1 / SYMBOLS] * len(beyond))},
            ),
        }


def copies(lengths: list[int], draw: random.Random) -> EncodedSplit:
    """Draw sequences of random symbols, each its own translation."""
    sequences = [draw.choices(range(FIRST, FIRST + SYMBOLS), k=length) for length in lengths]
    return make_split(sequences, sequences)


@torch.inference_mode()
def accuracy(model: Model, batch: Batch) -> float:
    """Compute the share of target tokens that are the most likely ones, given the reference before them."""
    model.eval()
    best = model(batch.src, batch.src_mask, batch.tgt_in).argmax(-1)
    return float((best == batch.tgt_out)[batch.tgt_mask].float().mean())


# Order.


ORDERED: tuple[Positions, ...] = ("sinusoidal", "learned")
"""Kinds that the study ``order`` copies with."""


def order(settings: Settings) -> StudyResult:
    """Measure equivariance and shifts, then train the models of the copying task."""
    length, reach = 32, 1_000
    equivariance = [break_order(kind, length) for kind in ("none", *ORDERED)]
    shifts = [shift_error(k, reach, WIDTH) for k in (1, 10, 100, 1_000)]
    copying = Copying.of(settings, (0.05, 0.25, 0.5, 0.75, 1, 1.1, 1.25, 1.5, 2))
    rows = copying.measure(ORDERED, settings.seed)
    return conclude(
        "order",
        tables={"equivariance": equivariance, "shifts": shifts, "lengths": rows},
        measured=order_claims(equivariance, shifts, rows, copying),
        panels={"equivariance": order_panel(equivariance), **copying.panels(rows, ORDERED)},
        words=copying.words | {"length": length, "reach": reach},
    )


def order_panel(rows: Sequence[Row]) -> Panel:
    """Plot the errors of both sides by kind of position; 0 is drawn as the rounding of float64."""
    places, rounding = range(len(rows)), torch.finfo(torch.float64).eps
    return Panel(
        {side: (places, [max(row[side], rounding) for row in rows]) for side in ("encoder", "decoder")},
        ticks=[row["positions"] for row in rows],
    )


def break_order(positions: Positions, length: int) -> Row:
    """Measure the errors of equivariance in the encoder and of invariance in the decoder."""
    model = transformer(WIDTH, positions=positions)(length, length).double().eval()
    src, tgt = torch.randperm(length).unsqueeze(0), torch.randint(length, (1, length))
    mask, permutation = torch.ones_like(src, dtype=torch.bool), torch.randperm(length)
    orders = src, src[:, permutation]
    with torch.inference_mode():
        states, permuted_states = (model.encoder(order, mask)[0] for order in orders)
        hidden, permuted_hidden = (model.features(order, mask, tgt).hidden for order in orders)
    return {
        "positions": positions,
        "encoder": relative_error(permuted_states, states[:, permutation]),
        "decoder": relative_error(permuted_hidden, hidden),
    }


def shift_error(k: int, reach: int, d: int) -> Row:
    """Measure the largest difference between R_k PE(n) and PE(n + k), for n < ``reach``."""
    encoded = sinusoids(torch.arange(reach + k), d)
    error = (encoded[k:] - encoded[:reach] @ rotation(k, d).T).abs().max()
    return {"k": k, "error": float(error)}


def rotation(k: int, d: int) -> Tensor:
    """Compute R_k (d, d): blocks [[cos, sin], [-sin, cos]] of k times each frequency 10000^(-2i / d)."""
    angles = k * 10_000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    matrix, sine = torch.zeros(d, d, dtype=torch.float64), torch.arange(0, d, 2)
    matrix[sine, sine], matrix[sine, sine + 1] = angles.cos(), angles.sin()
    matrix[sine + 1, sine], matrix[sine + 1, sine + 1] = -angles.sin(), angles.cos()
    return matrix


def order_claims(
    equivariance: list[Row], shifts: list[Row], rows: list[Row], copying: Copying
) -> dict[str, float | dict[str, float]]:
    """Compute the measures of the claims about order."""
    none, *known = equivariance
    half = copying.beyond(rows)
    return {
        "encoder": none["encoder"],
        "decoder": none["decoder"],
        "lost": {row["positions"]: row["encoder"] for row in known},
        "shift": max(row["error"] for row in shifts),
        "learned": {kind: copying.learned(rows, kind) for kind in ORDERED},
        "sinusoids": half["sinusoidal_past"],
        "vectors": half["learned_past"],
    }


# Positions.


FAILS: dict[Positions, str] = {"sinusoidal": "Sinusoids", "learned": "Learned positions"}
"""Kinds that are expected to fail past the lengths of training, with the subject of a claim."""
CARRIES_OVER: dict[Positions, str] = {
    "rotary": "Rotary positions",
    "relative": "Relative positions",
    "alibi": "Biases of ALiBi",
}
"""Kinds that are said to carry over."""
KINDS: tuple[Positions, ...] = (*FAILS, *CARRIES_OVER)


def positions(settings: Settings) -> StudyResult:
    """Train every kind with every seed and measure copies of all lengths."""
    copying = Copying.of(settings, (0.25, 0.5, 1, 1.1, 1.25, 1.5, 2))
    by_seed = [copying.measure(KINDS, seed) for seed in settings.seeds]
    means = average(by_seed)
    every = [
        {"seed": seed, **row} for seed, rows in zip(settings.seeds, by_seed, strict=True) for row in rows
    ]
    return conclude(
        "positions",
        tables={"lengths": means, "seeds": every},
        measured=position_claims(by_seed, copying),
        panels=copying.panels(means, KINDS),
        words=copying.words | {"seed_count": len(by_seed)},
    )


def average(by_seed: list[list[Row]]) -> list[Row]:
    """Average the accuracies of each length over seeds."""
    return [
        rows[0] | {name: mean([row[name] for row in rows]) for name in rows[0] if name != "length"}
        for rows in zip(*by_seed, strict=True)
    ]


def position_claims(by_seed: list[list[Row]], copying: Copying) -> dict[str, dict[str, list[float]]]:
    """Compute the measures of the claims about positions, per seed."""
    half = [copying.beyond(rows) for rows in by_seed]
    return {
        "learned": {kind: [copying.learned(rows, kind) for rows in by_seed] for kind in KINDS},
        **{
            claim: {subject: [row[f"{kind}_past"] for row in half] for kind, subject in kinds.items()}
            for claim, kinds in (("carries", CARRIES_OVER), ("fails", FAILS))
        },
    }
