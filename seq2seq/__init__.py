"""Recurrent encoder-decoders and language models, as PyTorch modules that need nothing but torch."""

from .attention import NORMALISERS, SCOPES, Attention, AttentionOutput, Choices, Source
from .config import (
    AttentionConfig,
    RecurrentLanguageModelConfig,
    RegularisationConfig,
    ReinforceConfig,
    Seq2SeqConfig,
)
from .decoder import Decoder, DecoderOutput, EncoderOutput, Memory, SelfAttention, State
from .language_model import RecurrentLanguageModel
from .model import Encoder, Features, Seq2Seq, collect_features, initialise_weights
from .scores import (
    SCORES,
    AdditiveScore,
    AttentionSizes,
    Past,
    ProductScore,
    Queries,
    Score,
    list_scores,
    register_score,
)

__all__ = [
    "NORMALISERS",
    "SCOPES",
    "SCORES",
    "AdditiveScore",
    "Attention",
    "AttentionConfig",
    "AttentionOutput",
    "AttentionSizes",
    "Choices",
    "Decoder",
    "DecoderOutput",
    "Encoder",
    "EncoderOutput",
    "Features",
    "Memory",
    "Past",
    "ProductScore",
    "Queries",
    "RecurrentLanguageModel",
    "RecurrentLanguageModelConfig",
    "RegularisationConfig",
    "ReinforceConfig",
    "Score",
    "SelfAttention",
    "Seq2Seq",
    "Seq2SeqConfig",
    "Source",
    "State",
    "collect_features",
    "initialise_weights",
    "list_scores",
    "register_score",
]
