"""Conditions of training that only a GPU has: precision of recurrent layers, and reproducibility."""

from typing import Any

import torch

from compare.config.run import Run
from compare.models.hybrid_config import HybridConfig
from seq2seq.config import Seq2SeqConfig
from seq2seq.layer_by_layer import has_bf16_layers

UP_TO_ROUNDING = "up to rounding, not bit by bit"


def gpu_conditions(run: Run) -> dict[str, Any]:
    """Return the fields of ``Result`` on which training on a GPU may differ; none for a processor."""
    device = torch.device(run.train.device)
    found: dict[str, Any] = {}
    is_bf16 = device.type == "cuda" and run.train.precision == "bf16"
    if is_bf16 and _has_recurrent_layers(run) and not has_bf16_layers():
        found["recurrent_precision"] = "fp32"
    if device.type != "cpu" and not run.train.deterministic:
        found["reproducible"] = UP_TO_ROUNDING
    return found


def _has_recurrent_layers(run: Run) -> bool:
    """Return whether a part of the model is recurrent."""
    config = run.model.architecture
    parts = (config.encoder, config.decoder) if isinstance(config, HybridConfig) else (config,)
    return any(isinstance(part, Seq2SeqConfig) for part in parts)
