"""Memory, state and output of a recurrent decoder.

Shapes: B sentences, K hypotheses per sentence, S source and T target positions, L layers, H size of a decoder
state, D size of the readout.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .attention import AttentionOutput, Past, Source


class Memory(NamedTuple):
    """Everything that the decoder reads of the source, one row per sentence."""

    source: Source
    """Keys, values and mask; without attention S is 0."""
    start: Tensor
    """Initial state of every layer, h and (LSTM) c concatenated, (B, L, H or 2 H)."""


class State(NamedTuple):
    """State of each hypothesis between two steps; parts that a model does not need have width 0."""

    h: Tensor
    """Hidden states, (B, K, L, H)."""
    c: Tensor
    """Cell states of an LSTM, (B, K, L, H or 0), float32 with 16-bit weights too."""
    feedback: Tensor
    """Output of the previous step that the next step reads: with placement "before" the decoder state that
    attends, (B, K, H); with input feeding the attentional vector, (B, K, D)."""
    position: Tensor
    """Number of tokens fed so far, long, (B, K)."""
    past: Tensor
    """Outputs of the RNN at all previous steps, for self-attention, (B, K, steps or 0, H)."""
    attended: Past | tuple[()] = ()
    """Attention weights of the earlier steps, (B, K, heads, S) each, if the attention reads them."""


class DecoderOutput(NamedTuple):
    """Output of a decoder for a whole target or for a single step."""

    readout: Tensor
    """Input of the output layer, (B, T, D)."""
    attention: AttentionOutput | None
    """Context vectors and weights of T queries to the source; None without attention."""
    self_attention: Tensor | None
    """Weights on the decoder's own earlier outputs, (B, 1, T, T); None without self-attention."""


def concatenate_steps(steps: Sequence[DecoderOutput]) -> DecoderOutput:
    """Concatenate the outputs of single steps along their query dimension."""
    if len(steps) == 1:
        return steps[0]
    attentions = [step.attention for step in steps if step.attention is not None]
    attention = None
    if attentions:
        attention = AttentionOutput(
            torch.cat([part.context for part in attentions], dim=1),
            torch.cat([part.weights for part in attentions], dim=2),
            _concatenate((part.choice_logp for part in attentions), dim=1),
            _concatenate((part.value for part in attentions), dim=1),
            _concatenate((part.entropy for part in attentions), dim=1),
        )
    readout = torch.cat([step.readout for step in steps], dim=1)
    self_attention = _concatenate((step.self_attention for step in steps), dim=2)
    return DecoderOutput(readout, attention, self_attention)


def _concatenate(parts: Iterable[Tensor | None], dim: int) -> Tensor | None:
    """Concatenate the tensors among ``parts``; return None if there are none."""
    tensors = [part for part in parts if part is not None]
    return torch.cat(tensors, dim) if tensors else None
