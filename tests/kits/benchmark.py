"""Shared by the tests of the benchmark: a measurement with every field."""

from typing import Any

from compare.benchmark.measurement import Measurement

FACTS: dict[str, Any] = {
    "model": "a",
    "phase": "train",
    "precision": "fp32",
    "unit": "tokens/s",
    "params": 1_500_000,
    "flops_per_token": 4e6,
    "sentences": 20,
    "tokens": 600,
    "seconds": [2.0, 4.0, 3.0],
}


def row(**changes: Any) -> Measurement:
    """Make a measurement with some fields changed."""
    return Measurement(**{**FACTS, **changes})
