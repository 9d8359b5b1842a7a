"""Small Transformers with weights far from their initial ones, and a batch, shared by their tests."""

from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from transformer import DecoderOnly, DecoderOnlyConfig, LanguageModel, Transformer, TransformerConfig
from transformer.model import STANDARD, Parts

D, HEADS, SRC_V, TGT_V = 16, 4, 11, 13
B, S, T = 3, 6, 5
LENGTHS = (S, 4, 1)
EXACT = {"rtol": 0.0, "atol": 1e-12}
VARIANTS = pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post"},
        {"head_size": 3, "positions": "learned"},
        {"num_heads": 3, "head_size": 7, "activation": "gelu", "tie": "all"},
        {"positions": "none", "tie": "none", "num_heads": 1},
        {"positions": "rotary", "norm_kind": "rms", "activation": "swiglu", "bias": False},
        {"positions": "relative", "max_distance": 2, "value_size": 5},
        {"positions": "alibi", "num_heads": 3, "head_size": 6, "decoder_mask": "window:2"},
        {"positions": "concat", "position_size": 6, "attention_kind": "unscaled", "norm": "post"},
        {"positions": "concat-learned", "attention_kind": "hard", "max_positions": 14, "bias": False},
        {"positions": "network", "norm_kind": "rms", "norm": "post", "value_size": 2},
        {"encoder_mask": "window:2", "decoder_mask": "window:1", "cross_mask": "window:1"},
        {"positions": "alibi", "encoder_mask": "causal", "cross_mask": "causal"},
        {"num_kv_heads": 2, "positions": "rotary"},
        {"num_kv_heads": 1, "value_size": 3, "decoder_mask": "window:2", "cross_mask": "window:1"},
        {"num_kv_heads": 2, "positions": "t5", "max_distance": 20},
        {"positions": "t5", "encoder_mask": "causal", "attention_kind": "unscaled"},
        {"num_kv_heads": 2, "positions": "learned", "attention_kind": "hard"},
        {"attention_kind": "linear", "value_size": 3, "norm": "post"},
        {"projections": "shared-qk", "value_size": 3, "attention_kind": "unscaled"},
        {"projections": "shared-qk", "positions": "rotary", "bias": False, "num_heads": 2},
        {"projections": "none", "num_heads": 1, "cross_mask": "window:1", "norm": "post"},
        {"projections": "none", "num_heads": 1, "positions": "relative", "attention_kind": "unscaled"},
        {"qk_norm": True, "positions": "rotary", "num_kv_heads": 2, "norm": "post"},
        {"qk_norm": True, "positions": "alibi", "projections": "shared-qk", "attention_kind": "hard"},
        {"attention_kind": "linear", "num_heads": 8, "positions": "learned", "encoder_mask": "window:2"},
    ],
    ids=str,
)

Model = TypeVar("Model", bound=nn.Module)


def small(**changes: Any) -> TransformerConfig:
    sizes = {"d_model": D, "num_heads": HEADS, "encoder_layers": 2, "decoder_layers": 3, "ffn_size": 32}
    return TransformerConfig(**{**sizes, "dropout": 0.0, **changes})


def small_only(**changes: Any) -> DecoderOnlyConfig:
    sizes = {"d_model": D, "num_heads": HEADS, "num_layers": 3, "ffn_size": 32}
    return DecoderOnlyConfig(**{**sizes, "dropout": 0.0, **changes})


def far(model: Model) -> Model:
    """Move every weight far from its start: biases and norms count, attention is sharp."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def make(parts: Parts = STANDARD, **changes: Any) -> Transformer:
    joint = changes.get("tie") == "all"
    return far(Transformer(small(**changes), TGT_V if joint else SRC_V, TGT_V, parts))


def make_only(**changes: Any) -> DecoderOnly:
    joint = changes.get("tie") == "all"
    return far(DecoderOnly(small_only(**changes), TGT_V if joint else SRC_V, TGT_V))


def make_language_model(**changes: Any) -> LanguageModel:
    changes = {name: value for name, value in changes.items() if name not in ("encoder_mask", "cross_mask")}
    return far(LanguageModel(small_only(**changes), TGT_V))


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Sources (B, S) of LENGTHS with noise for padding, their mask, and targets (B, T)."""
    src_mask = torch.arange(S) < torch.tensor(LENGTHS).unsqueeze(1)
    return torch.randint(SRC_V, (B, S)), src_mask, torch.randint(TGT_V, (B, T))


def stepped(model: Any, src: Tensor, mask: Tensor, tgt: Tensor) -> Tensor:
    """Compute the logits (B, T, V) of tgt (B, T) step by step."""
    memory, steps = model.encode(src, mask), []
    state = model.init_state(memory, 1, tgt.size(1))
    for t in range(tgt.size(1)):
        logits, state = model.step(tgt[:, t : t + 1], state, memory)
        steps.append(logits)
    return torch.cat(steps, dim=1)
