"""An autoregressive language model: a decoder without a source.

Shapes: B texts, K hypotheses each, T positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

import torch
from torch import Tensor, nn

from .attention import Attend, record_weights
from .config import DecoderOnlyConfig
from .layers import STANDARD, EncoderLayer, Parts
from .masks import attend_to_past
from .model import LayerStack, build_output_layer, initialise
from .multihead import State, empty_state


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
        layers = (EncoderLayer(config, parts, causal=True) for _ in range(config.num_layers))
        super().__init__(config, layers, embedding, parts, "decoder_mask")
        self.config = config
        self.output = build_output_layer(config, embedding)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw fresh weights; see ``transformer.model.initialise``."""
        initialise(self, self.output)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, T, V) of the token after each position of tokens (B, T).

        Position t depends on tokens 0 to t, so padding on the right needs no mask.
        """
        logits: Tensor = self.output(self.states(tokens))
        return logits

    def states(self, tokens: Tensor, attend: Attend | None = None) -> Tensor:
        """Compute the input of ``output`` at all positions.

        Args:
            tokens: ids, (B, T).
            attend: used in this call instead of ``parts.attend``.

        Returns:
            The states, (B, T, D).
        """
        length, positions = tokens.size(1), torch.arange(tokens.size(1), device=tokens.device)
        mask = attend_to_past(self.mask_pattern, positions, positions)
        return self.run(self.embed(tokens, positions, length), positions, length, mask, attend)

    def attention(self, tokens: Tensor) -> dict[str, Tensor]:
        """Compute the attention weights of every layer for tokens (B, T).

        Returns:
            The weights by name, "decoder.<layer>", (B, H, T, T) each.
        """
        weights: list[Tensor] = []
        self.states(tokens, record_weights(self.attend, weights))
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
        shape = (sentences, beam, self.cache_size)
        return empty_state(self.table.weight, len(self.layers), shape, capacity)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode one position.

        Args:
            tokens: the previous token of each hypothesis, (B, K).
            state: the state before these tokens; it must not be used afterwards.

        Returns:
            The logits of the next token (B, K, V), and the next state.
        """
        x, _, mask, distances = self.embed_next(tokens, state)
        return self.output(self.advance(x, state, None, mask, distances)), state
