"""The decoder: causal self-attention, and attention to the states of any encoder.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width.
Masks are bool, True = may be attended.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .attention import Attend, record_weights
from .cache import Memory, State, empty_state
from .config import TransformerConfig
from .layers import STANDARD, DecoderLayer, Parts, final_norm
from .mask_patterns import attend_to_source
from .masks import restrict
from .positions import Distances, attention_positions, place_below


class Decoder(nn.Module):
    """N layers over embedded target tokens and a memory: Vaswani et al. 2017, figure 1, right."""

    def __init__(
        self,
        config: TransformerConfig,
        embedding: nn.Embedding,
        memory_size: int | None = None,
        parts: Parts = STANDARD,
    ) -> None:
        """Build the layers.

        Args:
            config: gives sizes and options.
            embedding: the target embedding.
            memory_size: width of the encoder's states; None means ``d_model``.
            parts: position encoding, attention function and residual connection.
        """
        super().__init__()
        self.table, self.place = embedding, parts.positional_embedding(config)
        self.attend = parts.attention_function(config)
        self.order = attention_positions(config)
        self.mask_pattern = parts.mask_pattern("decoder_mask", config)
        self.cross_pattern = parts.mask_pattern("cross_mask", config)
        layers = nn.ModuleList(DecoderLayer(config, memory_size, parts) for _ in range(config.decoder_layers))
        self.layers = cast("Sequence[DecoderLayer]", layers)  # ModuleList does not know its element type
        self.norm = final_norm(config)
        self.cache_size = max(config.attention_size, config.values_size)

    def remember(self, states: Tensor, mask: Tensor) -> Memory:
        """Project encoder states to the keys and values of every layer, once per sentence.

        Args:
            states: encoder states, (B, S, memory_size).
            mask: True at real source tokens, (B, S).

        Returns:
            The memory for ``forward`` and ``step``.
        """
        return Memory(tuple(layer.cross.remember(states) for layer in self.layers), mask[:, None, None, :])

    def forward(self, tgt_in: Tensor, memory: Memory, *, attend: Attend | None = None) -> Tensor:
        """Run all target positions at once; position t depends on tokens 0 to t.

        Args:
            tgt_in: ids, (B, T).
            memory: result of ``remember``.
            attend: used in this call instead of ``parts.attend``.

        Returns:
            The states, (B, T, D).
        """
        positions = torch.arange(tgt_in.size(1), device=tgt_in.device)
        end = tgt_in.size(1)
        x = place_below(end, self.place, self.table(tgt_in), positions)
        own_mask, distances = self._relate(positions, positions, end, x)
        mask = self._source_mask(memory, positions)
        for layer, source in zip(self.layers, memory.layers, strict=True):
            x = layer(x, source, mask, attend, own_mask, distances)
        hidden: Tensor = self.norm(x)
        return hidden

    def attention(self, tgt_in: Tensor, memory: Memory) -> dict[str, Tensor]:
        """Compute the attention weights of every layer; arguments as for ``forward``.

        Returns:
            The weights by name, "decoder.<layer>" (B, H, T, T) and "cross.<layer>" (B, H, T, S).
        """
        weights: list[Tensor] = []
        self(tgt_in, memory, attend=record_weights(self.attend, weights))
        names = [f"{kind}.{layer}" for layer in range(len(self.layers)) for kind in ("decoder", "cross")]
        return dict(zip(names, weights, strict=True))

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Build the state before the first token.

        Args:
            memory: result of ``remember``.
            beam: number of hypotheses per sentence, K.
            capacity: maximum number of tokens per hypothesis.
        """
        shape = (memory.mask.size(0), beam, self.cache_size)
        return empty_state(memory.layers[0].keys, len(self.layers), shape, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Run the next target position.

        Args:
            tokens: the next token of each hypothesis, (B, K).
            state: the state before these tokens; it is changed in place.
            memory: result of ``remember``.

        Returns:
            The states of the new position (B, K, D), and the same state object.
        """
        end = state.length + 1
        position = torch.arange(state.length, end, device=tokens.device)
        x = place_below(end, self.place, self.table(tokens), position)
        own_mask, distances = None, None
        if self.order is not None or self.mask_pattern is not None:
            own_mask, distances = self._relate(position, torch.arange(end, device=tokens.device), end, x)
        mask = self._source_mask(memory, position)
        for layer, source, cache in zip(self.layers, memory.layers, state.layers, strict=True):
            x = layer.step(x, source, mask, cache, own_mask, distances)
        return self.norm(x), state

    def _relate(
        self, queries: Tensor, keys: Tensor, end: int, like: Tensor
    ) -> tuple[Tensor | None, Distances | None]:
        """Return mask or bias, and distances, of self-attention from positions (Q,) to positions (S,)."""
        mask, distances = None, None
        if self.mask_pattern is not None:
            visible = keys <= queries.unsqueeze(-1)
            mask = restrict(visible, self.mask_pattern(queries, keys))
        if self.order is not None:
            mask, distances = self.order(queries, keys, end, mask, like)
        return mask, distances

    def _source_mask(self, memory: Memory, positions: Tensor) -> Tensor:
        """Return which source positions may be attended from target positions (T,)."""
        if self.cross_pattern is None:
            return memory.mask
        return restrict(memory.mask, attend_to_source(self.cross_pattern, positions, memory.mask))
