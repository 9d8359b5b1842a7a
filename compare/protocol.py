"""Structural interface that a translation model must implement; models need not import it.

Shapes: B sentences, K hypotheses each, S source and T target positions, D hidden size, V vocabulary.
Masks are bool, True = may be attended; padding is on the right. A ``Memory`` or ``State`` is a nesting of
tuples. Its leaves are tensors, (B, ...) in a memory and (B, K, ...) in a state, or objects with methods
``select(parents)`` and ``keep(rows)`` that act like the functions of these names on tensors.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

Memory = TypeVar("Memory")
State = TypeVar("State")


class Choices(Protocol):
    """Source positions that hard attention has sampled in training; REINFORCE trains their distribution."""

    @property
    def logp(self) -> Tensor:
        """Log-probability of the sampled positions, (B, T)."""

    @property
    def value(self) -> Tensor:
        """Baseline of REINFORCE: the return expected before sampling, (B, T)."""

    @property
    def entropy(self) -> Tensor | None:
        """Weighted entropy of the choice, (B, T), which the loss maximises; None: not a part of the loss."""

    @property
    def average(self) -> Tensor | None:
        """Moving average of the returns, (1,), which the loss updates in place; None: there is none."""


class Features(Protocol):
    """Input of the loss; each model package defines its own NamedTuple."""

    @property
    def hidden(self) -> Tensor:
        """Input of the model's ``output`` layer, (B, T, D)."""

    @property
    def choices(self) -> Choices | None:
        """What hard attention has sampled; None without it and in evaluation."""


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
                all are real. The models of this project take 0 and 1 of any type too, and reject other masks
                with a ValueError.
            tgt_in: target ids, beginning with the begin-of-sentence id, (B, T).
            src_lengths: number of real source tokens of each sentence, on the CPU, (B,), for models that
                would otherwise wait for a GPU to read it from the mask; None: it is in the mask alone.
        """

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Memory:
        """Encode src (B, S) with src_mask (B, S); every tensor of the memory has one row per sentence."""

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Build the state before the first token.

        Args:
            memory: result of ``encode``.
            beam: number of hypotheses per sentence, K.
            capacity: maximum number of tokens per hypothesis.
        """

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Decode one position.

        Args:
            tokens: the previous token of each hypothesis, (B, K).
            state: the state before these tokens; it must not be used afterwards.
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
    """A model, or a module of one, that computes something else in the first updates of training."""

    def begin_update(self, update: int) -> None:
        """Prepare for an update, counted from 1."""


def select(tree: Any, parents: Tensor) -> Any:
    """Reorder the hypotheses of a state.

    Args:
        tree: a state, or a part of one.
        parents: index of the hypothesis that hypothesis k of sentence b continues, (B, K).

    Returns:
        The reordered state, of the same structure.
    """
    if isinstance(tree, Tensor):
        index = parents.reshape(parents.shape + (1,) * (tree.dim() - 2)).expand(-1, -1, *tree.shape[2:])
        return tree.gather(1, index)
    if isinstance(tree, tuple):
        return _rebuild(tree, [select(part, parents) for part in tree])
    return tree.select(parents)


def keep(tree: Any, rows: Tensor) -> Any:
    """Drop finished sentences.

    Args:
        tree: a memory or a state, or a part of one.
        rows: indices of the sentences to keep, (B',).

    Returns:
        The memory or state of these sentences, of the same structure.
    """
    if isinstance(tree, Tensor):
        return tree.index_select(0, rows)
    if isinstance(tree, tuple):
        return _rebuild(tree, [keep(part, rows) for part in tree])
    return tree.keep(rows)


def _rebuild(tree: tuple[Any, ...], parts: list[Any]) -> tuple[Any, ...]:
    """Build a tuple of the type of ``tree`` from other parts."""
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def attends_to_source(layer: str) -> bool:
    """Return whether a layer of ``attention`` attends to the source: "cross", or "cross.0" of several."""
    return layer.split(".")[0] == "cross"
