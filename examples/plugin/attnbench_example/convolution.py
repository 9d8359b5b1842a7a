"""A convolutional encoder with a recurrent decoder; compare Gehring et al. 2017, arXiv:1611.02344.

Shapes: B sentences, K hypotheses each, S source and T target positions, E size of embeddings and of encoder
states, H size of decoder states, V target vocabulary. Masks are bool, True = a real token.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class ConvGruConfig:
    """Settings of the model; each is a key of a ``[[models]]`` table."""

    embedding_size: int = 256
    """Size E of embeddings and of encoder states."""
    hidden_size: int = 512
    """Size H of decoder states."""
    encoder_layers: int = 3
    """Convolutions of the encoder."""
    kernel_size: int = 3
    """Width of each convolution in words, odd."""
    dropout: float = 0.2
    """Probability of dropping a unit of the embeddings and of the readout."""

    def __post_init__(self) -> None:
        """Reject values that cannot be built, before anything is trained."""
        for name in ("embedding_size", "hidden_size", "encoder_layers", "kernel_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")


class Features(NamedTuple):
    """Input of the output layer; ``choices`` are those of hard attention, which this model does not have."""

    hidden: Tensor
    choices: None = None


class Memory(NamedTuple):
    """Source sentences: one row each, computed once."""

    values: Tensor
    """Encoder states h, (B, S, E)."""
    keys: Tensor
    """W h, (B, S, H)."""
    mask: Tensor
    """True at real tokens, (B, S)."""
    start: Tensor
    """First decoder state, (B, H)."""


class ConvGru(nn.Module):
    """h' = h + tanh(conv(h)); s(t) = GRU(y(t-1), s(t-1)); e = s . W h; readout tanh(U [s; context])."""

    def __init__(self, config: ConvGruConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        super().__init__()
        embedding, hidden = config.embedding_size, config.hidden_size
        self.config = config
        self.source = nn.Embedding(src_vocabulary, embedding)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(embedding, embedding, config.kernel_size, padding=config.kernel_size // 2)
            for _ in range(config.encoder_layers)
        )
        self.key = nn.Linear(embedding, hidden, bias=False)
        self.bridge = nn.Linear(embedding, hidden)
        self.target = nn.Embedding(tgt_vocabulary, embedding)
        self.cell = nn.GRU(embedding, hidden, batch_first=True)
        self.readout = nn.Linear(hidden + embedding, hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(hidden, tgt_vocabulary)

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Return the logits of src (B, S) and tgt_in (B, T), (B, T, V)."""
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def features(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Compute the input of ``output`` at all positions of tgt_in (B, T); the mask has the lengths."""
        memory = self.encode(src, src_mask)
        states, _ = self.cell(self.dropout(self.target(tgt_in)), memory.start.unsqueeze(0))
        return Features(self._read(states, memory))

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Memory:
        """Encode src (B, S), where src_mask (B, S) is True; padding stays 0 after every layer."""
        mask = torch.ones_like(src, dtype=torch.bool) if src_mask is None else src_mask.bool()
        real = mask.unsqueeze(2)
        states = self.dropout(self.source(src)) * real
        for convolution in self.convolutions:
            states = (states + convolution(states.transpose(1, 2)).transpose(1, 2).tanh()) * real
        mean = states.sum(1) / real.sum(1)
        return Memory(states, self.key(states), mask, self.bridge(mean).tanh())

    def init_state(self, memory: Memory, beam: int, capacity: int) -> tuple[Tensor]:
        """Return the decoder state before the first token, (B, K, H); it does not grow with ``capacity``."""
        return (memory.start.unsqueeze(1).expand(-1, beam, -1),)

    def step(self, tokens: Tensor, state: tuple[Tensor], memory: Memory) -> tuple[Tensor, tuple[Tensor]]:
        """Return the logits after one more token of each hypothesis (B, K), (B, K, V), and the next state."""
        (before,) = state
        rows = tokens.numel()  # each hypothesis is a sequence of one token
        embedded = self.dropout(self.target(tokens)).reshape(rows, 1, -1)
        _, after = self.cell(embedded, before.reshape(1, rows, -1).contiguous())
        states = after.view(*tokens.shape, -1)
        return self.output(self._read(states, memory)), (states,)

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Return the attention weights of one head, (B, 1, T, S)."""
        memory = self.encode(src, src_mask)
        states, _ = self.cell(self.dropout(self.target(tgt_in)), memory.start.unsqueeze(0))
        return {"cross": _weights(states, memory).unsqueeze(1)}

    def _read(self, states: Tensor, memory: Memory) -> Tensor:
        """Combine decoder states (B, T or K, H) with their contexts, (B, T or K, H)."""
        context = _weights(states, memory) @ memory.values
        hidden: Tensor = self.dropout(self.readout(torch.cat((states, context), dim=2)).tanh())
        return hidden


def _weights(states: Tensor, memory: Memory) -> Tensor:
    """Return softmax(s . W h) over the real source tokens, (B, T or K, S)."""
    scores = states @ memory.keys.transpose(1, 2)
    return scores.masked_fill(~memory.mask.unsqueeze(1), float("-inf")).softmax(dim=2)


def count_multiply_adds(model: ConvGru, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds of one sentence pair without the output layer."""
    config = model.config
    embedding, hidden = config.embedding_size, config.hidden_size
    encoder = src_len * config.encoder_layers * config.kernel_size * embedding**2
    once = src_len * embedding * hidden + embedding * hidden  # keys; first state
    cell = 3 * hidden * (embedding + hidden)
    attention = src_len * (hidden + embedding)  # scores, context
    readout = (hidden + embedding) * hidden
    return encoder + once + tgt_len * (cell + attention + readout)
