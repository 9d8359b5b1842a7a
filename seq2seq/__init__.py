"""Recurrent encoder-decoders and language models, as PyTorch modules that need nothing but torch."""

from .attention import Attention, AttentionOutput, Source
from .config import AttentionConfig, RecurrentLanguageModelConfig, RegularisationConfig, Seq2SeqConfig
from .decoder import Decoder
from .encoder import Encoder, EncoderOutput
from .language_model import RecurrentLanguageModel
from .location_based_scores import LocationScore, StaticFactorisedScore, StaticScore
from .model import Features, Seq2Seq, collect_features
from .normalisers import NORMALISERS, ReinforceConfig
from .scopes import SCOPES
from .score import AttentionSizes, MultiplyAdds, Past, Queries, Score
from .scores import (
    SCORES,
    AdditiveScore,
    CoverageScore,
    DotScore,
    DynamicFactorisedScore,
    GeneralScore,
    LocationAwareScore,
    ProductScore,
    ScaledDotScore,
    list_scores,
    register_score,
)
from .self_attention import SelfAttention
from .state import DecoderOutput, Memory, State
from .weights import initialise_weights

__all__ = [
    "NORMALISERS",
    "SCOPES",
    "SCORES",
    "AdditiveScore",
    "Attention",
    "AttentionConfig",
    "AttentionOutput",
    "AttentionSizes",
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
