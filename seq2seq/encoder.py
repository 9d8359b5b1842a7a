"""The recurrent encoder.

Shapes: B sentences, S source positions, E encoder state size (both directions), L layers.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .cells import build_rnn
from .config import Seq2SeqConfig


class Encoded(NamedTuple):
    """What an encoder hands to a decoder."""

    states: Tensor
    """One vector a source position, in source order, (B, S, E)."""
    mask: Tensor
    """True for real tokens, (B, S)."""
    summary: Tensor
    """One vector a sentence, (B, E'), from which a decoder may start."""


class Encoder(nn.Module):
    """A (bidirectional) LSTM or GRU that never reads padding: Bahdanau et al. 2015, appendix A.2.1."""

    def __init__(self, config: Seq2SeqConfig, vocabulary: int) -> None:
        super().__init__()
        directions = 2 if config.bidirectional else 1
        self.reverse, self.dropout = config.reverse_source, config.dropout
        self.embedding = nn.Embedding(vocabulary, config.embedding_size)
        self.rnn = build_rnn(
            config, config.embedding_size, config.hidden_size // directions, config.bidirectional
        )
        self.state_size = config.hidden_size
        self.summary_size = config.num_layers * config.hidden_size * (2 if config.cell == "lstm" else 1)

    def forward(self, src: Tensor, mask: Tensor) -> Encoded:
        """Read src (B, S), right-padded; mask (B, S) has at least one True a row.

        The summary is the final h (and c of an LSTM) of both directions, joined, layer after layer.
        """
        lengths = mask.sum(1)
        if self.reverse:
            src = src.gather(1, reversal(lengths, src.size(1)))
        embedded = dropout(self.embedding(src), self.dropout, self.training)
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, final = self.rnn(packed)
        states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=src.size(1))
        if self.reverse:
            states = states.gather(1, reversal(lengths, src.size(1)).unsqueeze(2).expand_as(states))
        layers = [_by_layer(part, self.rnn.num_layers) for part in _parts(final)]
        return Encoded(states, mask, torch.cat(layers, dim=2).flatten(1))


def reversal(lengths: Tensor, size: int) -> Tensor:
    """Index that turns round the first lengths[b] of ``size`` positions and leaves the rest; (B, size)."""
    position = torch.arange(size, device=lengths.device)
    mirrored = lengths.unsqueeze(1) - 1 - position
    return mirrored.where(mirrored >= 0, position)


def _by_layer(final: Tensor, layers: int) -> Tensor:
    """Final states (L * directions, B, H') as (B, L, E), the directions joined."""
    return final.view(layers, -1, *final.shape[1:]).permute(2, 0, 1, 3).flatten(2)


def _parts(final: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """The final states of an RNN as a tuple: (h,) of a GRU, (h, c) of an LSTM."""
    return final if isinstance(final, tuple) else (final,)
