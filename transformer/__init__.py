"""Transformers for translation and language modelling: tensors and masks in, logits out.

The package depends on torch alone, and on NumPy where a mask is read from a file. Start from ``Transformer``,
``DecoderOnly`` or ``LanguageModel``; vary a model by its config, or by ``Parts``.
"""

from .attention import fused_attention, plain_attention
from .config import DecoderOnlyConfig, LanguageModelConfig, TransformerConfig
from .decoder_only import DecoderOnly, LanguageModel
from .layers import Parts
from .model import Decoder, Encoder, Transformer
from .multihead import CrossAttention, Features, Memory, SelfAttention, State

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
