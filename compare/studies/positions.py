"""Order of the input: lost without positions, and which kinds of positions reach beyond the training lengths.

Shapes: B sentences, S source positions, d model width.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from compare.decoding.translator import Translator
from compare.results.table import Row
from compare.studies.corpora import sequences
from compare.studies.experiments import accuracy, batch_of, train
from compare.studies.fresh_models import transformer
from compare.studies.linearity import relative_error
from compare.studies.panels import column, conclude
from compare.studies.study import Settings, StudyResult
from data.corpus import Pairs
from transformer.config import Positions
from transformer.positions import sinusoids

WIDTH = 64
"""d of the fresh models, which have two layers per side."""
SYMBOLS, LONGEST = 20, 20
"""Number of symbols, and length of the longest sequence of training, as in the descriptions."""

# The task of both: copying.


def copy_accuracies(settings: Settings, shares: Sequence[float]) -> list[list[Row]]:
    """Train the kinds of positions of a study to copy, and measure copies of shares of the longest length.

    Returns:
        For each seed one row per length: the accuracies ``kind`` over all tokens and, past the longest length
        of training, ``kind_past`` over the symbols beyond it.
    """
    trained = train(settings)
    tests = 5 if settings.quick else 200
    lengths = [round(LONGEST * share) for share in shares]
    by_seed: list[list[Row]] = [[{"length": length} for length in lengths] for _ in trained.seeds]
    for kind, design in trained.designs.items():
        for seed, rows, model in zip(trained.seeds, by_seed, design.models, strict=True):
            for row in rows:
                draw, length = random.Random(f"{seed} {row['length']}"), row["length"]
                lines = sequences(draw, SYMBOLS, [length] * tests)
                row |= measure_copies(model, kind, Pairs(lines, lines), length)
    return by_seed


def measure_copies(translator: Translator, kind: str, pairs: Pairs, length: int) -> Row:
    """Measure the accuracies on copies of one length."""
    batch = batch_of(translator, pairs)
    row: Row = {kind: accuracy(translator.model, batch)}
    if length > LONGEST:
        past = batch.tgt_mask.clone()
        past[:, :LONGEST] = past[:, length] = False  # not the end of sequence either
        row[f"{kind}_past"] = accuracy(translator.model, replace(batch, tgt_mask=past))
    return row


def copy_series(by_seed: Sequence[Sequence[Row]]) -> dict[str, list[float]]:
    """Return the accuracies by kind and seed: the least up to the longest length, and past 1.5 times it."""
    kinds = [name for name in by_seed[0][0] if name != "length"]
    half = [next(row for row in rows if row["length"] >= 1.5 * LONGEST) for rows in by_seed]
    learned = {
        kind: [min(row[kind] for row in rows if row["length"] <= LONGEST) for rows in by_seed]
        for kind in kinds
    }
    return learned | {f"{kind}_past": column(half, f"{kind}_past") for kind in kinds}


def past_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the accuracies past the longest length of training."""
    return [
        {"length": row["length"]}
        | {name.removesuffix("_past"): value for name, value in row.items() if name.endswith("_past")}
        for row in rows
        if row["length"] > LONGEST
    ]


# Order.


def order(settings: Settings) -> StudyResult:
    """Measure equivariance and shifts, then copies by length."""
    length, reach = 32, 1_000
    kinds: tuple[Positions, ...] = ("none", "sinusoidal", "learned")
    equivariance = [break_order(kind, length) for kind in kinds]
    shifts = [shift_error(k, reach, WIDTH) for k in (1, 10, 100, 1_000)]
    by_seed = copy_accuracies(settings, (0.05, 0.25, 0.5, 0.75, 1, 1.1, 1.25, 1.5, 2))
    rows, (none, *others) = by_seed[0], equivariance
    least = torch.finfo(torch.float64).eps
    shuffled: list[Row] = [
        {"positions": row["positions"]} | {side: max(row[side], least) for side in ("encoder", "decoder")}
        for row in equivariance
    ]
    tables = {"equivariance": equivariance, "shifts": shifts, "lengths": rows}
    return conclude(
        settings,
        {**tables, "shuffled": shuffled, "past": past_rows(rows)},
        {
            "encoder": none["encoder"],
            "decoder": none["decoder"],
            "lost": {row["positions"]: row["encoder"] for row in others},
            "shift": max(row["error"] for row in shifts),
            **copy_series(by_seed),
        },
        length=length,
        reach=reach,
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


# Positions.


def positions(settings: Settings) -> StudyResult:
    """Measure copies by length with every kind of position and seed."""
    by_seed = copy_accuracies(settings, (0.25, 0.5, 1, 1.1, 1.25, 1.5, 2))
    means = [
        {name: fmean(column(rows, name)) if name != "length" else rows[0][name] for name in rows[0]}
        for rows in zip(*by_seed, strict=True)
    ]
    numbered = [{"seed": seed, **row} for seed, rows in enumerate(by_seed, settings.seed) for row in rows]
    tables = {"lengths": means, "seeds": numbered, "past": past_rows(means)}
    return conclude(settings, tables, copy_series(by_seed))
