"""Two hybrids: the encoder of one family with the decoder of the other (compare Chen et al. 2018).

Shapes: B sentences, K hypotheses each, S source and T target positions, H heads, V vocabulary.
Masks are bool, True = may be attended.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import seq2seq
import seq2seq.flops
import transformer
import transformer.flops
from seq2seq import Seq2Seq
from seq2seq import initialise_weights as initialise_recurrent
from seq2seq.config import Seq2SeqConfig
from transformer import Transformer
from transformer.config import TransformerConfig
from transformer.model import initialise as initialise_transformer

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
        for is_broken, message in self.rules():
            if is_broken:
                raise ValueError(message)

    def rules(self) -> Iterator[tuple[bool, str]]:
        """List contradictions of the halves: whether there is one, and what to say then."""
        for name in ("dropout", "tie"):
            one, other = getattr(self.encoder, name), getattr(self.decoder, name)
            yield one != other, f"{name} must be the same in both halves, got {one!r} and {other!r}"
        one, other = embedding_width(self.encoder), embedding_width(self.decoder)
        message = f'tie "all" needs embeddings of one width, got {one} and {other}'
        yield self.decoder.tie == "all" and one != other, message
        role, rnn = ("decoder", self.decoder) if self.decodes_recurrently else ("encoder", self.encoder)
        assert isinstance(rnn, Seq2SeqConfig)
        yield (
            rnn.self_attention not in ("none", role),
            f'self_attention "{rnn.self_attention}" is of an RNN that is not there: that of this hybrid is '
            f'its {role}: use "{role}" or "none"',
        )
        if role == "decoder":
            no_last_state = "a Transformer encoder has no last state"
            yield rnn.attention is None, f"the decoder needs an attention: {no_last_state}"
            yield (
                rnn.readout == "none",
                'readout "none" needs a recurrent encoder, whose width sets that of the output layer: use '
                '"tanh" or "maxout"',
            )
            yield rnn.start == "last", f'decoder_start must be "bridge" or "zeros": {no_last_state}'

    @property
    def decodes_recurrently(self) -> bool:
        """Whether the decoder is an RNN, and the encoder a Transformer's."""
        return isinstance(self.decoder, Seq2SeqConfig)

    @property
    def dropout(self) -> float:
        """Dropout probability of both halves."""
        return self.decoder.dropout


def embedding_width(half: HalfConfig) -> int:
    """Return the width of the embeddings of a half."""
    return half.d_model if isinstance(half, TransformerConfig) else half.embedding_size


def hybrid_multiply_adds(config: HybridConfig, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds per sentence pair, output layer excluded; lengths may be means."""
    encoder, decoder = config.encoder, config.decoder
    with torch.device("meta"):
        hybrid: Any = build_hybrid(config, 1, 1)
    if isinstance(encoder, Seq2SeqConfig):
        reading = seq2seq.flops.encoder_multiply_adds(encoder, src_len)
        return reading + transformer.flops.stack_multiply_adds(hybrid.decoder, tgt_len, src_len)
    assert isinstance(decoder, Seq2SeqConfig)
    reading, width = transformer.flops.stack_multiply_adds(hybrid.encoder, src_len), encoder.d_model
    return reading + seq2seq.flops.decoder_multiply_adds(decoder, src_len, tgt_len, width, width)


def build_hybrid(config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> Seq2Seq | Transformer:
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


class TransformerEncoder(transformer.Encoder):
    """A Transformer that reads; its output is that of a recurrent encoder."""

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_lengths: Tensor | None = None) -> Any:
        """Return a ``seq2seq.EncoderOutput``, with the mean of each sentence's states as the summary."""
        return seq2seq.EncoderOutput(*super().forward(src, src_mask))


class TransformerRNN(Seq2Seq):
    """A Transformer reads, an RNN with attention writes; it starts from the mean of the source's states."""

    def __init__(self, config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        nn.Module.__init__(self)
        encoder, decoder = config.encoder, config.decoder
        assert isinstance(encoder, TransformerConfig)
        assert isinstance(decoder, Seq2SeqConfig)
        src_embedding = nn.Embedding(src_vocabulary, encoder.d_model)
        self.config: Any = config
        self.encoder: Any = TransformerEncoder(encoder, src_embedding)
        self.decoder = seq2seq.Decoder(decoder, tgt_vocabulary, encoder.d_model, encoder.d_model)
        self.output = nn.Linear(decoder.output_size, tgt_vocabulary)
        self.decoder.apply(initialise_recurrent)
        initialise_recurrent(self.output)
        initialise_transformer(self.encoder)
        _tie(config, self.output, src_embedding, self.decoder.embedding)

    def attention(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> dict[str, Tensor]:
        """Compute the weights of the Transformer's encoder and of the recurrent decoder, by their names."""
        weights: dict[str, Tensor] = self.encoder.attention(src, src_mask)
        return weights | super().attention(src, src_mask, tgt_in)


class RecurrentEncoder(seq2seq.Encoder):
    """An RNN that reads, with the methods of a Transformer's encoder."""

    def attention(self, src: Tensor, src_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Compute the weights of self-attention, "encoder" (B, D, S, S), if there is one."""
        weights = self(src, src_mask).self_attention
        return {} if weights is None else {"encoder": weights}


class RNNTransformer(Transformer):
    """An RNN reads, a Transformer writes."""

    def __init__(self, config: HybridConfig, src_vocabulary: int, tgt_vocabulary: int) -> None:
        nn.Module.__init__(self)
        encoder, decoder = config.encoder, config.decoder
        assert isinstance(encoder, Seq2SeqConfig)
        assert isinstance(decoder, TransformerConfig)
        self.config: Any = config
        self.encoder: Any = RecurrentEncoder(encoder, src_vocabulary)
        tgt_embedding = nn.Embedding(tgt_vocabulary, decoder.d_model)
        self.decoder = transformer.Decoder(decoder, tgt_embedding, memory_size=encoder.states_size)
        self.output = nn.Linear(decoder.d_model, tgt_vocabulary, bias=False)
        self.encoder.apply(initialise_recurrent)
        initialise_transformer(self.decoder)
        nn.init.normal_(self.output.weight, std=decoder.d_model**-0.5)
        _tie(config, self.output, self.encoder.embedding, tgt_embedding)


def _tie(config: HybridConfig, output: nn.Linear, source: nn.Embedding, target: nn.Embedding) -> None:
    """Share the target embedding with the output layer ("output"), and also with the source ("all")."""
    if config.decoder.tie != "none":
        output.weight = target.weight
    if config.decoder.tie == "all":
        source.weight = target.weight
