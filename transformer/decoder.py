"""The decoder: causal self-attention, and attention to the states of whatever encoder there is.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .attention import Attend, recording
from .config import TransformerConfig
from .layers import DecoderLayer, final_norm
from .parts import STANDARD, Parts
from .state import Memory, State, empty_state


class Decoder(nn.Module):
    """N layers over embedded target tokens and a memory: Vaswani et al. 2017, figure 1, right."""

    def __init__(
        self,
        config: TransformerConfig,
        table: nn.Embedding,
        memory_size: int | None = None,
        parts: Parts = STANDARD,
    ) -> None:
        """Attend to encoder states of width ``memory_size``; ``d_model`` if left out."""
        super().__init__()
        self.table, self.place, self.attend = table, parts.place(config), parts.attend
        layers = nn.ModuleList(DecoderLayer(config, memory_size, parts) for _ in range(config.decoder_layers))
        self.layers = cast("Sequence[DecoderLayer]", layers)  # a ModuleList does not say of what
        self.norm = final_norm(config)
        self.attention_size = config.attention_size

    def remember(self, states: Tensor, mask: Tensor) -> Memory:
        """Project encoder states (B, S, memory_size) under mask (B, S) for every layer, once a sentence."""
        return Memory(tuple(layer.cross.remember(states) for layer in self.layers), mask[:, None, None, :])

    def forward(self, tgt_in: Tensor, memory: Memory, *, attend: Attend | None = None) -> Tensor:
        """Run the whole target tgt_in (B, T); returns (B, T, D). Position t sees tokens 0 to t.

        ``attend`` stands in for that of the model's parts.
        """
        x = self.place(self.table(tgt_in), torch.arange(tgt_in.size(1), device=tgt_in.device))
        for layer, source in zip(self.layers, memory.layers, strict=True):
            x = layer(x, source, memory.mask, attend)
        hidden: Tensor = self.norm(x)
        return hidden

    def attention(self, tgt_in: Tensor, memory: Memory) -> dict[str, Tensor]:
        """Give every layer's weights, "decoder.<layer>" (B, H, T, T) and "cross.<layer>" (B, H, T, S)."""
        found: list[Tensor] = []
        self(tgt_in, memory, attend=recording(self.attend, found))
        names = [f"{kind}.{n}" for n in range(len(self.layers)) for kind in ("decoder", "cross")]
        return dict(zip(names, found, strict=True))

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Make the state before the first token of ``beam`` hypotheses of up to ``capacity`` tokens."""
        shape = (memory.mask.size(0), beam, self.attention_size)
        return empty_state(memory.layers[0].keys, len(self.layers), shape, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed tokens (B, K); returns (B, K, D) and the state, which is the one given, changed in place."""
        x = self.place(self.table(tokens), torch.arange(state.length, state.length + 1, device=tokens.device))
        for layer, source, cache in zip(self.layers, memory.layers, state.layers, strict=True):
            x = layer.step(x, source, memory.mask, cache)
        return self.norm(x), state
