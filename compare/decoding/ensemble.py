"""Ensembles: several models of one vocabulary that translate together.

Shapes: B sentences, K hypotheses each, S source positions, V vocabulary.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from compare.decoding.search import log_probabilities
from compare.protocol import EncoderDecoder


class Ensemble(nn.Module):
    """p(y) = 1/M sum_m p_m(y) at each step, over M models: the arithmetic mean of their probabilities.

    Has what search and sampling need of a model: ``encode``, ``init_state`` and ``step``. Memory and state
    are tuples with one entry per member, so each member reads the common hypotheses with its own decoder. It
    cannot be trained, and has no attention of its own.
    """

    def __init__(self, members: Sequence[EncoderDecoder[Any, Any]]) -> None:
        """Combine models.

        Args:
            members: at least one model; all have the same vocabularies.

        Raises:
            ValueError: no members.
        """
        super().__init__()
        if not members:
            raise ValueError("an ensemble needs at least one member")
        self.members = nn.ModuleList(members)  # type: ignore[arg-type]  # models are modules

    def encode(self, src: Tensor, src_mask: Tensor | None) -> tuple[Any, ...]:
        """Encode src (B, S) with src_mask (B, S) by every member."""
        return tuple(member.encode(src, src_mask) for member in self._models())

    def init_state(self, memory: tuple[Any, ...], beam: int, capacity: int) -> tuple[Any, ...]:
        """Build the states before the first token; arguments as in ``compare.protocol``."""
        return tuple(
            member.init_state(part, beam, capacity)
            for member, part in zip(self._models(), memory, strict=True)
        )

    def step(
        self, tokens: Tensor, state: tuple[Any, ...], memory: tuple[Any, ...]
    ) -> tuple[Tensor, tuple[Any, ...]]:
        """Decode one position.

        Args:
            tokens: the previous token of each hypothesis, (B, K).
            state: the states before these tokens; they must not be used afterwards.
            memory: result of ``encode``.

        Returns:
            The logarithm of the mean probabilities, in fp32 or better, (B, K, V), and the next states.
        """
        logps, states = [], []
        for member, part, source in zip(self._models(), state, memory, strict=True):
            logits, next_state = member.step(tokens, part, source)
            logps.append(log_probabilities(logits))
            states.append(next_state)
        return mean_probability(logps), tuple(states)

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Return no weights: those of different members do not compare."""
        return {}

    def _models(self) -> list[EncoderDecoder[Any, Any]]:
        return list(self.members)  # type: ignore[arg-type]


def mean_probability(logps: Sequence[Tensor]) -> Tensor:
    """Return log(1/M sum_m exp(logps[m])) of M tensors of one shape."""
    return torch.stack(list(logps)).logsumexp(dim=0) - math.log(len(logps))
