"""The Transformer encoder-decoder: tensors and masks in, logits out. Imports nothing of the other rooms."""

from .config import TransformerConfig
from .model import Decoder, Encoder, Features, Memory, State, Transformer

__all__ = ["Decoder", "Encoder", "Features", "Memory", "State", "Transformer", "TransformerConfig"]
