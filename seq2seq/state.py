"""What a recurrent decoder keeps and hands on.

Shapes: B sentences, K hypotheses each, S source and T target positions, L layers, H decoder state, D readout.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .attention import AttentionOutput, Source


class Memory(NamedTuple):
    """What the decoder keeps of the sources, one row a sentence."""

    source: Source
    """What it attends to; without attention S is 0 in it."""
    start: Tensor
    """First state of every layer, h and (LSTM) c, (B, L, H or 2 H)."""


class State(NamedTuple):
    """Where each hypothesis stands; a part that a model does without has width 0."""

    h: Tensor
    """Hidden states, (B, K, L, H)."""
    c: Tensor
    """Cell states of an LSTM, (B, K, L, H or 0)."""
    last: Tensor
    """What a step leaves for the next: the output that attends (placement "before"), (B, K, H), or the
    attentional vector (input feeding), (B, K, D)."""
    position: Tensor
    """Tokens fed so far, long, (B, K)."""
    past: Tensor
    """The RNN's outputs at the steps so far, for self-attention, (B, K, steps or 0, H)."""


class DecoderOutput(NamedTuple):
    """What a run over a target finds."""

    readout: Tensor
    """Input of the output layer, (B, T, D)."""
    attended: AttentionOutput | None
    """What T queries found in the source; None without attention."""
    own: Tensor | None
    """Weights on the decoder's own earlier outputs, (B, 1, T, T); None without self-attention."""


def join(steps: Sequence[DecoderOutput]) -> DecoderOutput:
    """What was found step by step, as one run: all that is (B, Q, ...) is joined along Q."""
    if len(steps) == 1:
        return steps[0]
    found = [step.attended for step in steps if step.attended is not None]
    attended = None
    if found:
        attended = AttentionOutput(
            torch.cat([part.context for part in found], dim=1),
            torch.cat([part.weights for part in found], dim=2),
            _cat((part.choice_logp for part in found), dim=1),
            _cat((part.value for part in found), dim=1),
        )
    readout = torch.cat([step.readout for step in steps], dim=1)
    return DecoderOutput(readout, attended, _cat((step.own for step in steps), dim=2))


def _cat(parts: Iterable[Tensor | None], dim: int) -> Tensor | None:
    """Concatenate what is there; None where nothing is."""
    found = [part for part in parts if part is not None]
    return torch.cat(found, dim) if found else None
