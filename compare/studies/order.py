"""What attention knows of order: nothing without positions; what positions tell, and how far.

Shapes: B sentences, S source positions, d model width.
"""

import logging
from dataclasses import replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from compare.analysis.table import Row, Table
from compare.studies.copying import CONFIG, SYMBOLS, learn_to_copy, probe_copying
from compare.studies.figures import draw_lines, make_figure
from compare.studies.measurement import relative_error
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from transformer.config import Positions
from transformer.model import Transformer
from transformer.positions import sinusoids

logger = logging.getLogger(__name__)

POSITIONS: tuple[Positions, ...] = ("none", "sinusoidal", "learned")
ROUNDING = 1e-11
"""Bound on what float64 adds at angles of some thousands."""
METHOD = f"""\
Equivariance: a fresh Transformer of two layers a side, d = {CONFIG.d_model}, in float64, reads {{length}}
tokens and a shuffling P of them; the error is the largest difference between f(P x) and P f(x) over the
encoder's states, and between the decoder's states after either, as a share of the largest value. Shift: the
largest difference between PE(n + k) and R_k PE(n) for n < {{reach:,}}, where R_k turns each pair (sin, cos)
by k times its frequency and so does not depend on n. Lengths: two small models learn to copy sequences of 1
to {{longest}} of {SYMBOLS} symbols ({{updates:,}} updates of about {{tokens:,}} tokens, fp32); accuracy is
the share of tokens, end of sequence included, that are the likeliest after the reference before them, over
{{tests}} new sequences a length. Chance is {1 / SYMBOLS:.2f}."""


def run(settings: Settings) -> StudyResult:
    """Measure equivariance and shifts, then train both models."""
    longest, updates, tokens, tests = (4, 3, 64, 10) if settings.quick else (20, 1_000, 1_024, 200)
    length, reach = 32, 1_000
    equivariance = [break_order(positions, length) for positions in POSITIONS]
    shifts = [shift_error(k, reach, CONFIG.d_model) for k in (1, 10, 100, 1_000)]
    lengths = sorted(
        {max(1, round(longest * share)) for share in (0.05, 0.25, 0.5, 0.75, 1, 1.1, 1.25, 1.5, 2)}
    )
    rows: list[Row] = [{"length": n} for n in lengths]
    for positions in POSITIONS[1:]:
        logger.info(f"order: training with {positions} positions, {updates:,} updates")
        model = learn_to_copy(positions, longest, updates, tokens, settings.seed)
        for row in rows:
            row |= probe_copying(model, positions, row["length"], longest, tests, settings.seed)
    method = METHOD.format(
        length=length, reach=reach, longest=longest, updates=updates, tokens=tokens, tests=tests
    )
    return StudyResult(
        method=method,
        tables={
            "equivariance": Table(
                "Error under shuffling of the source, as a share of the largest value.", equivariance
            ),
            "shifts": Table("PE(n + k) against R_k PE(n).", shifts),
            "lengths": Table(
                "Accuracy by length; past: over the symbols after as many as training had at most.", rows
            ),
        },
        claims=judge(equivariance, shifts, rows, longest),
        figure=plot(rows, longest),
    )


def plot(rows: list[Row], longest: int) -> Figure:
    """Accuracy by length, of all tokens and of the symbols past the longest sequence of training."""
    figure, (left, right) = make_figure(2)
    draw_lines(
        left,
        {
            positions: ([row["length"] for row in rows], [row[positions] for row in rows])
            for positions in POSITIONS[1:]
        },
        predicted={f"longest in training: {longest}": ([longest, longest], [0, 1])},
        title="Copying: all tokens",
        x="length (symbols)",
        y="share of tokens right",
    )
    longer = [row for row in rows if row["length"] > longest]
    beyond = [row["length"] for row in longer]
    draw_lines(
        right,
        {positions: (beyond, [row[f"{positions}_past"] for row in longer]) for positions in POSITIONS[1:]},
        predicted={"chance": (beyond, [1 / SYMBOLS] * len(beyond))},
        title=f"Copying: symbols after number {longest}",
        x="length (symbols)",
        y="share of symbols right",
    )
    for axes in (left, right):
        axes.set_ylim(0, 1.05)
    return figure


def break_order(positions: Positions, length: int) -> Row:
    """How far shuffling the source is from shuffling the states, and from changing nothing in the target."""
    model = Transformer(replace(CONFIG, positions=positions), length, length).double().eval()
    src, tgt = torch.randperm(length).unsqueeze(0), torch.randint(length, (1, length))
    mask, order = torch.ones_like(src, dtype=torch.bool), torch.randperm(length)
    with torch.inference_mode():
        states, shuffled = (model.encoder(part, mask)[0] for part in (src, src[:, order]))
        hidden, after = (model.features(part, mask, tgt).hidden for part in (src, src[:, order]))
    return {
        "positions": positions,
        "encoder": relative_error(shuffled, states[:, order]),
        "decoder": relative_error(after, hidden),
    }


def shift_error(k: int, reach: int, d: int) -> Row:
    """How far R_k is from taking PE(n) to PE(n + k)."""
    encoded = sinusoids(torch.arange(reach + k), d)
    error = (encoded[k:] - encoded[:reach] @ rotation(k, d).T).abs().max()
    return {"k": k, "error": float(error)}


def rotation(k: int, d: int) -> Tensor:
    """R_k (d, d): blocks [[cos, sin], [-sin, cos]] of k times each frequency 10000^(-2i / d)."""
    angles = k * 10_000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    turn, sine = torch.zeros(d, d, dtype=torch.float64), torch.arange(0, d, 2)
    turn[sine, sine], turn[sine, sine + 1] = angles.cos(), angles.sin()
    turn[sine + 1, sine], turn[sine + 1, sine + 1] = -angles.sin(), angles.cos()
    return turn


def judge(equivariance: list[Row], shifts: list[Row], rows: list[Row], longest: int) -> list[Claim]:
    """What the notes say, against the tables."""
    none, *placed = equivariance
    half = next(row for row in rows if row["length"] >= 1.5 * longest)
    claims = [
        at_most("Without positions the encoder is permutation-equivariant: error", none["encoder"], ROUNDING),
        at_most(
            "Nor can the decoder tell one order of the source from another: error",
            none["decoder"],
            ROUNDING,
        ),
    ]
    claims += [
        at_least(f"With {row['positions']} positions equivariance is lost: error", row["encoder"], 0.01)
        for row in placed
    ]
    claims.append(
        at_most(
            "PE(n + k) is a linear map of PE(n): largest error", max(row["error"] for row in shifts), ROUNDING
        )
    )
    for positions in POSITIONS[1:]:
        within = min(row[positions] for row in rows if row["length"] <= longest)
        claims.append(at_least(f"{positions}: lengths of training are learned: least accuracy", within, 0.99))
    past = f"after symbol {longest} of sequences of {half['length']}"
    return [
        *claims,
        at_least(
            f"Sinusoids carry over to longer sequences, as the paper hopes: accuracy {past}",
            half["sinusoidal_past"],
            0.9,
        ),
        at_most(f"Learned positions know nothing there: accuracy {past}", half["learned_past"], 0.2),
    ]
