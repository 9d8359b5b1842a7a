"""Fresh models that studies measure: LSTM, LSTM with attention, Transformer, in their simplest form."""

from collections.abc import Callable
from functools import partial
from typing import Any

from compare.models.styles import PLAIN, RECURRENT, TRANSFORMER
from seq2seq.config import AttentionConfig, Cell, Seq2SeqConfig
from seq2seq.model import Seq2Seq
from transformer.config import TransformerConfig
from transformer.model import Transformer

Model = Seq2Seq | Transformer
TRANSLATORS = (PLAIN, RECURRENT, TRANSFORMER)
"""Families that the studies compare; the first has no attention."""


def lstm(family: str, size: int, cell: Cell = "lstm") -> Callable[[int, int], Seq2Seq]:
    """Configure a one-layer LSTM of one size that reads from left to right: one path between two positions.

    ``RECURRENT`` has additive attention, ``PLAIN`` none.
    """
    attention = AttentionConfig(score="additive") if family == RECURRENT else None
    sizes: dict[str, Any] = {"embedding_size": size, "hidden_size": size, "dropout": 0.0}
    return partial(Seq2Seq, Seq2SeqConfig(attention=attention, cell=cell, direction="forward", **sizes))


def transformer(d: int, layers: int = 2, **options: Any) -> Callable[[int, int], Transformer]:
    """Configure a Transformer of ``layers`` layers per side without dropout; see ``TransformerConfig``."""
    sizes: dict[str, Any] = {
        "d_model": d,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "ffn_size": 4 * d,
    }
    return partial(Transformer, TransformerConfig(**sizes, dropout=0.0, **options))


def one_way(family: str, d: int) -> Callable[[int, int], Model]:
    """Configure a model of ``TRANSLATORS``."""
    return transformer(d) if family == TRANSFORMER else lstm(family, d)
