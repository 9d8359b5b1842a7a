"""Transformers: tensors and masks in, logits out. Imports nothing of the other rooms."""

from .attention import fused_attention, plain_attention
from .config import DecoderOnlyConfig, TransformerConfig
from .decoder import Decoder
from .decoder_only import DecoderOnly
from .encoder import Encoder
from .language_model import LanguageModel
from .model import Transformer
from .multihead import CrossAttention, SelfAttention
from .parts import Parts
from .state import Features, Memory, State

__all__ = [
    "CrossAttention",
    "Decoder",
    "DecoderOnly",
    "DecoderOnlyConfig",
    "Encoder",
    "Features",
    "LanguageModel",
    "Memory",
    "Parts",
    "SelfAttention",
    "State",
    "Transformer",
    "TransformerConfig",
    "fused_attention",
    "plain_attention",
]
