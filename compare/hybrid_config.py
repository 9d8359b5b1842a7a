"""An encoder of one room and a decoder of the other; what a half does not use is no setting of it."""

from dataclasses import dataclass

from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig

Half = Seq2SeqConfig | TransformerConfig

UNUSED: dict[tuple[str, type[Half]], frozenset[str]] = {
    ("encoder", Seq2SeqConfig): frozenset({"attention", "feed_summary", "readout"}),
    ("encoder", TransformerConfig): frozenset({"decoder_layers"}),
    ("decoder", Seq2SeqConfig): frozenset({"direction", "encoder_size", "num_heads"}),
    ("decoder", TransformerConfig): frozenset({"encoder_layers"}),
}
"""Settings of a whole model that mean nothing to the half of it that is used; heads are the Transformer's."""


@dataclass(frozen=True, kw_only=True)
class HybridConfig:
    """Transformer encoder and RNN decoder, or the other way round (compare Chen et al. 2018)."""

    encoder: Half
    """The model whose encoder reads the source."""
    decoder: Half
    """The model whose decoder writes the target."""

    def __post_init__(self) -> None:
        """Reject halves of one room, and halves that contradict each other."""
        if type(self.encoder) is type(self.decoder):
            raise ValueError(f"encoder and decoder are both {type(self.encoder).__name__}: that is no hybrid")
        for name in ("dropout", "tie"):
            values = getattr(self.encoder, name), getattr(self.decoder, name)
            if values[0] != values[1]:
                raise ValueError(
                    f"{name} must be the same in both halves, got {values[0]!r} and {values[1]!r}"
                )
        widths = (embedding_width(self.encoder), embedding_width(self.decoder))
        if self.decoder.tie == "all" and widths[0] != widths[1]:
            raise ValueError(f'tie "all" needs embeddings of one width, got {widths[0]} and {widths[1]}')
        if isinstance(self.decoder, Seq2SeqConfig) and self.decoder.attention is None:
            raise ValueError("the decoder needs an attention: a Transformer encoder has no last state")


def embedding_width(half: Half) -> int:
    """How wide the embeddings of a half are."""
    return half.d_model if isinstance(half, TransformerConfig) else half.embedding_size
