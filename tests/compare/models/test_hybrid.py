"""Hybrids: which settings they have, and where the decoder starts."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from compare.models.hybrid import HybridConfig, LadderConfig
from compare.models.presets import PRESETS
from compare.models.registry import build
from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig
from transformer.gated_linear import GatedLinearAttention

ENCODER = TransformerConfig(d_model=12, num_heads=3, encoder_layers=1, decoder_layers=1, ffn_size=8)
DECODER = Seq2SeqConfig(embedding_size=6, hidden_size=10, dropout=0.1, tie="output")


def test_a_decoder_without_projections_needs_states_of_its_width():
    decoder = replace(ENCODER, dropout=0.1, num_heads=1, projections="none")
    with pytest.raises(ValueError, match='projections "none" needs encoder_size 12, which is d_model'):
        HybridConfig(encoder=DECODER, decoder=decoder)
    HybridConfig(encoder=replace(DECODER, encoder_size=12), decoder=decoder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder_start": "last"}, 'decoder_start "last" must be "bridge" or "zeros": a Transformer'),
        ({"readout": "none", "tie": "none"}, 'readout "none" needs a recurrent encoder'),
        ({"attention": None}, "the decoder needs an attention"),
        ({"dropout": 0.3}, "dropout must be the same in both halves, got 0.1 and 0.3"),
        ({"tie": "all"}, 'tie "all" needs embeddings of one width, got 12 and 6'),
    ],
)
def test_halves_that_contradict_each_other_are_refused(changes: dict[str, Any], message: str):
    tie = changes.get("tie", "output")
    with pytest.raises(ValueError, match=message):
        HybridConfig(encoder=replace(ENCODER, tie=tie), decoder=replace(DECODER, **changes))


def test_only_the_half_that_is_used_has_settings():
    """Masks of the half that is not there are no settings of a hybrid."""
    halves = {"transformer-rnn": ("encoder_mask",), "rnn-transformer": ("decoder_mask", "cross_mask")}
    for name, masks in halves.items():
        settings = PRESETS[name].model.settings()
        every = {"encoder_mask", "decoder_mask", "cross_mask"}
        assert settings.keys() & every == set(masks)
        changed = PRESETS[name].model.override(
            dict.fromkeys(masks, "window:1") | {"d_model": 16, "ffn_size": 8}
        )
        model = build(changed.architecture, 9, 9).eval()
        src, tgt = torch.tensor([[4, 5, 6, 7, 8]]), torch.tensor([[2, 5, 6, 7]])
        for kind, weights in model.attention(src, None, tgt).items():
            if f"{kind.split('.')[0]}_mask" in masks:
                far = (torch.arange(weights.size(2)).unsqueeze(1) - torch.arange(weights.size(3))).abs() > 1
                assert not weights[..., far].any()
                assert weights[..., ~far].any()


@pytest.mark.parametrize(("name", "half"), [("transformer-rnn", "decoder"), ("rnn-transformer", "encoder")])
def test_the_recurrent_half_may_attend_to_its_own_states(name: str, half: str):
    """The other half is a Transformer's, whose self-attention is no setting: others would do nothing."""
    preset = PRESETS[name].model
    small = {"d_model": 16, "ffn_size": 8, "hidden_size": 6}
    model = build(preset.override({**small, "self_attention": half}).architecture, 9, 9).eval()
    src, tgt = torch.tensor([[4, 5, 6, 7, 8]]), torch.tensor([[2, 5, 6, 7]])
    length = src.size(1) if half == "encoder" else tgt.size(1)
    assert model.attention(src, None, tgt)[half].shape[2:] == (length, length)
    assert half not in build(preset.override(small).architecture, 9, 9).eval().attention(src, None, tgt)
    for other in {"encoder", "decoder", "both"} - {half}:
        with pytest.raises(ValueError, match=f'"{other}" is of an RNN that is not there: .* is its {half}:'):
            preset.override({"self_attention": other})


def test_it_starts_from_the_mean_state_or_from_zeros():
    src, mask = torch.tensor([[4, 5, 6]]), torch.tensor([[True, True, False]])
    for start in ("bridge", "zeros"):
        config = HybridConfig(encoder=ENCODER, decoder=replace(DECODER, decoder_start=start))
        model = build(config, 9, 9).double().eval()
        state, expected = model.init_state(model.encode(src, mask), beam=1, capacity=5).h[:, 0, 0], 0.0
        if start == "bridge":
            expected = model.decoder.bridge(model.encoder(src[:, :2])[0].mean(1)).tanh()[:, :10]
        torch.testing.assert_close(state, torch.zeros_like(state) + expected, rtol=0, atol=1e-12)


def test_the_readout_of_a_recurrent_decoder_has_dropout_in_training():
    halves = replace(ENCODER, dropout=0.5), replace(DECODER, dropout=0.5)
    model = build(HybridConfig(encoder=halves[0], decoder=halves[1]), 9, 9)
    src, tgt = torch.tensor([[4, 5, 6, 7, 8]] * 50), torch.tensor([[2, 5, 6, 7]] * 50)  # 1,200 values
    assert 0.4 < (model.features(src, None, tgt).hidden == 0).float().mean() < 0.6
    assert (model.eval().features(src, None, tgt).hidden != 0).all()


LADDER = LadderConfig(d_model=16, ffn_size=8, num_heads=2, encoder_mixer="lstm", decoder_mixer="gated-linear")


@pytest.mark.parametrize(
    "architecture",
    [
        HybridConfig(encoder=ENCODER, decoder=DECODER),
        HybridConfig(encoder=DECODER, decoder=replace(ENCODER, dropout=0.1)),
        LADDER,
        replace(LADDER, encoder_mixer="gated-linear", decoder_mixer="lstm", state_decay="scalar"),
    ],
)
def test_each_half_starts_as_in_its_own_family(architecture: Any):
    """Torch's own first biases are not 0, nor 1 in forget gates; decays of states begin near 1."""
    model = build(architecture, 9, 9)
    biases = [module.bias for module in model.modules() if isinstance(module, nn.Linear)]
    assert not any(bias.any() for bias in biases if bias is not None)
    for lstm in (module for module in model.modules() if isinstance(module, nn.LSTM)):
        gates = dict(lstm.named_parameters())["bias_ih_l0"].chunk(4)
        assert [gate.unique().tolist() for gate in gates] == [[0.0], [1.0], [0.0], [0.0]]
    for layer in (module for module in model.modules() if isinstance(module, GatedLinearAttention)):
        decays = layer._log_decay(torch.randn(50, 16), torch.float32).exp()
        assert decays.mean() > 0.9
