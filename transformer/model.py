"""The Transformer: an encoder and a decoder.

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, D model width, V vocabulary.
Masks are bool, True = may be attended.
"""

from torch import Tensor, nn

from .config import TransformerConfig
from .decoder import Decoder
from .encoder import Encoder
from .parts import STANDARD, Parts
from .state import Features, Memory, State
from .weights import embedding_tables, initialise, output_layer


class Transformer(nn.Module):
    """The encoder-decoder of "Attention is all you need", Vaswani et al. 2017."""

    def __init__(
        self, config: TransformerConfig, src_vocabulary: int, tgt_vocabulary: int, parts: Parts = STANDARD
    ) -> None:
        super().__init__()
        self.config = config
        src_table, tgt_table = embedding_tables(config, src_vocabulary, tgt_vocabulary)
        self.encoder = Encoder(config, src_table, parts)
        self.decoder = Decoder(config, tgt_table, parts=parts)
        self.output = output_layer(config, tgt_table)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw matrices as Glorot does (merged ones as one), embeddings and output with deviation D^-0.5."""
        initialise(self, self.output)

    def forward(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Tensor:
        """Give the logits (B, T, V) of the token after each of tgt_in (B, T); src and src_mask are (B, S)."""
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def features(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Features:
        """Run the whole target at once; ``hidden`` (B, T, D) is the input of ``output``."""
        return Features(self.decoder(tgt_in, self.encode(src, src_mask)))

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        """Give the attention weights of every layer.

        Returns:
            "encoder.<layer>" (B, H, S, S), "decoder.<layer>" (B, H, T, T) and "cross.<layer>" (B, H, T, S);
            row t of the latter two holds the weights used to predict the token after tgt_in[t].
        """
        read = self.encoder.attention(src, src_mask)
        return read | self.decoder.attention(tgt_in, self.encode(src, src_mask))

    def encode(self, src: Tensor, src_mask: Tensor) -> Memory:
        """Read src (B, S) under src_mask (B, S) once."""
        states, mask, _ = self.encoder(src, src_mask)
        return self.decoder.remember(states, mask)

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """Make the state before the first token of ``beam`` hypotheses of up to ``capacity`` tokens."""
        return self.decoder.init_state(memory, beam, capacity)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed tokens (B, K); returns logits (B, K, V) and the next state. ``state`` is dead afterwards."""
        hidden, state = self.decoder.step(tokens, state, memory)
        return self.output(hidden), state
