"""Two hybrids: the encoder of one family with the decoder of the other (compare Chen et al. 2018).

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, V vocabulary.
Masks are bool, True = may be attended.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

import seq2seq
import seq2seq.flops
import transformer
import transformer.flops
from compare.protocol import Features
from seq2seq import initialise_weights as initialise_recurrent
from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig
from transformer.masks import check_target
from transformer.model import initialise as initialise_transformer

# Config of hybrids: the encoder of one family and the decoder of the other.


HalfConfig = Seq2SeqConfig | TransformerConfig
"""Config of a complete model, of which a hybrid uses the encoder or the decoder."""

UNUSED: dict[tuple[str, type[HalfConfig]], frozenset[str]] = {
    ("encoder", Seq2SeqConfig): frozenset({"attention", "decoder_start", "feed_summary", "readout"}),
    ("encoder", TransformerConfig): frozenset({"decoder_layers", "decoder_mask", "cross_mask"}),
    ("decoder", Seq2SeqConfig): frozenset({"direction", "encoder_size", "encoder_layers", "num_heads"}),
    ("decoder", TransformerConfig): frozenset({"encoder_layers", "encoder_mask"}),
}
"""Settings without effect in the half that is used; ``num_heads`` always means the Transformer's heads."""


@dataclass(frozen=True, kw_only=True)
class HybridConfig:
    """Transformer encoder and RNN decoder, or the other way round (compare Chen et al. 2018)."""

    encoder: HalfConfig
    """The model whose encoder reads the source."""
    decoder: HalfConfig
    """The model whose decoder writes the target."""

    def __post_init__(self) -> None:
        """Reject halves of the same family, and halves that contradict each other."""
        if type(self.encoder) is type(self.decoder):
            raise ValueError(
                f"encoder and decoder are both {type(self.encoder).__name__}: a hybrid needs two families"
            )
        for name in ("dropout", "tie"):
            values = getattr(self.encoder, name), getattr(self.decoder, name)
            if values[0] != values[1]:
                raise ValueError(
                    f"{name} must be the same in both halves, got {values[0]!r} and {values[1]!r}"
                )
        widths = (embedding_width(self.encoder), embedding_width(self.decoder))
        if self.decoder.tie == "all" and widths[0] != widths[1]:
            raise ValueError(f'tie "all" needs embeddings of one width, got {widths[0]} and {widths[1]}')
        role, rnn = ("decoder", self.decoder) if self.decodes_recurrently else ("encoder", self.encoder)
        assert isinstance(rnn, Seq2SeqConfig)
        if rnn.self_attention not in ("none", role):
            raise ValueError(
                f'self_attention "{rnn.self_attention}" is of an RNN that is not there: that of this '
                f'hybrid is its {role}: use "{role}" or "none"'
            )
        if role == "encoder":
            return
        if rnn.attention is None:
            raise ValueError("the decoder needs an attention: a Transformer encoder has no last state")
        if rnn.readout == "none":
            raise ValueError(
                'readout "none" needs a recurrent encoder, whose width sets that of the output layer: use '
                '"tanh" or "maxout"'
            )
        if rnn.start == "last":
            raise ValueError(
                'decoder_start must be "bridge" or "zeros": a Transformer encoder has no last state'
            )

    @property
    def decodes_recurrently(self) -> bool:
        """Whether the decoder is an RNN, and the encoder a Transformer's."""
        return isinstance(self.decoder, Seq2SeqConfig)

    @property
    def output_size(self) -> int:
        """Input width of the output layer."""
        return self.decoder.output_size if isinstance(self.decoder, Seq2SeqConfig) else self.decoder.d_model


def embedding_width(half: HalfConfig) -> int:
    """Return the width of the embeddings of a half."""
    return half.d_model if isinstance(half, TransformerConfig) else half.embedding_size


def hybrid_multiply_adds(config: HybridConfig, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds per sentence pair, output layer excluded; lengths may be means."""
    encoder, decoder = config.encoder, config.decoder
    if isinstance(encoder, TransformerConfig):
        assert isinstance(decoder, Seq2SeqConfig)
        reading = transformer.flops.encoder_multiply_adds(encoder, src_len)
        width = encoder.d_model
        return reading + seq2seq.flops.decoder_multiply_adds(decoder, src_len, tgt_len, width, width)
    assert isinstance(decoder, TransformerConfig)
    reading = seq2seq.flops.encoder_multiply_adds(encoder, src_len)
    return reading + transformer.flops.decoder_multiply_adds(decoder, src_len, tgt_len, encoder.states_size)


def build_hybrid(
    config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int
) -> "TransformerRNN | RNNTransformer":
    """Build a hybrid with fresh weights, each half initialised as in its own family.

    Args:
        config: the two halves.
        src_vocabulary: size of the source vocabulary.
        tgt_vocabulary: size of the target vocabulary.

    Raises:
        ValueError: all embeddings are tied but the vocabularies differ in size.
    """
    if config.decoder.tie == "all" and src_vocabulary != tgt_vocabulary:
        raise ValueError(
            f'tie "all" needs one vocabulary for both sides, got {src_vocabulary} source and '
            f'{tgt_vocabulary} target entries: use a joint vocabulary, or tie "output"'
        )
    hybrid = TransformerRNN if config.decodes_recurrently else RNNTransformer
    return hybrid(config, src_vocabulary, tgt_vocabulary)


class Hybrid(nn.Module):
    """Base class of both hybrids, which implement ``compare.protocol.EncoderDecoder``.

    ``src_mask`` None means that all source tokens are real; the encoder checks the mask.
    """

    features: Callable[..., Features]
    decoder: Any
    output: nn.Linear

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Compute logits (B, T, V) for src (B, S), src_mask (B, S) and tgt_in (B, T)."""
        logits: Tensor = self.output(self.features(src, src_mask, tgt_in).hidden)
        return logits

    def step(self, tokens: Tensor, state: Any, memory: Any) -> tuple[Tensor, Any]:
        """Decode one position: the previous tokens (B, K) give logits (B, K, V) and the next state.

        ``state`` must not be used afterwards.
        """
        hidden, state = self.decoder.step(tokens, state, memory)  # no dropout: decoding is in eval mode
        return self.output(hidden), state

    def _tie(self, tie: str, src_embedding: nn.Embedding, tgt_embedding: nn.Embedding) -> None:
        """Share the target embedding with the output layer ("output"), and also with the source ("all")."""
        if tie != "none":
            self.output.weight = tgt_embedding.weight
        if tie == "all":
            src_embedding.weight = tgt_embedding.weight


class TransformerRNN(Hybrid):
    """A Transformer reads, an RNN with attention writes; it starts from the mean of the source's states."""

    def __init__(self, config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        super().__init__(config)
        encoder, decoder = config.encoder, config.decoder
        assert isinstance(encoder, TransformerConfig)
        assert isinstance(decoder, Seq2SeqConfig)
        src_embedding = nn.Embedding(src_vocabulary, encoder.d_model)
        self.encoder = transformer.Encoder(encoder, src_embedding)
        self.decoder = seq2seq.Decoder(decoder, tgt_vocabulary, encoder.d_model, encoder.d_model)
        self.output = nn.Linear(decoder.output_size, tgt_vocabulary)
        self.dropout = nn.Dropout(decoder.dropout)
        self.decoder.apply(initialise_recurrent)
        initialise_recurrent(self.output)
        initialise_transformer(self.encoder)
        self._tie(decoder.tie, src_embedding, self.decoder.embedding)

    def features(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Compute the input of ``output`` for src (B, S), src_mask (B, S) and tgt_in (B, T)."""
        memory = self.encode(src, src_mask)
        check_target(src, tgt_in)
        readout, attended, _ = self.decoder(tgt_in, memory)
        return seq2seq.collect_features(self.dropout(readout), attended, self.decoder)

    def encode(self, src: Tensor, src_mask: Tensor | None = None) -> seq2seq.Memory:
        """Encode src (B, S) once per sentence; src_mask (B, S) marks real tokens."""
        memory: seq2seq.Memory = self.decoder.remember(seq2seq.EncoderOutput(*self.encoder(src, src_mask)))
        return memory

    def init_state(self, memory: seq2seq.Memory, beam: int, capacity: int) -> seq2seq.State:
        """Build the state before the first token; a recurrent state does not depend on ``capacity``."""
        state: seq2seq.State = self.decoder.init_state(memory, beam)
        return state

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the weights by name: those of the Transformer's encoder and of ``Seq2Seq``'s decoder.

        Returns:
            "encoder.<layer>" (B, H, S, S), "cross" (B, heads, T, S) and, with self-attention of the RNN,
            "decoder" (B, 1, T, T).
        """
        memory = self.encode(src, src_mask)
        check_target(src, tgt_in)
        _, attended, self_attention = self.decoder(tgt_in, memory)
        weights = {**self.encoder.attention(src, src_mask), "cross": attended.weights}
        return weights if self_attention is None else {**weights, "decoder": self_attention}


class RNNTransformer(Hybrid):
    """An RNN reads, a Transformer writes."""

    def __init__(self, config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        super().__init__(config)
        encoder, decoder = config.encoder, config.decoder
        assert isinstance(encoder, Seq2SeqConfig)
        assert isinstance(decoder, TransformerConfig)
        self.encoder = seq2seq.Encoder(encoder, src_vocabulary)
        tgt_embedding = nn.Embedding(tgt_vocabulary, decoder.d_model)
        self.decoder = transformer.Decoder(decoder, tgt_embedding, memory_size=self.encoder.state_size)
        self.output = nn.Linear(decoder.d_model, tgt_vocabulary, bias=False)
        self.encoder.apply(initialise_recurrent)
        initialise_transformer(self.decoder)
        nn.init.normal_(self.output.weight, std=decoder.d_model**-0.5)
        self._tie(decoder.tie, self.encoder.embedding, tgt_embedding)

    def features(
        self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Features:
        """Compute the input of ``output``; arguments as for ``seq2seq.Seq2Seq.features``."""
        memory = self.encode(src, src_mask, src_lengths)
        check_target(src, tgt_in)
        return transformer.Features(self.decoder(tgt_in, memory))

    def encode(
        self, src: Tensor, src_mask: Tensor | None = None, src_lengths: Tensor | None = None
    ) -> transformer.Memory:
        """Encode src (B, S) once per sentence; arguments as for ``seq2seq.Seq2Seq.features``."""
        states, mask, *_ = self.encoder(src, src_mask, src_lengths)
        memory: transformer.Memory = self.decoder.remember(states, mask)
        return memory

    def init_state(self, memory: transformer.Memory, beam: int, capacity: int) -> transformer.State:
        """Build the state before the first token, for ``beam`` hypotheses of at most ``capacity`` tokens."""
        state: transformer.State = self.decoder.init_state(memory, beam, capacity)
        return state

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the weights by name: those of ``Seq2Seq``'s encoder and of the Transformer's decoder.

        Returns:
            "decoder.<layer>" (B, H, T, T), "cross.<layer>" (B, H, T, S) and, with self-attention of the RNN,
            "encoder" (B, D, S, S).
        """
        encoded = self.encoder(src, src_mask)
        check_target(src, tgt_in)
        memory = self.decoder.remember(encoded.states, encoded.mask)
        weights: dict[str, Tensor] = self.decoder.attention(tgt_in, memory)
        self_attention = encoded.self_attention
        return weights if self_attention is None else {**weights, "encoder": self_attention}
