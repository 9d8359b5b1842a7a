"""Self-attention alone: the stack that several models are, and the encoder.

Shapes: B sentences, K hypotheses each, S source positions, T positions, H heads, D model width.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .attention import Attend, recording
from .config import LayerConfig, TransformerConfig
from .layers import EncoderLayer, final_norm
from .masks import restrict
from .parts import STANDARD, Parts
from .state import Memory, State


class LayerStack(nn.Module):
    """Layers of self-attention over embedded tokens: what Encoder, LanguageModel and DecoderOnly share."""

    def __init__(
        self, config: LayerConfig, num_layers: int, table: nn.Embedding, parts: Parts, *, causal: bool = False
    ) -> None:
        super().__init__()
        self.table, self.place, self.attend = table, parts.place(config), parts.attend
        layers = nn.ModuleList(EncoderLayer(config, parts, causal=causal) for _ in range(num_layers))
        self.layers = cast("Sequence[EncoderLayer]", layers)  # a ModuleList does not say of what
        self.norm = final_norm(config)

    def run(self, x: Tensor, mask: Tensor | None, attend: Attend | None = None) -> Tensor:
        """Send x (B, T, D) through all layers, under a mask that broadcasts to (B, H, T, T)."""
        for layer in self.layers:
            x = layer(x, mask, attend)
        states: Tensor = self.norm(x)
        return states

    def advance(self, x: Tensor, state: State, memory: Memory | None = None) -> Tensor:
        """Send one more token x (B, K, D) of each hypothesis through, after a prefix if given."""
        prefixes, mask = (memory.layers, memory.mask) if memory else ([None] * len(self.layers), None)
        for layer, cache, prefix in zip(self.layers, state.layers, prefixes, strict=True):
            x = layer.step(x, cache, prefix, mask)
        states: Tensor = self.norm(x)
        return states


class Encoder(LayerStack):
    """N layers over embedded source tokens: Vaswani et al. 2017, figure 1, left."""

    def __init__(self, config: TransformerConfig, table: nn.Embedding, parts: Parts = STANDARD) -> None:
        super().__init__(config, config.encoder_layers, table, parts)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor,
        *,
        allowed: Tensor | None = None,
        attend: Attend | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read src (B, S), each position from both sides.

        Args:
            src: ids, (B, S).
            src_mask: real tokens, (B, S).
            allowed: a general mask M, True where position i may attend to j: (S, S), (B, S, S) or
                (B, H, S, S). Padding is never attended, whatever it says.
            attend: stands in for that of the model's parts.

        Returns:
            The states (B, S, D), ``src_mask`` as given, and the mean of each sentence's real states (B, D).
        """
        mask = src_mask[:, None, None, :]
        if allowed is not None:
            mask = restrict(mask, allowed, src_mask[:, None, :, None])
        positions = torch.arange(src.size(1), device=src.device)
        states = self.run(self.place(self.table(src), positions), mask, attend)
        real = src_mask.unsqueeze(-1).to(states.dtype)
        return states, src_mask, (states * real).sum(1) / real.sum(1)

    def attention(self, src: Tensor, src_mask: Tensor, *, allowed: Tensor | None = None) -> dict[str, Tensor]:
        """Give the weights of every layer, "encoder.<layer>" (B, H, S, S); arguments as for ``forward``."""
        found: list[Tensor] = []
        self(src, src_mask, allowed=allowed, attend=recording(self.attend, found))
        return {f"encoder.{n}": weights for n, weights in enumerate(found)}
