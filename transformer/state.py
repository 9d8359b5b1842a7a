"""What passes between the calls of a model. Shapes: B sentences, K hypotheses each, T target positions."""

from typing import NamedTuple

from torch import Tensor

from .attention import KeysValues
from .cache import KeyValueCache


class Features(NamedTuple):
    """What the loss is computed from."""

    hidden: Tensor
    """The input of ``output``, (B, T, D)."""
    choice_logp: None = None
    """No position is drawn here."""
    value: None = None
    """Nor is there a baseline."""


class Memory(NamedTuple):
    """What is known of the sources, one row a sentence."""

    layers: tuple[KeysValues, ...]
    """Keys and values for each layer: of its cross-attention, or of the prefix that it goes on from."""
    mask: Tensor
    """True = may be attended, (B, 1, 1, S)."""


class State(NamedTuple):
    """What is known of the tokens written so far."""

    layers: tuple[KeyValueCache, ...]
    """Keys and values of each layer's self-attention."""

    @property
    def length(self) -> int:
        """Tokens of each hypothesis so far."""
        return self.layers[0].length


def empty_state(like: Tensor, layers: int, shape: tuple[int, int, int], capacity: int) -> State:
    """Make the state of ``layers`` layers before the first token.

    Args:
        like: a tensor of the type and on the device that keys and values will have.
        layers: their number.
        shape: (B, K, width of all heads).
        capacity: most tokens of a hypothesis.
    """
    return State(tuple(KeyValueCache(like, shape, capacity) for _ in range(layers)))
