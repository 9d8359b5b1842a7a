"""The recurrent encoder.

Shapes: B sentences, S source positions, E encoder state size (all directions), D directions, L layers.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .config import Seq2SeqConfig
from .self_attention import EncoderSelfAttention
from .stack import RecurrentStack

READS_FORWARD = {"both": (True, False), "forward": (True,), "backward": (False,)}
"""From ``Seq2SeqConfig.direction`` to whether each of the encoder's directions reads from left to right."""


class EncoderOutput(NamedTuple):
    """What an encoder hands to a decoder."""

    states: Tensor
    """One vector a source position, in source order, (B, S, E)."""
    mask: Tensor
    """True for real tokens, (B, S)."""
    summary: Tensor
    """One vector a sentence, (B, E'), from which a decoder may start."""
    own: Tensor | None = None
    """Weights of each position on those read before it, (B, D, S, S), where the encoder attends to itself."""


class Encoder(nn.Module):
    """An LSTM or GRU, one-way or both ways, that never reads padding: Bahdanau et al. 2015, appendix A.2.1.

    With self-attention its states are the joined ones of ``SelfAttention``, while the summary remains that of
    the recurrence.
    """

    def __init__(self, config: Seq2SeqConfig, vocabulary: int) -> None:
        super().__init__()
        directions = READS_FORWARD[config.direction]
        size = config.states_size // len(directions)
        self.reverse, self.dropout = config.direction == "backward", config.dropout
        self.embedding = nn.Embedding(vocabulary, config.embedding_size)
        self.rnn = RecurrentStack(config, config.embedding_size, size, bidirectional=len(directions) == 2)
        attends = config.self_attention in ("encoder", "both")
        self.own = EncoderSelfAttention(size, directions) if attends else None
        self.num_layers, self.state_size = config.num_layers, config.states_size
        self.summary_size = config.num_layers * config.states_size * (2 if config.cell == "lstm" else 1)

    def forward(self, src: Tensor, mask: Tensor) -> EncoderOutput:
        """Read src (B, S), right-padded; mask (B, S) has at least one True a row.

        The summary is the final h (and c of an LSTM) of both directions, joined, layer after layer.
        """
        lengths = mask.sum(1)
        if self.reverse:
            src = src.gather(1, reversal_index(lengths, src.size(1)))
        embedded = dropout(self.embedding(src), self.dropout, self.training)
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, final = self.rnn(packed)
        states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=src.size(1))
        if self.reverse:
            states = states.gather(1, reversal_index(lengths, src.size(1)).unsqueeze(2).expand_as(states))
        summary = torch.cat([_by_layer(part, self.num_layers) for part in final], dim=2).flatten(1)
        if self.own is None:
            return EncoderOutput(states, mask, summary)
        joined, weights = self.own(states, mask)
        return EncoderOutput(joined, mask, summary, weights)


def reversal_index(lengths: Tensor, size: int) -> Tensor:
    """Index that turns round the first lengths[b] of ``size`` positions and leaves the rest; (B, size)."""
    position = torch.arange(size, device=lengths.device)
    mirrored = lengths.unsqueeze(1) - 1 - position
    return mirrored.where(mirrored >= 0, position)


def _by_layer(final: Tensor, layers: int) -> Tensor:
    """Final states (L * D, B, E / D) as (B, L, E), the directions joined."""
    return final.view(layers, -1, *final.shape[1:]).permute(2, 0, 1, 3).flatten(2)
