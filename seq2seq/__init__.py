"""Recurrent encoder-decoders with and without attention; imports no other room."""

from .attention import Attention, AttentionOutput, Source
from .config import AttentionConfig, Seq2SeqConfig
from .decoder import Decoder
from .encoder import Encoder, EncoderOutput
from .location_based_scores import LocationScore, StaticFactorisedScore, StaticScore
from .model import Features, Seq2Seq
from .score import Queries, Score
from .scores import (
    SCORES,
    AdditiveScore,
    DotScore,
    DynamicFactorisedScore,
    GeneralScore,
    ScaledDotScore,
)
from .self_attention import SelfAttention
from .state import DecoderOutput, Memory, State

__all__ = [
    "SCORES",
    "AdditiveScore",
    "Attention",
    "AttentionConfig",
    "AttentionOutput",
    "Decoder",
    "DecoderOutput",
    "DotScore",
    "DynamicFactorisedScore",
    "Encoder",
    "EncoderOutput",
    "Features",
    "GeneralScore",
    "LocationScore",
    "Memory",
    "Queries",
    "ScaledDotScore",
    "Score",
    "SelfAttention",
    "Seq2Seq",
    "Seq2SeqConfig",
    "Source",
    "State",
    "StaticFactorisedScore",
    "StaticScore",
]
