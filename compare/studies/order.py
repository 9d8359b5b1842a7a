"""Order of the input: lost without positions, and how far positions reach beyond the lengths of training.

That attention without positions is permutation-equivariant follows from its definition: a sum over all keys
does not depend on their order. Vaswani et al. 2017 (section 3.5) state that PE(pos + k) is a linear function
of PE(pos), which follows from the addition theorems of sine and cosine (see ``rotation``), and hypothesise
that sinusoids may extrapolate to longer sequences.

Shapes: B sentences, S source positions, d model width.
"""

import torch
from torch import Tensor

from compare.analysis.tables import Row, Table
from compare.studies.kit import relative_error
from compare.studies.positions import SYMBOLS, WIDTH, Copying
from compare.studies.study import Claim, Settings, StudyResult, at_least, at_most
from compare.studies.tasks import transformer
from transformer.config import Positions
from transformer.positions import sinusoids

POSITIONS: tuple[Positions, ...] = ("none", "sinusoidal", "learned")
ROUNDING = 1e-11
"""Bound on float64 rounding at angles of some thousands."""


def run(settings: Settings) -> StudyResult:
    """Measure equivariance and shifts, then train the models of the copying task."""
    length, reach = 32, 1_000
    equivariance = [break_order(positions, length) for positions in POSITIONS]
    shifts = [shift_error(k, reach, WIDTH) for k in (1, 10, 100, 1_000)]
    copying = Copying.of(settings, (0.05, 0.25, 0.5, 0.75, 1, 1.1, 1.25, 1.5, 2))
    rows = copying.measure(POSITIONS[1:], settings.seed)
    return StudyResult(
        method=f"""
            Equivariance: a fresh Transformer of two layers per side, d = {WIDTH}, in float64, reads {length}
            tokens and a permutation P of them; the error is the largest difference between f(P x) and P f(x)
            over the encoder's states, and between the decoder's states after either, as a share of the
            largest value. Shift: the largest difference between PE(n + k) and R_k PE(n) for n < {reach:,},
            where R_k turns each pair (sin, cos) by k times its frequency and so does not depend on n.
            Lengths: two small models learn to copy sequences of 1 to {copying.longest} of {SYMBOLS} symbols
            ({copying.updates:,} updates of about {copying.tokens:,} tokens, fp32); accuracy is the share of
            tokens, end of sequence included, that are the likeliest after the reference before them, over
            {copying.tests} new sequences per length. Chance is {1 / SYMBOLS:.2f}.""",
        tables={
            "equivariance": Table(
                "Error under permutation of the source, as a share of the largest value.", equivariance
            ),
            "shifts": Table("PE(n + k) against R_k PE(n).", shifts),
            "lengths": Table(
                "Accuracy by length; past: over the symbols beyond the longest sequence of training.", rows
            ),
        },
        claims=judge(equivariance, shifts, rows, copying),
        figure=copying.plot(rows, POSITIONS[1:]),
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


def judge(equivariance: list[Row], shifts: list[Row], rows: list[Row], copying: Copying) -> list[Claim]:
    """Compare the claims with the tables."""
    none, *with_positions = equivariance
    half = copying.beyond(rows)
    past = f"after symbol {copying.longest} of sequences of {half['length']}"
    shift = max(row["error"] for row in shifts)
    return [
        at_most("Without positions the encoder is permutation-equivariant: error", none["encoder"], ROUNDING),
        at_most(
            "Nor does the decoder distinguish two orders of the source: error", none["decoder"], ROUNDING
        ),
        *(
            at_least(f"With {row['positions']} positions equivariance is lost: error", row["encoder"], 0.01)
            for row in with_positions
        ),
        at_most("PE(n + k) is a linear map of PE(n): largest error", shift, ROUNDING),
        *(
            at_least(
                f"{kind} positions: training lengths are learned: least accuracy",
                copying.learned(rows, kind),
                0.99,
            )
            for kind in POSITIONS[1:]
        ),
        at_least(f"Sinusoids extrapolate to longer sequences: accuracy {past}", half["sinusoidal_past"], 0.9),
        at_most(f"Learned positions do not: accuracy {past}", half["learned_past"], 0.2),
    ]
