"""The recurrent translation model, whole; it fits ``compare.protocol.EncoderDecoder`` without importing it.

Shapes: B sentences, K hypotheses each, S source and T target positions, D readout size, V target vocabulary.
"""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.functional import dropout

from .cells import initialise_weights
from .config import Seq2SeqConfig
from .decoder import Decoder
from .encoder import Encoder
from .state import Memory, State


class Features(NamedTuple):
    """What the loss is computed from."""

    hidden: Tensor
    """Input of the output layer, (B, T, D)."""
    choice_logp: Tensor | None = None
    """Log-probability of the source positions drawn, (B, T): normaliser "reinforce", in training only."""
    value: Tensor | None = None
    """The learned baseline that goes with it, (B, T)."""


class Seq2Seq(nn.Module):
    """A recurrent encoder-decoder with or without attention, as ``config`` says.

    Special ids mean nothing to it: padding is what ``src_mask`` says, and it stands on the right.
    """

    def __init__(self, config: Seq2SeqConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        super().__init__()
        if config.tie == "all" and src_vocabulary != tgt_vocabulary:
            raise ValueError(
                f'tie "all" needs one vocabulary for both sides, got {src_vocabulary} source and '
                f'{tgt_vocabulary} target entries: use a joint vocabulary, or tie "output"'
            )
        self.config = config
        self.encoder = Encoder(config, src_vocabulary)
        self.decoder = Decoder(config, tgt_vocabulary, self.encoder.state_size, self.encoder.summary_size)
        self.output = nn.Linear(config.output_size, tgt_vocabulary)
        self.apply(initialise_weights)
        if config.tie != "none":
            self.output.weight = self.decoder.embedding.weight
        if config.tie == "all":
            self.encoder.embedding.weight = self.decoder.embedding.weight

    def forward(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits (B, T, V) for src (B, S), src_mask (B, S) and tgt_in (B, T)."""
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def features(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Features:
        """Run the whole target at once: src (B, S), src_mask (B, S), tgt_in (B, T)."""
        readout, attended, _ = self.decoder(tgt_in, self.encode(src, src_mask))
        if attended is None:
            return Features(self._drop(readout))
        return Features(self._drop(readout), attended.choice_logp, attended.value)

    def encode(self, src: Tensor, src_mask: Tensor) -> Memory:
        """Read src (B, S) once; src_mask (B, S) is True for real tokens."""
        return self.decoder.remember(self.encoder(src, src_mask))

    def init_state(self, memory: Memory, beam: int, capacity: int) -> State:
        """The state before the first token; a recurrent state has one size, whatever the ``capacity``."""
        return self.decoder.init_state(memory, beam)

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Feed tokens (B, K); returns logits (B, K, V) and the next state."""
        readout, state = self.decoder.step(tokens, state, memory)
        logits: Tensor = self.output(self._drop(readout))
        return logits, state

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        """Weights by name; in all of them row t belongs to position t.

        "cross" (B, heads, T, S), used to predict tgt_out[t]; with self-attention "encoder" (B, D, S, S), D
        directions, and "decoder" (B, 1, T, T), whose rows are 0 where nothing came before.
        """
        encoded = self.encoder(src, src_mask)
        _, attended, own = self.decoder(tgt_in, self.decoder.remember(encoded))
        cross = None if attended is None else attended.weights
        found = {"encoder": encoded.own, "decoder": own, "cross": cross}
        return {name: weights for name, weights in found.items() if weights is not None}

    def _drop(self, readout: Tensor) -> Tensor:
        return dropout(readout, self.config.dropout, self.training)
