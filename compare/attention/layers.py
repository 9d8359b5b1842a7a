"""Attention weights of the layers of a model, with the tokens that they lie between.

Shapes: H heads of a layer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float32]
CROSS = "cross"
"""Name of the attention to the source; "cross.0" and so on in a model of several layers."""
KINDS = {
    CROSS: ("translation", "source"),
    "encoder": ("source", "source"),
    "decoder": ("translation", "translation so far"),
}
"""Names of the axes (rows, columns) of each kind of attention, by the first part of a layer's name."""


class Layer(NamedTuple):
    """One attention of a model: the weights of its heads, and what they lie between."""

    name: str
    """Such as "cross.0"."""
    weights: Weights
    """(H, rows, columns)."""
    rows: Sequence[str]
    columns: Sequence[str]

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return kind_of(self.name)


def kind_of(layer: str) -> str:
    """Return the kind of attention of a layer, one of ``KINDS``."""
    return layer.split(".")[0]
