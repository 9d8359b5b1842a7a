"""Transformers for translation and language modelling: tensors and masks in, logits out.

The package depends on torch alone, and on NumPy where a mask is read from a file. Start from ``Transformer``,
``DecoderOnly`` or ``LanguageModel``; vary a model by its config, or by ``Parts``.
"""

from .attention import plain_attention
from .config import DecoderOnlyConfig, LanguageModelConfig, TransformerConfig
from .decoder_only import DecoderOnly, LanguageModel
from .model import Decoder, Encoder, Parts, Transformer
from .multihead import Memory

__all__ = [
    "Decoder",
    "DecoderOnly",
    "DecoderOnlyConfig",
    "Encoder",
    "LanguageModel",
    "LanguageModelConfig",
    "Memory",
    "Parts",
    "Transformer",
    "TransformerConfig",
    "plain_attention",
]
