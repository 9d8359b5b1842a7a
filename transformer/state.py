"""Values passed between the methods of a model.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width.
"""

from typing import NamedTuple

from torch import Tensor

from .attention import KeysValues
from .cache import KeyValueCache


class Features(NamedTuple):
    """Input of the loss."""

    hidden: Tensor
    """Input of the output layer, (B, T, D)."""
    choice_logp: None = None
    """None: no source position is sampled."""
    value: None = None
    """None: there is no baseline."""


class Memory(NamedTuple):
    """Encoded sources, computed once per sentence."""

    layers: tuple[KeysValues, ...]
    """Per layer, the keys and values of the source: for cross-attention, or of the prefix (DecoderOnly)."""
    mask: Tensor
    """True at real source tokens, (B, 1, 1, S)."""


class State(NamedTuple):
    """Decoding state of B x K hypotheses."""

    layers: tuple[KeyValueCache, ...]
    """Per layer, the cached keys and values of self-attention."""

    @property
    def length(self) -> int:
        """Number of tokens fed to each hypothesis so far."""
        return self.layers[0].length


def empty_state(like: Tensor, layers: int, shape: tuple[int, int, int], capacity: int) -> State:
    """Build the state before the first token.

    Args:
        like: a tensor with the type and device of the keys and values.
        layers: number of layers.
        shape: (B, K, width of all heads together).
        capacity: maximum number of tokens per hypothesis.

    Returns:
        A state of length 0.
    """
    return State(tuple(KeyValueCache(like, shape, capacity) for _ in range(layers)))
