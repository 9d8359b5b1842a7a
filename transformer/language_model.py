"""An autoregressive language model: a decoder without a source.

Shapes: B texts, K hypotheses each, T positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

import torch
from torch import Tensor, nn

from .attention import Attend, record_weights
from .cache import State, empty_state
from .config import DecoderOnlyConfig
from .encoder import LayerStack
from .layers import STANDARD, Parts
from .masks import causal_mask, combine_masks, general_mask, restrict
from .model import build_output_layer, initialise
from .positions import place_below


class LanguageModel(LayerStack):
    """p(x) = prod_t p(x_t+1 | x_0, ..., x_t): a decoder with no source to attend to (Liu et al. 2018)."""

    def __init__(self, config: DecoderOnlyConfig, vocabulary: int, parts: Parts = STANDARD) -> None:
        """Build the model with fresh weights.

        Args:
            config: sizes and options; ``tie`` "all" means the same as "output".
            vocabulary: size of the vocabulary.
            parts: position encoding, attention function, mask and residual connection.

        Raises:
            ValueError: a mask is for a source.
        """
        for name in ("encoder_mask", "cross_mask"):
            if getattr(parts, name) is not None or getattr(config, name) != "full":
                raise ValueError(f"{name} has no effect in a language model, which has no source")
        embedding = nn.Embedding(vocabulary, config.d_model)
        super().__init__(config, config.num_layers, embedding, parts, causal=True)
        self.config = config
        self.mask_pattern = parts.mask_pattern("decoder_mask", config)
        self.output = build_output_layer(config, embedding)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw fresh weights; see ``transformer.model.initialise``."""
        initialise(self, self.output)

    def forward(self, tokens: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Compute the logits of the token after each position.

        Position t depends on tokens 0 to t, so padding on the right needs no mask.

        Args:
            tokens: ids, (B, T).
            allowed: further restriction, True or 1 where position t may attend to position s: (T, T),
                (B, T, T) or (B, H, T, T).

        Returns:
            The logits, (B, T, V).

        Raises:
            ValueError: ``allowed`` is not such a mask, or leaves a position nothing to attend to.
        """
        logits: Tensor = self.output(self.states(tokens, allowed))
        return logits

    def states(self, tokens: Tensor, allowed: Tensor | None = None, attend: Attend | None = None) -> Tensor:
        """Compute the input of ``output`` at all positions.

        Args:
            tokens: ids, (B, T).
            allowed: as for ``forward``.
            attend: used in this call instead of ``parts.attend``.

        Returns:
            The states, (B, T, D).
        """
        length, device = tokens.size(1), tokens.device
        if allowed is not None:
            allowed = general_mask(allowed, tokens.size(0), self.num_heads)
            allowed = combine_masks(causal_mask(length, device), allowed)
        positions = torch.arange(length, device=device)
        if self.mask_pattern is not None:
            visible = causal_mask(length, device) if allowed is None else allowed
            allowed = restrict(visible, self.mask_pattern(positions, positions))
        x = place_below(length, self.place, self.table(tokens), positions)
        return self.run(x, positions, length, allowed, attend)

    def attention(self, tokens: Tensor, allowed: Tensor | None = None) -> dict[str, Tensor]:
        """Compute the attention weights of every layer; arguments as for ``forward``.

        Returns:
            The weights by name, "decoder.<layer>", (B, H, T, T) each.
        """
        weights: list[Tensor] = []
        self.states(tokens, allowed, record_weights(self.attend, weights))
        return {f"decoder.{layer}": layer_weights for layer, layer_weights in enumerate(weights)}

    def init_state(self, sentences: int, beam: int, capacity: int) -> State:
        """Build the state before the first token.

        Args:
            sentences: number of texts B.
            beam: number of hypotheses K per text.
            capacity: maximum number of tokens per hypothesis.

        Returns:
            A state of length 0.
        """
        shape = (sentences, beam, max(self.config.attention_size, self.config.values_size))
        return empty_state(self.table.weight, len(self.layers), shape, capacity)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode one position.

        Args:
            tokens: the previous token of each hypothesis, (B, K).
            state: the state before these tokens; it must not be used afterwards.

        Returns:
            The logits of the next token (B, K, V), and the next state.
        """
        end = state.length + 1
        position = torch.arange(state.length, end, device=tokens.device)
        x = place_below(end, self.place, self.table(tokens), position)
        mask, distances = None, None
        if self.order is not None or self.mask_pattern is not None:
            keys = torch.arange(end, device=tokens.device)
            if self.mask_pattern is not None:
                mask = restrict(keys <= position.unsqueeze(-1), self.mask_pattern(position, keys))
            if self.order is not None:
                mask, distances = self.order(position, keys, end, mask, x)
        return self.output(self.advance(x, state, None, mask, distances)), state
