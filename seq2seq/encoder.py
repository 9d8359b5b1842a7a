"""The recurrent encoder.

Shapes: B sentences, S source positions, L layers, D directions (1 or 2), E size of an encoder state (all
directions concatenated).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .attention import EncoderSelfAttention
from .cells import MIN_CELLS
from .config import Seq2SeqConfig
from .fast import Packing, Padding, plan_layout, reversal_index
from .masks import check_lengths, real_tokens
from .stack import RecurrentStack, embed_tokens

READS_FORWARD = {"both": (True, False), "forward": (True,), "backward": (False,), "both-bottom": (True,)}
"""By ``Seq2SeqConfig.direction``: for each direction of the top layer, whether it reads from the left."""


class EncoderOutput(NamedTuple):
    """Output of an encoder, which a decoder starts from."""

    states: Tensor
    """Encoder states h, one per source position, in source order, (B, S, E)."""
    mask: Tensor
    """True for real tokens, (B, S)."""
    summary: Tensor
    """One vector per sentence, from which the decoder computes its initial state, (B, summary size)."""
    self_attention: Tensor | None = None
    """Weights of each position on those read before it, (B, D, S, S); None without self-attention."""


class Encoder(nn.Module):
    """An LSTM or GRU over the source, in one or both directions: Bahdanau et al. 2015, appendix A.2.1.

    It never reads padding. Direction "backward" reads the source from its end (Sutskever et al. 2014, section
    3.3). With self-attention, the states are those that ``SelfAttention`` returns, while the summary is still
    that of the recurrence.
    """

    def __init__(self, config: Seq2SeqConfig, vocabulary: int) -> None:
        """Create an encoder.

        Args:
            config: cell, sizes, direction, dropout and self-attention.
            vocabulary: number of source token ids.
        """
        super().__init__()
        directions = READS_FORWARD[config.direction]
        size = config.states_size // len(directions)
        self.config, self.reverse = config, config.direction == "backward"
        self.embedding = nn.Embedding(vocabulary, config.embedding_size)
        self.rnn = RecurrentStack(
            config,
            config.embedding_size,
            size,
            bidirectional=len(directions) == 2,
            num_layers=config.encoder_depth,
            both_at_bottom=config.direction == "both-bottom",
        )
        attends = config.self_attention in ("encoder", "both")
        self.own = EncoderSelfAttention(size, directions) if attends else None
        self.num_layers, self.state_size = config.encoder_depth, config.states_size
        self.summary_size = self.num_layers * config.states_size * (2 if config.has_cell_state else 1)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_lengths: Tensor | None = None
    ) -> EncoderOutput:
        """Read the source sentences.

        Args:
            src: token ids, padded on the right, (B, S).
            src_mask: True or 1 for real tokens, at least one per sentence, (B, S); None: all are real.
            src_lengths: number of real tokens of each sentence, on the CPU, (B,). None reads them from the
                mask, which waits for a GPU.

        Returns:
            States (B, S, E), 0 in the padding, and the summary (B, ``summary_size``). The summary is, layer
            by layer, the final h and then the final c of an LSTM, each with its directions concatenated;
            with direction "both-bottom" the bottom layer's are those of the direction from the right.

        Raises:
            ValueError: ``src_mask`` is not such a mask, or ``src_lengths`` are not its lengths.
        """
        mask = real_tokens(src, src_mask)
        lengths = mask.sum(1)
        if src_lengths is not None:
            check_lengths(src_lengths, lengths)
        if self.reverse:
            src = src.gather(1, reversal_index(lengths, src.size(1)))
        embedded = embed_tokens(self.embedding, src, self.config, self.training, time_dim=1)
        if self.config.cell in MIN_CELLS:  # whose scans need a rectangle
            layout: Packing | Padding = Padding(lengths)
        else:
            layout = plan_layout(lengths, src.size(1), src_lengths)
        outputs, final = self.rnn(layout.pack(embedded))
        states = layout.unpack(outputs, src.size(1))
        if self.reverse:
            states = states.gather(1, reversal_index(lengths, src.size(1)).unsqueeze(2).expand_as(states))
        summary = torch.cat([_by_layer(part, self.num_layers) for part in final], dim=2).flatten(1)
        if self.own is None:
            return EncoderOutput(states, mask, summary)
        states, weights = self.own(states, mask)
        return EncoderOutput(states, mask, summary, weights)


def _by_layer(final: Tensor, layers: int) -> Tensor:
    """Rearrange final states (L * D, B, E / D) to (B, L, E), the directions concatenated."""
    return final.view(layers, -1, *final.shape[1:]).permute(2, 0, 1, 3).flatten(2)
