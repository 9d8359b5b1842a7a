"""A stack of self-attention layers, and the encoder.

Shapes: B sentences, K hypotheses each, S source positions, T positions, H heads, D model width.
Masks are bool, True = may be attended.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .attention import Attend, KeysValues, record_weights
from .cache import Memory, State
from .config import LayerConfig, TransformerConfig
from .layers import STANDARD, EncoderLayer, Parts, final_norm
from .masks import combine_masks, general_mask, real_tokens, restrict
from .positions import Distances, attention_positions, place_below


class LayerStack(nn.Module):
    """N self-attention layers over embedded tokens; base class of Encoder, DecoderOnly and LanguageModel."""

    def __init__(
        self,
        config: LayerConfig,
        num_layers: int,
        embedding: nn.Embedding,
        parts: Parts,
        *,
        causal: bool = False,
    ) -> None:
        """Build the layers.

        Args:
            config: gives sizes and options.
            num_layers: number of layers N.
            embedding: the token embedding.
            parts: position encoding, attention function and residual connection.
            causal: whether position t attends to positions 0 to t only.
        """
        super().__init__()
        self.table, self.place = embedding, parts.positional_embedding(config)
        self.attend = parts.attention_function(config)
        self.order = attention_positions(config)
        layers = nn.ModuleList(EncoderLayer(config, parts, causal=causal) for _ in range(num_layers))
        self.layers = cast("Sequence[EncoderLayer]", layers)  # ModuleList does not know its element type
        self.norm = final_norm(config)
        self.num_heads = config.num_heads

    def run(
        self,
        x: Tensor,
        positions: Tensor,
        end: int,
        mask: Tensor | None,
        attend: Attend | None = None,
        stored: list[KeysValues] | None = None,
    ) -> Tensor:
        """Apply all layers to all positions.

        Args:
            x: embedded tokens, (B, T, D).
            positions: their positions, (T,) or (B, T), of which only "rotary", "relative" and "alibi" need to
                know here.
            end: a number above all positions.
            mask: bool, broadcasts to (B, H, T, T); None allows all.
            attend: used in this call instead of ``parts.attend``.
            stored: receives the keys and values of each layer.

        Returns:
            The states, (B, T, D).
        """
        distances = None
        if self.order is not None:
            mask, distances = self.order(positions, positions, end, mask, x)
        for layer in self.layers:
            x = layer(x, mask, attend, distances, stored)
        states: Tensor = self.norm(x)
        return states

    def advance(
        self,
        x: Tensor,
        state: State,
        memory: Memory | None = None,
        mask: Tensor | None = None,
        distances: Distances | None = None,
    ) -> Tensor:
        """Apply all layers to the next token of each hypothesis.

        Args:
            x: embedded tokens, (B, K, D).
            state: cached keys and values, to which those of x are appended.
            memory: keys and values of a prefix, if there is one.
            mask: see ``SelfAttention.step``.
            distances: of the positions, for rotary and relative positions.

        Returns:
            The states, (B, K, D).
        """
        prefixes, prefix_mask = (memory.layers, memory.mask) if memory else ([None] * len(self.layers), None)
        for layer, cache, prefix in zip(self.layers, state.layers, prefixes, strict=True):
            x = layer.step(x, cache, prefix, prefix_mask, mask, distances)
        states: Tensor = self.norm(x)
        return states


class Encoder(LayerStack):
    """N layers over embedded source tokens: Vaswani et al. 2017, figure 1, left."""

    def __init__(self, config: TransformerConfig, embedding: nn.Embedding, parts: Parts = STANDARD) -> None:
        super().__init__(config, config.encoder_layers, embedding, parts)
        self.mask_pattern = parts.mask_pattern("encoder_mask", config)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        *,
        allowed: Tensor | None = None,
        attend: Attend | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Encode the sources.

        Args:
            src: ids, (B, S).
            src_mask: True or 1 at real tokens, padding on the right, (B, S); None: all are real.
            allowed: further restriction, True or 1 where position i may attend to position j: (S, S),
                (B, S, S) or (B, H, S, S). Padding is never attended.
            attend: used in this call instead of ``parts.attend``.

        Returns:
            The states (B, S, D), the mask as bool, and the mean of each sentence's real states (B, D).

        Raises:
            ValueError: ``src_mask`` or ``allowed`` is not such a mask, or a token has nothing to attend to.
        """
        src_mask = real_tokens(src, src_mask)
        mask, queries = src_mask[:, None, None, :], src_mask[:, None, :, None]
        positions = torch.arange(src.size(1), device=src.device)
        if allowed is not None:
            allowed = general_mask(allowed, src.size(0), self.num_heads)
            mask = combine_masks(mask, allowed, queries)
        if self.mask_pattern is not None:  # positions of padding, which nobody reads, are not restricted
            mask = restrict(mask, self.mask_pattern(positions, positions) | ~queries)
        end = src.size(1)
        x = place_below(end, self.place, self.table(src), positions)
        states = self.run(x, positions, end, mask, attend)
        real = src_mask.unsqueeze(-1).to(states.dtype)
        return states, src_mask, (states * real).sum(1) / real.sum(1)

    def attention(
        self, src: Tensor, src_mask: Tensor | None = None, *, allowed: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Compute the attention weights of every layer; arguments as for ``forward``.

        Returns:
            The weights by name, "encoder.<layer>", (B, H, S, S) each.
        """
        weights: list[Tensor] = []
        self(src, src_mask, allowed=allowed, attend=record_weights(self.attend, weights))
        return {f"encoder.{layer}": layer_weights for layer, layer_weights in enumerate(weights)}
