"""The three families of the notes at one small size, as whole encoder-decoders of the toolkit."""

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
"""From width and vocabulary to a fresh model."""


def recurrent(d: int, attention: AttentionConfig | None) -> Seq2SeqConfig:
    """One LSTM layer on each side, the source read from left to right alone: one path from place to place."""
    return Seq2SeqConfig(
        attention=attention, direction="forward", embedding_size=d, hidden_size=d, dropout=0.0
    )


def source_table(model: Model) -> nn.Embedding:
    """The embedding of the source tokens."""
    return next(part for part in model.encoder.modules() if isinstance(part, nn.Embedding))
