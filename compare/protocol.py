"""Structural interface that a translation model must implement; models need not import it.

Shapes: B sentences, K hypotheses each, S source and T target positions, D hidden size, V vocabulary.
Masks are bool, True = may be attended; padding is on the right. A ``Memory`` or ``State`` is a nested tuple.
Its leaves are tensors, (B, ...) in a memory and (B, K, ...) in a state, or objects with methods
``select(parents)`` and ``keep(rows)`` that do what the functions of these names do with tensors.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

Memory = TypeVar("Memory")
State = TypeVar("State")


class Choices(Protocol):
    """Source positions that hard attention samples in training, for REINFORCE."""

    @property
    def logp(self) -> Tensor:
        """Log-probability of the sampled positions, (B, T)."""

    @property
    def value(self) -> Tensor:
        """Baseline: the return expected before sampling, (B, T)."""

    @property
    def entropy(self) -> Tensor | None:
        """Weighted entropy of the distribution, (B, T), which the loss maximises; None: not in the loss."""

    @property
    def average(self) -> Tensor | None:
        """Moving average of the returns, (1,), which the loss updates in place; None: not used."""


class Features(Protocol):
    """Input of the loss; each model package defines its own NamedTuple."""

    @property
    def hidden(self) -> Tensor:
        """Input of the model's ``output`` layer, (B, T, D)."""

    @property
    def choices(self) -> Choices | None:
        """The sampled positions; None without hard attention and in evaluation."""


class EncoderDecoder(Protocol[Memory, State]):
    """A translation model: trained through ``features`` and ``output``, decoded one token at a time.

    A language model implements it too, ignores the source, and has an attribute ``reads_source``, False.
    """

    @property
    def output(self) -> nn.Linear:
        """Layer from features (..., D) to logits (..., V); usually a plain attribute."""

    def features(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Compute the input of ``output`` at all target positions.

        Args:
            src: source ids, (B, S).
            src_mask: True at real source tokens, which come first, at least one per sentence, (B, S). None:
                all are real. The models of this project also accept 0 and 1 of any type, and reject other
                masks with a ValueError.
            tgt_in: target ids, beginning with the begin-of-sentence id, (B, T).
            src_lengths: number of real source tokens of each sentence, on the CPU, (B,); it saves a model
                from waiting for the GPU to count them in the mask.
        """

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Memory:
        """Encode src (B, S) with src_mask (B, S)."""

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Build the state before the first token of ``beam`` hypotheses of up to ``capacity`` tokens."""

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Decode one position.

        Args:
            tokens: the previous token of each hypothesis, (B, K).
            state: the state before these tokens, which must not be used afterwards.
            memory: result of ``encode``.

        Returns:
            The logits of the next token (B, K, V), and the next state.
        """

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Mapping[str, Tensor]:
        """Compute attention weights by name; arguments as for ``features``.

        Cross-attention is (B, heads, T, S), and its row t holds the weights used to predict tgt_out[t].
        """


@runtime_checkable
class Scheduled(Protocol):
    """A model or module that computes something else in the first updates of training."""

    def begin_update(self, update: int) -> None:
        """Prepare for an update, counted from 1."""


def select(tree: Any, parents: Tensor) -> Any:
    """Reorder the hypotheses of a state, or of a part of one.

    Args:
        tree: the state.
        parents: index of the hypothesis that hypothesis k of sentence b continues, (B, K).
    """
    if isinstance(tree, Tensor):
        index = parents.reshape(parents.shape + (1,) * (tree.dim() - 2)).expand(-1, -1, *tree.shape[2:])
        return tree.gather(1, index)
    if isinstance(tree, tuple):
        return _rebuild(tree, [select(part, parents) for part in tree])
    return tree.select(parents)


def keep(tree: Any, rows: Tensor) -> Any:
    """Keep some sentences of a memory or a state, or of a part of one.

    Args:
        tree: the memory or state.
        rows: indices of the sentences to keep, (B',).
    """
    if isinstance(tree, Tensor):
        return tree.index_select(0, rows)
    if isinstance(tree, tuple):
        return _rebuild(tree, [keep(part, rows) for part in tree])
    return tree.keep(rows)


def _rebuild(tree: tuple[Any, ...], parts: list[Any]) -> tuple[Any, ...]:
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def attends_to_source(layer: str) -> bool:
    """Return whether a layer of ``attention`` attends to the source: "cross", or "cross.0" of several."""
    return layer.split(".")[0] == "cross"
