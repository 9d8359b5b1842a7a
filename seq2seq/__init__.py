"""Recurrent encoder-decoders and language models, as PyTorch modules that need nothing but torch."""

from .attention import SCOPES, Attention, AttentionOutput
from .config import AttentionConfig, RecurrentLanguageModelConfig, RegularisationConfig, Seq2SeqConfig
from .decoder import Decoder, EncoderOutput, SelfAttention
from .model import Encoder, Features, RecurrentLanguageModel, Seq2Seq, initialise_weights
from .normalisers import NORMALISERS
from .scores import SCORES, AdditiveScore, Queries, Score, register_score

__all__ = [
    "NORMALISERS",
    "SCOPES",
    "SCORES",
    "AdditiveScore",
    "Attention",
    "AttentionConfig",
    "AttentionOutput",
    "Decoder",
    "Encoder",
    "EncoderOutput",
    "Features",
    "Queries",
    "RecurrentLanguageModel",
    "RecurrentLanguageModelConfig",
    "RegularisationConfig",
    "Score",
    "SelfAttention",
    "Seq2Seq",
    "Seq2SeqConfig",
    "initialise_weights",
    "register_score",
]
