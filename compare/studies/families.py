"""Encoder-decoders of three families at one small size: LSTM, LSTM with attention, Transformer."""

from collections.abc import Callable

from torch import nn

from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.model import Seq2Seq
from transformer.config import TransformerConfig
from transformer.model import Transformer

Model = Seq2Seq | Transformer

FAMILIES: dict[str, Callable[[int, int], Model]] = {
    "LSTM": lambda d, vocabulary: Seq2Seq(recurrent(d, None), vocabulary, vocabulary),
    "LSTM with attention": lambda d, vocabulary: Seq2Seq(
        recurrent(d, AttentionConfig(score="additive")), vocabulary, vocabulary
    ),
    "Transformer": lambda d, vocabulary: Transformer(
        TransformerConfig(d_model=d, encoder_layers=2, decoder_layers=2, ffn_size=4 * d, dropout=0.0),
        vocabulary,
        vocabulary,
    ),
}
"""Constructors of fresh models from width and vocabulary size, by family."""


def recurrent(d: int, attention: AttentionConfig | None) -> Seq2SeqConfig:
    """Configure one LSTM layer per side that reads from left to right: one path between two positions."""
    return Seq2SeqConfig(
        attention=attention, direction="forward", embedding_size=d, hidden_size=d, dropout=0.0
    )


def source_embedding(model: Model) -> nn.Embedding:
    """Find the embedding of the source tokens."""
    return next(part for part in model.encoder.modules() if isinstance(part, nn.Embedding))
