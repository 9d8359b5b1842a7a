"""Encoder-decoders of three families at one small size: LSTM, LSTM with attention, Transformer."""

from collections.abc import Callable

from torch import nn

from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.model import Seq2Seq
from transformer.config import Norm, TransformerConfig
from transformer.model import Transformer
from transformer.parts import Parts

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


PLAIN, RECURRENT, TRANSFORMER = "LSTM", "LSTM with attention", "Transformer"
TRANSLATORS = (PLAIN, RECURRENT, TRANSFORMER)
"""Families that the studies of translation compare; the first has no attention."""


def build_translator(family: str, d: int, dropout: float, src_vocabulary: int, tgt_vocabulary: int) -> Model:
    """Build a fresh model of ``TRANSLATORS`` whose weights without embeddings are about 50 d^2.

    The recurrent ones have one layer per side, the encoder in both directions, and states of 1.5 d; the
    Transformer has two layers per side, pre-norm, with d / 16 heads.
    """
    if family == TRANSFORMER:
        transformer = TransformerConfig(
            d_model=d,
            num_heads=max(1, d // 16),
            encoder_layers=2,
            decoder_layers=2,
            ffn_size=4 * d,
            dropout=dropout,
        )
        return Transformer(transformer, src_vocabulary, tgt_vocabulary)
    attention = AttentionConfig(score="additive") if family == RECURRENT else None
    size = 3 * d // 2
    recurrent = Seq2SeqConfig(
        attention=attention, embedding_size=size, hidden_size=size, dropout=dropout, tie="output"
    )
    return Seq2Seq(recurrent, src_vocabulary, tgt_vocabulary)


def build_deep_transformer(
    layers: int,
    d: int,
    norm: Norm,
    parts: Parts,
    src_vocabulary: int,
    tgt_vocabulary: int,
) -> Transformer:
    """Build a fresh Transformer of ``layers`` layers per side, without dropout."""
    config = TransformerConfig(
        d_model=d, encoder_layers=layers, decoder_layers=layers, ffn_size=4 * d, dropout=0.0, norm=norm
    )
    return Transformer(config, src_vocabulary, tgt_vocabulary, parts)


def recurrent(d: int, attention: AttentionConfig | None) -> Seq2SeqConfig:
    """Configure one LSTM layer per side that reads from left to right: one path between two positions."""
    return Seq2SeqConfig(
        attention=attention, direction="forward", embedding_size=d, hidden_size=d, dropout=0.0
    )


def source_embedding(model: Model) -> nn.Embedding:
    """Find the embedding of the source tokens."""
    return next(part for part in model.encoder.modules() if isinstance(part, nn.Embedding))
