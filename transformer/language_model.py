"""A decoder alone: an autoregressive language model.

Shapes: B sentences, K hypotheses each, T positions, H heads, D model width, V vocabulary.
"""

import torch
from torch import Tensor, nn

from .attention import Attend, recording
from .config import DecoderOnlyConfig
from .encoder import LayerStack
from .masks import past, restrict
from .parts import STANDARD, Parts
from .state import State, empty_state
from .weights import initialise, output_layer


class LanguageModel(LayerStack):
    """p(x) = prod p(x[t + 1] | x[0], ..., x[t]): a decoder with no source to attend to (Liu et al. 2018)."""

    def __init__(self, config: DecoderOnlyConfig, vocabulary: int, parts: Parts = STANDARD) -> None:
        """Make a model of ``vocabulary`` entries; to tie "all" is here to tie the output."""
        table = nn.Embedding(vocabulary, config.d_model)
        super().__init__(config, config.num_layers, table, parts, causal=True)
        self.config = config
        self.output = output_layer(config, self.table)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw matrices as Glorot does (merged ones as one), embeddings and output with deviation D^-0.5."""
        initialise(self, self.output)

    def forward(self, tokens: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Give the logits (B, T, V) of the token after each of tokens (B, T).

        Position t sees tokens 0 to t, so padding at the end needs no mask. A general mask ``allowed``, True
        where position t may attend to s, takes from that: (T, T), (B, T, T) or (B, H, T, T).
        """
        logits: Tensor = self.output(self._states(tokens, allowed))
        return logits

    def attention(self, tokens: Tensor, allowed: Tensor | None = None) -> dict[str, Tensor]:
        """Give the weights of every layer, "decoder.<layer>" (B, H, T, T); arguments as for ``forward``."""
        found: list[Tensor] = []
        self._states(tokens, allowed, recording(self.attend, found))
        return {f"decoder.{n}": weights for n, weights in enumerate(found)}

    def init_state(self, sentences: int, beam: int, capacity: int) -> State:
        """Make the state before the first token of (sentences, beam) texts of up to ``capacity`` tokens."""
        shape = (sentences, beam, self.config.attention_size)
        return empty_state(self.table.weight, len(self.layers), shape, capacity)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Feed tokens (B, K); returns logits (B, K, V) and the next state. ``state`` is dead afterwards."""
        x = self.place(self.table(tokens), torch.arange(state.length, state.length + 1, device=tokens.device))
        return self.output(self.advance(x, state)), state

    def _states(self, tokens: Tensor, allowed: Tensor | None, attend: Attend | None = None) -> Tensor:
        length, device = tokens.size(1), tokens.device
        if allowed is not None:
            allowed = restrict(past(length, device), allowed)
        x = self.place(self.table(tokens), torch.arange(length, device=device))
        return self.run(x, allowed, attend)
