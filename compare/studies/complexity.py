"""Cost of attention: closed forms against counted operations, saved bytes and time.

Symbols: M source and N target positions, d (or k) model width, d_q and d_v widths of a head's queries and
values, h heads. Operations are multiply-adds of matrix products.

The closed forms follow from the definition softmax(Q K^T / sqrt(d_q)) V: per head, Q K^T takes N M d_q
multiply-adds and the sum over V takes N M d_v. Vaswani et al. 2017 state the order N^2 d of a self-attention
layer (table 1), and that heads of width d/h together cost as much as one head of width d (section 3.2.2).

The other claims follow from the matrices of a layer, by counting. Projections W_Q, W_K and W_V are d x d
together over all heads of width d/h, and so is W_O (section 3.2.2): 3 d^2 or 4 d^2 weights, and 4 N d^2
operations for N positions. The products over pairs of positions, Q K^T and the sum over V, take 2 N^2 d. Both
are equal at N = 2d. A decoder over an encoded source repeats nothing of the encoder, whose self-attention has
the only term in M^2.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compare.results.formatting import Row
from compare.studies.fresh_models import transformer
from compare.studies.panels import column, conclude, exponent
from compare.studies.study import Settings, StudyResult
from compare.system.timer import best_of
from transformer.attention import plain_attention
from transformer.model import Transformer

logger = logging.getLogger(__name__)

D, HEADS = 256, 4
CROSS_KEYS = 512
"""Source length M of the cross-attention whose target length grows."""
LAYERS, WIDTH = 2, 64
INNER = 4 * WIDTH
"""Sizes of the model that translates into two languages."""
TARGET, SOURCES = 40, (20, 40, 60, 80)
"""N, and evenly spaced values of M, of the second language."""
CPU = torch.device("cpu")


def run(settings: Settings) -> StudyResult:
    """Measure each kind over lengths, then parameters, crossing and a second language."""
    quick = settings.quick
    lengths, crossing_lengths = (
        ((16, 32, 64), (16, 32)) if quick else ((128, 256, 512, 1024), (64, 128, 256, 512, 1024))
    )
    rows: list[Row] = []
    for kind, shape in KINDS.items():
        logger.info(f"complexity: {kind}")
        rows += [{"attention": kind, "n": n, **measure(shape(n), quick=quick)} for n in lengths]
    exponents = [fit(kind, [row for row in rows if row["attention"] == kind]) for kind in KINDS]
    logger.info("complexity: parameters, crossing, second language")
    weights = [weigh(*shape) for shape in ((1, None), (2, None), (4, None), (8, None), (HEADS, D))]
    both = [compare_parts(n, quick=quick) for n in crossing_lengths]
    counted, timed = (crossing(both, cost) for cost in ("operations", "seconds"))
    model = transformer(WIDTH, LAYERS)(10, 10)
    languages = [translate(model, source) for source in SOURCES]
    tables = {"attention": rows, "exponents": exponents, "parameters": weights, "crossing": both}
    return conclude(
        settings,
        {**tables, "second-language": languages},
        {
            **attention_series(rows, exponents),
            **weight_series(weights),
            **language_series(languages),
            "crossing": counted / D,
            "crossing_time": timed / D,
        },
        **{"d": D, "heads": HEADS, "rows": len(rows), "counted": counted, "timed": timed},
        **{"layers": LAYERS, "width": WIDTH, "inner": INNER, "target": TARGET},
    )


# Attention over growing lengths.


class AttentionShape(NamedTuple):
    """Sizes of one attention: lengths N and M, number of heads, widths of a head's queries and values."""

    queries: int
    keys: int
    heads: int
    key_size: int
    value_size: int
    causal: bool = False

    @property
    def operations(self) -> int:
        """Multiply-adds by the closed form."""
        return self.heads * self.queries * self.keys * (self.key_size + self.value_size)

    @property
    def bytes(self) -> int:
        """Bytes saved for the backward pass by the closed form: queries, keys, values, weights, mask."""
        pairs = self.queries * self.keys
        sequences = self.queries * self.key_size + self.keys * (self.key_size + self.value_size)
        return 4 * self.heads * (sequences + pairs) + (pairs if self.causal else 0)


SINGLE = "encoder self, 1 head"
NARROW, WIDE = f"encoder self, {HEADS} heads of d/{HEADS}", f"encoder self, {HEADS} heads of d"
CROSS = f"cross, M = {CROSS_KEYS}"
KINDS: dict[str, Callable[[int], AttentionShape]] = {
    SINGLE: lambda n: AttentionShape(n, n, 1, D, D),
    NARROW: lambda n: AttentionShape(n, n, HEADS, D // HEADS, D // HEADS),
    WIDE: lambda n: AttentionShape(n, n, HEADS, D, D),
    "encoder self, 1 head, d_v = d/4": lambda n: AttentionShape(n, n, 1, D, D // 4),
    CROSS: lambda n: AttentionShape(n, CROSS_KEYS, HEADS, D // HEADS, D // HEADS),
    "decoder self": lambda n: AttentionShape(n, n, HEADS, D // HEADS, D // HEADS, causal=True),
}


def measure(shape: AttentionShape, *, quick: bool) -> Row:
    """Measure operations, bytes and time of an attention, beside its closed forms."""
    queries, keys, values = (
        torch.randn(1, shape.heads, length, size, requires_grad=True)
        for length, size in (
            (shape.queries, shape.key_size),
            (shape.keys, shape.key_size),
            (shape.keys, shape.value_size),
        )
    )

    def attend() -> Tensor:
        return plain_attention(queries, keys, values, None, shape.causal, 0.0)[0]

    operations, saved = multiply_adds(attend), saved_bytes(attend)
    with torch.inference_mode():
        seconds = best_of(attend, CPU, repeats=5, seconds=0 if quick else 1)
    return {
        "operations": operations,
        "operations_predicted": shape.operations,
        "bytes": saved,
        "bytes_predicted": shape.bytes,
        "seconds": seconds,
    }


def multiply_adds(work: Callable[[], object]) -> int:
    """Count the multiply-adds of all matrix products in ``work`` with torch's counter.

    Attention runs without fused kernels, since the counter misses those of a CPU.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops()) // 2


def saved_bytes(work: Callable[[], object]) -> int:
    """Count the bytes of the tensors that ``work`` saves for its backward pass, each storage once."""
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor  # a reference keeps its address in use
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        result = work()
    del result
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


def fit(kind: str, rows: Sequence[Row]) -> Row:
    """Fit the exponents in n of one kind of attention."""
    return {
        "attention": kind,
        "predicted": 1 if kind == CROSS else 2,
        "operations_exponent": exponent(rows, "n", "operations"),
        "bytes_exponent": exponent(rows, "n", "bytes"),
        "seconds_exponent": exponent(rows, "n", "seconds"),
        "bytes_exponent_predicted": exponent(rows, "n", "bytes_predicted"),
    }


def attention_series(rows: Sequence[Row], exponents: Sequence[Row]) -> dict[str, float | dict[str, float]]:
    """Compute what the claims are about: attention."""
    longest = {row["attention"]: row["operations"] for row in rows}
    by_kind = {row["attention"]: row for row in exponents}
    measured: dict[str, float | dict[str, float]] = {
        "closed_form": {
            name.capitalize(): max(abs(row[name] / row[f"{name}_predicted"] - 1) for row in rows)
            for name in ("operations", "bytes")
        },
        "split": longest[NARROW] / longest[SINGLE],
        "wide": longest[WIDE] / longest[SINGLE],
    }
    for cost, column_name in (("operations", "operations_exponent"), ("time", "seconds_exponent")):
        for growth, predicted in (("square", 2), ("linear", 1)):
            measured[f"{cost}_{growth}"] = {
                kind: row[column_name] for kind, row in by_kind.items() if row["predicted"] == predicted
            }
    return measured


# Parameters, crossing of N^2 d and N d^2, a second target language.


def weigh(heads: int, head_size: int | None) -> Row:
    """Count the weights of a self-attention of width ``D``, without and with its output matrix."""
    model = transformer(D, 1, num_heads=heads, head_size=head_size)(1, 1)
    attention = model.encoder.layers[0].attention
    matrices = {name: part.numel() for name, part in attention.named_parameters() if part.dim() == 2}
    weights = sum(matrices.values())
    return {
        "heads": heads,
        "head_size": head_size or D // heads,
        "weights": weights - matrices["project_out.weight"],
        "with_W_O": weights,
        "3 d^2": 3 * D * D,
        "4 d^2": 4 * D * D,
    }


def weight_series(rows: Sequence[Row]) -> dict[str, float | dict[str, float]]:
    """Compute what the claims are about: weights; the last row has heads of width d."""
    *split, wide = rows
    return {
        "weights": {
            f"{matrices} {factor}": max(abs(row[name] / row[f"{factor} d^2"] - 1) for row in split)
            for matrices, name, factor in (("W_Q, W_K, W_V:", "weights", 3), ("With W_O:", "with_W_O", 4))
        },
        "wide_weights": wide["with_W_O"] / wide["4 d^2"],
    }


def compare_parts(n: int, *, quick: bool) -> Row:
    """Measure operations and time of both parts of a self-attention over n positions."""
    x, into, out = torch.randn(n, D), torch.randn(D, 3 * D), torch.randn(D, D)
    split = torch.randn(1, HEADS, n, D // HEADS)
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


def crossing(rows: Sequence[Row], cost: str) -> float:
    """Compute the n at which both parts cost the same, by the power law fitted to their ratio."""
    ratios = [row[f"pairs_{cost}"] / row[f"projections_{cost}"] for row in rows]
    slope, intercept = np.polyfit(np.log(column(rows, "n")), np.log(ratios), 1)
    return float(np.exp(-intercept / slope))


def translate(model: Transformer, m: int) -> Row:
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


def language_series(rows: Sequence[Row]) -> dict[str, float]:
    """Compute what the claims are about: a second language."""
    second = column(rows, "second_language")
    bends = [a - 2 * b + c for a, b, c in zip(second, second[1:], second[2:], strict=False)]
    errors = [abs(row["second_language"] / row["second_predicted"] - 1) for row in rows]
    return {"second": max(errors), "no_square": max(map(abs, bends))}
