"""Recurrent encoder-decoders with and without attention; imports no other room."""

from .attention import AdditiveScore, DotScore, GeneralScore, attend
from .config import Seq2SeqConfig
from .decoder import Decoder, Memory, State
from .encoder import Encoded, Encoder
from .model import Features, Seq2Seq

__all__ = [
    "AdditiveScore",
    "Decoder",
    "DotScore",
    "Encoded",
    "Encoder",
    "Features",
    "GeneralScore",
    "Memory",
    "Seq2Seq",
    "Seq2SeqConfig",
    "State",
    "attend",
]
