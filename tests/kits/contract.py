"""Every preset at tiny size, and sentences for it, shared by the tests of compare/protocol.py."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from compare.config.resolve import resolve_model
from compare.config.sections import ModelConfig
from compare.decoding.search import SpecialIds
from compare.experiment.verify import BOS, EOS, PAD, V, leaves, sharpen, sources, targets  # noqa: F401  # for tests
from compare.models.presets import PRESETS
from compare.models.registry import ResolvedModel, build
from seq2seq.scores import SCORES

if TYPE_CHECKING:
    from compare.models.registry import Model

SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)
TINY = {
    "d_model": 6,
    "ffn_size": 10,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "embedding_size": 6,
    "hidden_size": 8,
    "encoder_size": 12,
    "dropout": 0.3,
}
"""Sizes for the presets that have these settings; source and target widths are equal, for tying."""
EXACT = {"rtol": 0.0, "atol": 1e-12}
TASKS = {name: preset.model.task for name, preset in PRESETS.items()}
VARIANTS = [
    (name, "all" if number % 2 and TASKS[name] == "translation" else "output")
    for number, name in enumerate(PRESETS)
]
"""(preset, tie): one way of tying per preset, since little else depends on it."""


def seeded_float64() -> Iterator[None]:
    """Use one seed per test and float64, so that rounding hides no fault; body of a fixture."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def tiny(name: str, tie: str = "output") -> ResolvedModel:
    """Resolve a preset at tiny sizes that reach each of its limits: window, largest positions, layers."""
    settings = resolve_model(ModelConfig(preset=name, label=name)).settings()
    changes = {key: value for key, value in TINY.items() if settings.get(key) is not None}
    changes |= {"tie": tie} if "tie" in settings else {}
    changes |= {"num_heads": 2} if settings.get("num_heads", 1) > 1 else {}
    changes |= {"num_layers": 3} if settings.get("num_layers", 1) > 1 else {}
    changes |= {"head_size": 4} if settings.get("positions") == "rotary" else {}
    changes |= {"encoder_layers": 2} if settings.get("encoder_layers") else {}
    if settings.get("readout") == "none":  # tied, embeddings are as wide as the input of the output layer
        context = TINY["hidden_size"] if settings.get("context_to_readout") else 0
        changes |= {"embedding_size": TINY["hidden_size"] + context}
    changes |= {"window": 2} if settings.get("scope", "global") != "global" else {}
    changes |= {"attention_size": 4} if settings.get("attention_size") else {}
    if (score := SCORES.get(settings.get("score", ""))) is not None:
        changes |= {name: 4 for name in ("max_source", "max_target") if name in score.options}
    return resolve_model(ModelConfig(preset=name, label=name, overrides=changes))


def make(name: str, tie: str = "output", seed: int = 0) -> "Model":
    """Build a preset at tiny size."""
    architecture = tiny(name, tie).architecture
    torch.manual_seed(seed)
    return build(architecture, V if tie == "all" else V - 2, V)
