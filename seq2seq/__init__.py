"""Recurrent encoder-decoders and language models, as PyTorch modules that need nothing but torch."""

from .attention import Attention, AttentionOutput, SelfAttention, Source
from .config import AttentionConfig, RecurrentLanguageModelConfig, RegularisationConfig, Seq2SeqConfig
from .decoder import Decoder, DecoderOutput, Memory, State
from .encoder import Encoder, EncoderOutput
from .language_model import RecurrentLanguageModel
from .model import Choices, Features, Seq2Seq, collect_features, initialise_weights
from .normalisers import NORMALISERS, ReinforceConfig
from .scopes import SCOPES
from .scores import (
    SCORES,
    AdditiveScore,
    AttentionSizes,
    CoverageScore,
    DotScore,
    DynamicFactorisedScore,
    GeneralScore,
    LocationAwareScore,
    LocationScore,
    MultiplyAdds,
    Past,
    ProductScore,
    Queries,
    ScaledDotScore,
    Score,
    StaticFactorisedScore,
    StaticScore,
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
    "CoverageScore",
    "Decoder",
    "DecoderOutput",
    "DotScore",
    "DynamicFactorisedScore",
    "Encoder",
    "EncoderOutput",
    "Features",
    "GeneralScore",
    "LocationAwareScore",
    "LocationScore",
    "Memory",
    "MultiplyAdds",
    "Past",
    "ProductScore",
    "Queries",
    "RecurrentLanguageModel",
    "RecurrentLanguageModelConfig",
    "RegularisationConfig",
    "ReinforceConfig",
    "ScaledDotScore",
    "Score",
    "SelfAttention",
    "Seq2Seq",
    "Seq2SeqConfig",
    "Source",
    "State",
    "StaticFactorisedScore",
    "StaticScore",
    "collect_features",
    "initialise_weights",
    "list_scores",
    "register_score",
]
