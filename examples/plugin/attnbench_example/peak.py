"""A study: the largest weight that a softmax over cosines can give."""

import math

import torch
from matplotlib.figure import Figure
from torch.nn.functional import normalize

from compare.results.formatting import Table
from compare.studies.study import Settings, StudyResult, at_most, near

LENGTHS = (2, 5, 10, 20, 50)
"""Numbers of source words."""
STRENGTHS = (1.0, 5.0, 20.0)
"""Factors of the cosine."""


def measure_peaks(settings: Settings) -> StudyResult:
    """Compare the largest weight of random states with the bound, which opposite keys reach.

    Of n words, one with cosine 1 and the others with -1 under strength b, the first has the weight
    1 / (1 + (n - 1) exp(-2 b)).
    """
    draws, size = (20, 8) if settings.quick else (2_000, 64)
    rows = []
    for length in LENGTHS:
        for strength in STRENGTHS:
            keys = normalize(torch.randn(draws, length, size), dim=-1)
            query = keys[:, :1]  # the state that suits the first word best
            random = (strength * (query * keys).sum(-1)).softmax(-1).max().item()
            opposite = torch.cat((query, (-query).expand(-1, length - 1, -1)), dim=1)
            reached = (strength * (query * opposite).sum(-1)).softmax(-1).max().item()
            rows.append(
                {
                    "words": length,
                    "strength": strength,
                    "bound": 1 / (1 + (length - 1) * math.exp(-2 * strength)),
                    "opposite keys": reached,
                    "random keys": random,
                }
            )
    excess = max(row["random keys"] - row["bound"] for row in rows)
    gap = max(abs(row["opposite keys"] - row["bound"]) for row in rows)
    flat = next(row["bound"] for row in rows if (row["words"], row["strength"]) == (20, 1.0))
    return StudyResult(
        method="Weights of a softmax over strength times cosine, of random and of opposite keys.",
        tables={"peaks": Table("largest weight of one word", rows)},
        claims=[
            at_most("random keys never exceed the bound (largest excess)", excess, 1e-6),
            near("opposite keys reach the bound (largest difference)", gap, 0, 1e-5),
            at_most("without a strength, no word of 20 gets half of the weight", flat, 0.5),
        ],
        figure=_figure(rows),
    )


def _figure(rows: list[dict[str, float]]) -> Figure:
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    for strength in STRENGTHS:
        of_strength = [row for row in rows if row["strength"] == strength]
        words = [row["words"] for row in of_strength]
        axes.plot(words, [row["bound"] for row in of_strength], marker="o", label=f"strength {strength:g}")
    axes.set(xlabel="source words", ylabel="largest weight", ylim=(0, 1.05))
    axes.legend()
    return figure
