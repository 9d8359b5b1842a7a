"""The two hybrids: each room's encoder with the other room's decoder (compare Chen et al. 2018).

Shapes: B sentences, K hypotheses each, S source and T target positions, V vocabulary.
"""

from typing import Any

from torch import Tensor, nn

import seq2seq
import transformer
from compare.models.hybrid_config import HybridConfig
from compare.protocol import Features
from seq2seq import Seq2SeqConfig
from seq2seq import initialise_weights as initialise_recurrent
from transformer import TransformerConfig
from transformer.weights import initialise as initialise_transformer


def build_hybrid(config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> "Hybrid":
    """Make the model with fresh weights, each half's drawn as its own room draws them."""
    if config.decoder.tie == "all" and src_vocabulary != tgt_vocabulary:
        raise ValueError(
            f'tie "all" needs one vocabulary for both sides, got {src_vocabulary} source and '
            f'{tgt_vocabulary} target entries: use a joint vocabulary, or tie "output"'
        )
    if isinstance(config.encoder, TransformerConfig):
        return TransformerRNN(config, src_vocabulary, tgt_vocabulary)
    return RNNTransformer(config, src_vocabulary, tgt_vocabulary)


class Hybrid(nn.Module):
    """What both have in common; it fits ``compare.protocol.EncoderDecoder``."""

    decoder: Any
    output: nn.Linear

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits (B, T, V) for src (B, S), src_mask (B, S) and tgt_in (B, T)."""
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def features(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Features:
        """Run the whole target at once: src (B, S), src_mask (B, S), tgt_in (B, T)."""
        raise NotImplementedError

    def encode(self, src: Tensor, src_mask: Tensor) -> Any:
        """Read src (B, S) once; src_mask (B, S) is True for real tokens."""
        raise NotImplementedError

    def init_state(self, memory: Any, beam: int, capacity: int) -> Any:
        """The state before the first token of ``beam`` hypotheses of up to ``capacity`` tokens."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any, memory: Any) -> tuple[Tensor, Any]:
        """Feed tokens (B, K); returns logits (B, K, V) and the next state. ``state`` is dead afterwards."""
        hidden, state = self.decoder.step(tokens, state, memory)  # dropout does nothing where one decodes
        return self.output(hidden), state

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        """Weights by name, as each half names its own."""
        raise NotImplementedError

    def _tie(self, tie: str, source: nn.Embedding, target: nn.Embedding) -> None:
        """Share the target's matrix with the output layer, and with the source if told to."""
        if tie != "none":
            self.output.weight = target.weight
        if tie == "all":
            source.weight = target.weight


class TransformerRNN(Hybrid):
    """A Transformer reads, an RNN with attention writes; it starts from the mean of the source's states."""

    def __init__(self, config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        super().__init__(config)
        reads, writes = config.encoder, config.decoder
        assert isinstance(reads, TransformerConfig)
        assert isinstance(writes, Seq2SeqConfig)
        table = nn.Embedding(src_vocabulary, reads.d_model)
        self.encoder = transformer.Encoder(reads, table)
        self.decoder = seq2seq.Decoder(writes, tgt_vocabulary, reads.d_model, reads.d_model)
        self.output = nn.Linear(writes.output_size, tgt_vocabulary)
        self.dropout = nn.Dropout(writes.dropout)
        self.decoder.apply(initialise_recurrent)
        initialise_recurrent(self.output)
        initialise_transformer(self.encoder)
        self._tie(writes.tie, table, self.decoder.embedding)

    def features(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Features:
        """Run the whole target at once: src (B, S), src_mask (B, S), tgt_in (B, T)."""
        readout, attended, _ = self.decoder(tgt_in, self.encode(src, src_mask))
        return seq2seq.Features(self.dropout(readout), attended.choice_logp, attended.value)

    def encode(self, src: Tensor, src_mask: Tensor) -> seq2seq.Memory:
        """Read src (B, S) once; src_mask (B, S) is True for real tokens."""
        memory: seq2seq.Memory = self.decoder.remember(seq2seq.EncoderOutput(*self.encoder(src, src_mask)))
        return memory

    def init_state(self, memory: seq2seq.Memory, beam: int, capacity: int) -> seq2seq.State:
        """The state before the first token; a recurrent state has one size, whatever the ``capacity``."""
        state: seq2seq.State = self.decoder.init_state(memory, beam)
        return state

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        """Weights "encoder.<layer>" (B, H, S, S) and "cross" (B, heads, T, S)."""
        _, attended, _ = self.decoder(tgt_in, self.encode(src, src_mask))
        return {**self.encoder.attention(src, src_mask), "cross": attended.weights}


class RNNTransformer(Hybrid):
    """An RNN reads, a Transformer writes."""

    def __init__(self, config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        super().__init__(config)
        reads, writes = config.encoder, config.decoder
        assert isinstance(reads, Seq2SeqConfig)
        assert isinstance(writes, TransformerConfig)
        self.encoder = seq2seq.Encoder(reads, src_vocabulary)
        table = nn.Embedding(tgt_vocabulary, writes.d_model)
        self.decoder = transformer.Decoder(writes, table, memory_size=self.encoder.state_size)
        self.output = nn.Linear(writes.d_model, tgt_vocabulary, bias=False)
        self.encoder.apply(initialise_recurrent)
        initialise_transformer(self.decoder)
        nn.init.normal_(self.output.weight, std=writes.d_model**-0.5)
        self._tie(writes.tie, self.encoder.embedding, table)

    def features(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Features:
        """Run the whole target at once: src (B, S), src_mask (B, S), tgt_in (B, T)."""
        return transformer.Features(self.decoder(tgt_in, self.encode(src, src_mask)))

    def encode(self, src: Tensor, src_mask: Tensor) -> transformer.Memory:
        """Read src (B, S) once; src_mask (B, S) is True for real tokens."""
        states, mask, *_ = self.encoder(src, src_mask)
        memory: transformer.Memory = self.decoder.remember(states, mask)
        return memory

    def init_state(self, memory: transformer.Memory, beam: int, capacity: int) -> transformer.State:
        """The state before the first token of ``beam`` hypotheses of up to ``capacity`` tokens."""
        state: transformer.State = self.decoder.init_state(memory, beam, capacity)
        return state

    def attention(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        """Weights "decoder.<layer>" (B, H, T, T) and "cross.<layer>" (B, H, T, S)."""
        weights: dict[str, Tensor] = self.decoder.attention(tgt_in, self.encode(src, src_mask))
        return weights
