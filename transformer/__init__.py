"""Transformers for translation and language modelling: tensors and masks in, logits out.

The package depends on torch alone. Start from ``Transformer``, ``DecoderOnly`` or ``LanguageModel``; vary a
model by its config, or by ``Parts``.
"""

from .attention import fused_attention, plain_attention
from .cache import Features, Memory, State
from .config import DecoderOnlyConfig, LanguageModelConfig, TransformerConfig
from .decoder import Decoder
from .decoder_only import DecoderOnly
from .encoder import Encoder
from .language_model import LanguageModel
from .layers import Parts
from .model import Transformer
from .multihead import CrossAttention, SelfAttention

__all__ = [
    "CrossAttention",
    "Decoder",
    "DecoderOnly",
    "DecoderOnlyConfig",
    "Encoder",
    "Features",
    "LanguageModel",
    "LanguageModelConfig",
    "Memory",
    "Parts",
    "SelfAttention",
    "State",
    "Transformer",
    "TransformerConfig",
    "fused_attention",
    "plain_attention",
]
