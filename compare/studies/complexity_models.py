"""Second half of the ``complexity`` study: parameters, crossing of N^2 d and N d^2, a second target language.

The claims follow from the matrices of a layer, by counting. Projections W_Q, W_K and W_V are d x d together
over all heads of width d/h, and so is W_O (Vaswani et al. 2017, section 3.2.2): 3 d^2 or 4 d^2 weights, and
4 N d^2 operations for N positions. The products over pairs of positions, Q K^T and the sum over V, take
2 N^2 d. Both are equal at N = 2d. A decoder over an encoded source repeats nothing of the encoder, whose
self-attention has the only term in M^2.
"""

import torch

from compare.analysis.table import Row, Table
from compare.benchmark.growth import fit_power_law
from compare.studies.measurement import multiply_adds
from compare.studies.study import Claim, between, near
from compare.system.timing import best_of
from transformer.attention import plain_attention
from transformer.config import TransformerConfig
from transformer.model import Transformer

Part = tuple[Table, list[Claim]]
"""A table and the claims about it."""
LAYERS, WIDTH, INNER = 2, 64, 256
"""Sizes of the model that translates into two languages."""
CPU = torch.device("cpu")
TARGET, SOURCES = 40, (20, 40, 60, 80)
"""N, and evenly spaced values of M, of the second language."""


def parameters(d: int) -> Part:
    """Count the weights of one attention for several numbers and widths of heads."""
    rows = [_weigh(d, heads, size) for heads, size in ((1, None), (2, None), (4, None), (8, None), (4, d))]
    *split, wide = rows
    claims = [
        near(
            f"{matrices} {factor} d^2 weights, for any number of heads: largest relative error",
            max(abs(row[name] / (factor * d * d) - 1) for row in split),
            0,
        )
        for matrices, name, factor in (("W_Q, W_K, W_V:", "weights", 3), ("With W_O:", "with_W_O", 4))
    ]
    claims.append(
        near(
            "Heads of width d need h times as many: with W_O over 4 d^2",
            wide["with_W_O"] / (4 * d * d),
            wide["heads"],
        )
    )
    return Table(f"Matrices of one self-attention, d = {d}; biases are not counted.", rows), claims


def _weigh(d: int, heads: int, head_size: int | None) -> Row:
    """Count the weights of a self-attention, without and with its output matrix."""
    config = TransformerConfig(
        d_model=d, num_heads=heads, head_size=head_size, encoder_layers=1, decoder_layers=1, ffn_size=1
    )
    attention = Transformer(config, 1, 1).encoder.layers[0].attention
    matrices = {name: part.numel() for name, part in attention.named_parameters() if part.dim() == 2}
    weights = sum(matrices.values())
    return {
        "heads": heads,
        "head_size": head_size or d // heads,
        "weights": weights - matrices["project_out.weight"],
        "with_W_O": weights,
        "3 d^2": 3 * d * d,
        "4 d^2": 4 * d * d,
    }


def crossing(d: int, heads: int, *, quick: bool) -> Part:
    """Find the length from which the products over pairs cost more than the projections."""
    lengths = [16, 32] if quick else [64, 128, 256, 512, 1024]
    rows = [_compare(n, d, heads, quick=quick) for n in lengths]
    counted = _crossing(rows, "pairs_operations", "projections_operations")
    timed = _crossing(rows, "pairs_seconds", "projections_seconds")
    claims = [
        near(
            "N^2 d overtakes N d^2 at N = 2d, as a layer has 2 N^2 d and 4 N d^2: by operations, N/d",
            counted / d,
            2,
            1e-9,
        ),
        between("The same by time, of the order of d: N/d", timed / d, 0.25, 4),
    ]
    caption = (
        f"One self-attention of {heads} heads, d = {d}: products over pairs of positions (2 N^2 d) against "
        f"projections (4 N d^2). Equal at N = {counted:,.0f} by operations, {timed:,.0f} by time."
    )
    return Table(caption, rows), claims


def _compare(n: int, d: int, heads: int, *, quick: bool) -> Row:
    """Measure operations and time of both parts of a self-attention over n positions."""
    x, into, out = torch.randn(n, d), torch.randn(d, 3 * d), torch.randn(d, d)
    split = torch.randn(1, heads, n, d // heads)
    work = {
        "pairs": lambda: plain_attention(split, split, split, None, False, 0.0)[0],
        "projections": lambda: (x @ into, x @ out),
    }
    row: Row = {"n": n}
    with torch.inference_mode():
        for name, part in work.items():
            row[f"{name}_operations"] = multiply_adds(part)
            row[f"{name}_seconds"] = best_of(part, CPU, repeats=5, seconds=0 if quick else 0.5)
    return row


def _crossing(rows: list[Row], left: str, right: str) -> float:
    """Compute the n at which ``left`` equals ``right`` by the power law fitted to their ratio."""
    law = fit_power_law([row["n"] for row in rows], [row[left] / row[right] for row in rows])
    return float(law.factor ** (-1 / law.exponent))


def second_language() -> Part:
    """Measure the cost of a second decoder over the same encoded source."""
    config = TransformerConfig(
        d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, ffn_size=INNER, dropout=0.0
    )
    model = Transformer(config, 10, 10)
    rows = [_translate(model, source) for source in SOURCES]
    second = [row["second_language"] for row in rows]
    bends = [a - 2 * b + c for a, b, c in zip(second, second[1:], second[2:], strict=False)]
    claims = [
        near(
            "A second language costs only its decoder, O(M N k + N^2 k) and projections: relative error",
            max(abs(row["second_language"] / row["second_predicted"] - 1) for row in rows),
            0,
        ),
        near("It has no M^2 k: second difference of its operations over M", max(map(abs, bends)), 0),
    ]
    caption = (
        f"Operations of {LAYERS} + {LAYERS} layers, k = {WIDTH}, feed-forward {INNER}, N = {TARGET}: the "
        "encoder, which runs once, and each decoder over its output. pairs = layers (2 M N k + 2 N^2 k) "
        "grows with products of lengths; the rest are projections and feed-forward layers."
    )
    return Table(caption, rows), claims


def _translate(model: Transformer, m: int) -> Row:
    """Count the operations of encoder and decoder for M = m, beside their closed forms."""
    k, n = WIDTH, TARGET
    src, mask = torch.zeros(1, m, dtype=torch.long), torch.ones(1, m, dtype=torch.bool)
    tgt = torch.zeros(1, n, dtype=torch.long)
    with torch.inference_mode():
        encoder = multiply_adds(lambda: model.encoder(src, mask))
        whole = multiply_adds(lambda: model.features(src, mask, tgt))
    inner = 2 * k * INNER
    pairs = LAYERS * (2 * m * n * k + 2 * n * n * k)
    return {
        "M": m,
        "encoder": encoder,
        "encoder_predicted": LAYERS * (m * (4 * k * k + inner) + 2 * m * m * k),
        "second_language": whole - encoder,
        "second_predicted": LAYERS * (n * (4 * k * k + inner) + (n + m) * 2 * k * k) + pairs,
        "pairs": pairs,
    }
