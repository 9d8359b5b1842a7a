"""Config of hybrids: the encoder of one family and the decoder of the other."""

from dataclasses import dataclass

import seq2seq.flops
import transformer.flops
from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig

HalfConfig = Seq2SeqConfig | TransformerConfig
"""Config of a complete model, of which a hybrid uses the encoder or the decoder."""

UNUSED: dict[tuple[str, type[HalfConfig]], frozenset[str]] = {
    ("encoder", Seq2SeqConfig): frozenset({"attention", "decoder_start", "feed_summary", "readout"}),
    ("encoder", TransformerConfig): frozenset(
        {"decoder_layers", "decoder_mask", "cross_mask", "share_layers"}
    ),
    ("decoder", Seq2SeqConfig): frozenset({"direction", "encoder_size", "encoder_layers", "num_heads"}),
    ("decoder", TransformerConfig): frozenset({"encoder_layers", "encoder_mask", "share_layers"}),
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
        for role, half in (("encoder", self.encoder), ("decoder", self.decoder)):
            if isinstance(half, Seq2SeqConfig) and half.self_attention not in ("none", role):
                raise ValueError(
                    f'self_attention "{half.self_attention}" is of an RNN that is not there: that of this '
                    f'hybrid is its {role}: use "{role}" or "none"'
                )
        if isinstance(self.decoder, Seq2SeqConfig) and self.decoder.attention is None:
            raise ValueError("the decoder needs an attention: a Transformer encoder has no last state")
        if isinstance(self.decoder, Seq2SeqConfig) and self.decoder.readout == "none":
            raise ValueError(
                'readout "none" needs a recurrent encoder, whose width sets that of the output layer: use '
                '"tanh" or "maxout"'
            )
        if isinstance(self.decoder, Seq2SeqConfig) and self.decoder.start == "last":
            raise ValueError(
                'decoder_start must be "bridge" or "zeros": a Transformer encoder has no last state'
            )


def embedding_width(half: HalfConfig) -> int:
    """Return the width of the embeddings of a half."""
    return half.d_model if isinstance(half, TransformerConfig) else half.embedding_size


def hybrid_multiply_adds(config: HybridConfig, src_len: float, tgt_len: float) -> float:
    """Count the multiply-adds per sentence pair, output layer excluded.

    Args:
        config: the model.
        src_len: number of source tokens, possibly a mean.
        tgt_len: number of target tokens, possibly a mean.
    """
    match config:
        case HybridConfig(encoder=TransformerConfig() as encoder, decoder=Seq2SeqConfig() as decoder):
            width = encoder.d_model
            return transformer.flops.encoder_multiply_adds(
                encoder, src_len
            ) + seq2seq.flops.decoder_multiply_adds(decoder, src_len, tgt_len, width, width)
        case HybridConfig(encoder=Seq2SeqConfig() as encoder, decoder=TransformerConfig() as decoder):
            return seq2seq.flops.encoder_multiply_adds(
                encoder, src_len
            ) + transformer.flops.decoder_multiply_adds(decoder, src_len, tgt_len, encoder.states_size)
    raise AssertionError("a hybrid has one half of each family")
