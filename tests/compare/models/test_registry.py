"""FLOPs by closed formulas against torch's own counter, models on the meta device, and settings by name."""

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compare.config.sections import RegularizationConfig
from compare.models import registry
from compare.models.hybrid import HybridConfig, LadderConfig
from compare.models.presets import PRESETS
from compare.models.registry import (
    Architecture,
    build,
    build_meta_model,
    ensure_fits_memory,
    forward_flops,
    train_flops_per_token,
    training_bytes,
)
from compare.training.loss import TranslationLoss
from seq2seq.config import AttentionConfig, RecurrentLanguageModelConfig, Seq2SeqConfig
from tests.kits.contract import VARIANTS, tiny
from transformer.config import DecoderOnlyConfig, TransformerConfig

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")  # a warning when oneDNN is switched off

B, S, T, V = 2, 5, 7, 23
SIZES = {"src_len": S, "tgt_len": T, "tgt_vocabulary": V}


def counted(config: Architecture) -> tuple[int, int]:
    """FLOPs that torch counts in a forward pass and in an update, without fused kernels, which count 0."""
    model = build(config, V, V)
    src, tgt = torch.randint(V, (B, S)), torch.randint(V, (B, T))
    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            logits = model(src, torch.ones(B, S, dtype=torch.bool), tgt)
        with FlopCounterMode(display=False) as backward:
            logits.sum().backward()
    return forward.get_total_flops(), forward.get_total_flops() + backward.get_total_flops()


ADDITIVE = AttentionConfig()


def recurrent(attention: AttentionConfig | None = ADDITIVE, **changes: Any) -> Seq2SeqConfig:
    return Seq2SeqConfig(attention=attention, **{"embedding_size": 6, "hidden_size": 10, **changes})


SMALL = {"d_model": 12, "num_heads": 3, "encoder_layers": 2, "decoder_layers": 3, "ffn_size": 20}


def transformer(**changes: Any) -> TransformerConfig:
    return TransformerConfig(**{**SMALL, **changes})


SPECIAL = [
    recurrent(AttentionConfig(score="scaled-dot", num_heads=2, attention_size=6), encoder_size=14),
    recurrent(AttentionConfig(score="general", scope="local-p"), readout="maxout"),
    recurrent(AttentionConfig(map_values=True, attention_size=6)),
    recurrent(AttentionConfig(num_heads=2), cell="layer-norm-lstm", num_layers=2),
    recurrent(AttentionConfig(score="location-aware", kernel_size=3, normaliser="monotonic")),
    recurrent(
        AttentionConfig(query_layer=2, context_to="all"), num_layers=3, encoder_layers=2, readout="none"
    ),
    recurrent(cell="min-lstm", num_layers=2, encoder_layers=3, encoder_size=14, pre_norm=True),
    recurrent(None, cell="gru", feed_summary=True),
    recurrent(None, num_layers=2, decoder_start="bridge", encoder_size=14),
    recurrent(AttentionConfig(score="general", placement="after"), cell="gru", decoder_start="zeros"),
    transformer(projections="shared-qk", value_size=2),
    transformer(projections="none", num_heads=1),
    transformer(attention_kind="linear", num_heads=6, decoder_mask="window:2"),
    transformer(value_size=3, activation="swiglu", bias=False, norm_kind="rms", positions="rotary"),
    transformer(positions="relative", max_distance=3, value_size=7),
    transformer(positions="alibi", attention_kind="hard", cross_mask="window:1"),
    LadderConfig(**SMALL, encoder_mixer="lstm", decoder_mixer="gru", cross_layers="last"),
    LadderConfig(**SMALL, feed_forward=False, residual=False),
    DecoderOnlyConfig(d_model=12, num_heads=2, num_layers=3, ffn_size=9),
    DecoderOnlyConfig(d_model=12, num_heads=6, num_layers=1, ffn_size=9, attention_kind="linear"),
    RecurrentLanguageModelConfig(cell="min-lstm", embedding_size=6, hidden_size=10, tie="none"),
    HybridConfig(encoder=transformer(), decoder=recurrent(dropout=0.1, tie="output", decoder_start="zeros")),
    HybridConfig(encoder=recurrent(dropout=0.1, tie="output", encoder_size=14), decoder=transformer()),
]


TINY = [tiny(name).architecture for name in PRESETS if name != "self-attentive-rnn"]
"""All presets but one, whose decoder computes half of the square of self-attention that is counted."""


@pytest.mark.parametrize("config", TINY + SPECIAL, ids=str)
def test_forward_flops_are_exactly_those_torch_counts(config):
    assert B * forward_flops(config, **SIZES) == counted(config)[0]


@pytest.mark.parametrize("config", SPECIAL, ids=str)
def test_an_update_is_three_forward_passes(config):
    """Exactly so in a Transformer; an RNN's first state is given, so its product has one gradient less."""
    formula = B * (S - 1 + T) * train_flops_per_token(config, **SIZES)
    if isinstance(config, TransformerConfig | DecoderOnlyConfig) and not isinstance(config, LadderConfig):
        assert formula == pytest.approx(counted(config)[1], rel=1e-12)
    else:
        assert 0.9 * formula < counted(config)[1] <= formula


@pytest.mark.parametrize("method", ["r-drop", "simcut"])
def test_consistency_costs_two_passes(method: str):
    """The output layer included, whose logits are computed once for each pass."""
    config = transformer()
    settings = RegularizationConfig(consistency=method)
    criterion = TranslationLoss(build(config, V, V), 0.1, settings).train()
    src, tgt = torch.randint(V, (B, S)), torch.randint(V, (B, T))
    mask, tgt_mask = torch.ones_like(src, dtype=torch.bool), torch.ones_like(tgt, dtype=torch.bool)
    with (
        torch.backends.mkldnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        criterion(src, mask, tgt, tgt, tgt_mask).minimised.backward()
    formula = B * (S - 1 + T) * train_flops_per_token(config, **SIZES, passes=settings.passes)
    assert formula == pytest.approx(counter.get_total_flops(), rel=1e-12)


def test_a_model_on_the_meta_device_is_that_of_training_but_for_its_values():
    before = torch.get_rng_state()
    for name, tie in VARIANTS:
        architecture = tiny(name, tie).architecture
        meta, built = build_meta_model(architecture, 13, 13), None
        assert torch.equal(torch.get_rng_state(), before), name  # nothing is drawn
        with torch.random.fork_rng():
            built = build(architecture, 13, 13)
        entries, expected = (
            {key: (tensor.shape, tensor.dtype) for key, tensor in model.state_dict().items()}
            for model in (meta, built)
        )
        assert entries == expected, name
        assert len(list(meta.parameters())) == len(list(built.parameters())), name  # ties are counted once
        assert all(parameter.is_meta for parameter in meta.parameters()), name


def test_a_model_that_memory_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch):
    architecture = tiny("transformer").architecture
    model = build_meta_model(architecture, 13, 13)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert (training_bytes(model, ema=False), training_bytes(model, ema=True)) == (4 * weights, 5 * weights)
    monkeypatch.setattr(registry, "physical_memory_bytes", lambda: 4 * weights)
    ensure_fits_memory(architecture, 13, 13, context="model", ema=False)
    with pytest.raises(ValueError, match=r"model: needs .* for weights, gradients and optimizer, but this"):
        ensure_fits_memory(architecture, 13, 13, context="model", ema=True)


def test_the_network_of_positions_counts_as_a_sentence_of_its_own_and_lengths_may_be_means():
    config = transformer(positions="network")
    with FlopCounterMode(display=False) as counter:
        build(config, V, V)(torch.zeros(1, S, dtype=torch.long), None, torch.zeros(1, T, dtype=torch.long))
    assert forward_flops(config, **SIZES) == counter.get_total_flops()
    assert forward_flops(config, **{**SIZES, "src_len": S - 0.5}) < forward_flops(config, **SIZES)
