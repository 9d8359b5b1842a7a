"""Settings of hybrids."""

from dataclasses import replace

import pytest
import torch

from compare.models.hybrid_config import HybridConfig
from compare.models.registry import build
from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig

ENCODER = TransformerConfig(d_model=12, num_heads=3, encoder_layers=1, decoder_layers=1, ffn_size=8)
DECODER = Seq2SeqConfig(embedding_size=6, hidden_size=10, dropout=0.1, tie="output")


def test_a_recurrent_decoder_cannot_start_from_the_last_states_of_a_transformer():
    """Not with an encoder of its own size either: it has no last state at all."""
    with pytest.raises(ValueError, match='decoder_start must be "bridge" or "zeros": a Transformer encoder'):
        HybridConfig(encoder=ENCODER, decoder=replace(DECODER, decoder_start="last"))


@pytest.mark.parametrize("start", ["bridge", "zeros"])
def test_it_starts_from_the_mean_state_or_from_zeros(start: str):
    config = HybridConfig(encoder=ENCODER, decoder=replace(DECODER, decoder_start=start))
    model = build(config, 9, 9).double().eval()
    src, mask = torch.tensor([[4, 5, 6]]), torch.tensor([[True, True, False]])
    state = model.init_state(model.encode(src, mask), beam=1, capacity=5)
    if start == "zeros":
        assert not state.h.any()
        assert model.decoder.bridge is None
        return
    mean = model.encoder(src[:, :2])[0].mean(1)
    bridge = model.decoder.bridge
    expected = torch.tanh(mean @ bridge.weight.t() + bridge.bias)[:, :10]
    torch.testing.assert_close(state.h[:, 0, 0], expected, rtol=0, atol=1e-12)
