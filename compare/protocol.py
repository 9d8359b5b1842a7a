"""What the harness needs of a model; models fit these protocols by shape and import nothing.

Shapes: B sentences, K hypotheses each, S source and T target positions, D hidden size, V vocabulary.
Masks are bool, True = may be attended. Every leaf of a ``State`` is (B, K, ...), or an object with
``select(parents)`` and ``keep(rows)`` that does for itself what ``select`` and ``keep`` do for tensors.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

Memory = TypeVar("Memory")
State = TypeVar("State")


class Features(Protocol):
    """What the loss is computed from; a NamedTuple of each room's own."""

    @property
    def hidden(self) -> Tensor:
        """The input of the model's ``output`` layer, (B, T, D)."""

    @property
    def choice_logp(self) -> Tensor | None:
        """Log-probability of the source positions drawn (hard attention), (B, T)."""

    @property
    def value(self) -> Tensor | None:
        """The learned baseline of REINFORCE, (B, T)."""


@runtime_checkable
class EncoderDecoder(Protocol[Memory, State]):
    """A translation model: trained through ``features`` and ``output``, decoded one token at a time."""

    output: nn.Linear

    def features(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Features:
        """Run the whole target at once: src (B, S), src_mask (B, S), tgt_in (B, T)."""

    def encode(self, src: Tensor, src_mask: Tensor) -> Memory:
        """Read the sources once; every tensor of the memory has one row a sentence."""

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """The state before the first token, for ``beam`` hypotheses of up to ``capacity`` tokens."""

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed tokens (B, K); returns logits (B, K, V). ``state`` is dead afterwards."""

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Mapping[str, Tensor]:
        """Weights by name, (B, heads, T, S); row t holds those used to predict tgt_out[t]."""


def select(tree: Any, parents: Tensor) -> Any:
    """Let hypothesis k of sentence b continue hypothesis ``parents[b, k]``; parents is (B, K)."""
    if isinstance(tree, Tensor):
        index = parents.reshape(parents.shape + (1,) * (tree.dim() - 2)).expand(-1, -1, *tree.shape[2:])
        return tree.gather(1, index)
    if isinstance(tree, tuple):
        return _rebuild(tree, [select(part, parents) for part in tree])
    return tree.select(parents)


def keep(tree: Any, rows: Tensor) -> Any:
    """Keep only the sentences ``rows``, (B',), of a memory or a state."""
    if isinstance(tree, Tensor):
        return tree.index_select(0, rows)
    if isinstance(tree, tuple):
        return _rebuild(tree, [keep(part, rows) for part in tree])
    return tree.keep(rows)


def _rebuild(tree: tuple[Any, ...], parts: list[Any]) -> tuple[Any, ...]:
    """A tuple of the type of ``tree`` with other ``parts``."""
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
