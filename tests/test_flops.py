"""The closed formulas against torch's own counter, under settings where that counts every product."""

import itertools

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compare.flops import forward_flops, train_flops_per_token
from compare.models import PRESETS, build
from seq2seq.config import Seq2SeqConfig
from transformer.config import TransformerConfig

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")  # said when oneDNN is switched off

B, S, T, V = 2, 5, 7, 23
SIZES = {"src_len": S, "tgt_len": T, "tgt_vocabulary": V}


def counted(config: Seq2SeqConfig | TransformerConfig) -> tuple[int, int]:
    """What torch counts in a forward pass and in an update; its fused kernels, which count 0, are off."""
    model = build(config, V, V)
    src, tgt = torch.randint(V, (B, S)), torch.randint(V, (B, T))
    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            logits = model(src, torch.ones(B, S, dtype=torch.bool), tgt)
        with FlopCounterMode(display=False) as backward:
            logits.sum().backward()
    return forward.get_total_flops(), forward.get_total_flops() + backward.get_total_flops()


def recurrent(**changes) -> Seq2SeqConfig:
    return Seq2SeqConfig(**{"embedding_size": 6, "hidden_size": 10, **changes})


RECURRENT = [
    recurrent(attention=attention, cell=cell, num_layers=layers, bidirectional=layers == 1, **rest)
    for attention, cell, layers, rest in itertools.product(
        ["none", "additive", "dot", "general", "concat"],
        ["lstm", "gru"],
        [1, 3],
        [{}, {"placement": "after"}, {"placement": "after", "input_feeding": True, "tie": "output"}],
    )
    if attention != "none" or not rest
]
SPECIAL = [
    recurrent(attention_size=4),
    recurrent(tie="all", num_layers=2, reverse_source=True),
    recurrent(attention="none", tie="output"),
    TransformerConfig(d_model=12, num_heads=3, encoder_layers=2, decoder_layers=3, ffn_size=20),
    TransformerConfig(d_model=12, num_heads=2, encoder_layers=1, decoder_layers=1, ffn_size=9, tie="all"),
]


@pytest.mark.parametrize("config", RECURRENT + SPECIAL, ids=str)
def test_forward_flops_are_exactly_those_torch_counts(config):
    assert B * forward_flops(config, **SIZES) == counted(config)[0]


@pytest.mark.parametrize("config", SPECIAL, ids=str)
def test_an_update_is_three_forward_passes(config):
    """Exactly so in a Transformer; an RNN's first state is given, so its product has one gradient less."""
    formula = B * (S - 1 + T) * train_flops_per_token(config, **SIZES)
    if isinstance(config, TransformerConfig):
        assert formula == pytest.approx(counted(config)[1], rel=1e-12)
    else:
        assert 0.9 * formula < counted(config)[1] <= formula


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_a_count_that_is_linear_in_a_mean_target_vocabulary(preset):
    config = PRESETS[preset].architecture
    small, large = (
        forward_flops(config, src_len=11.5, tgt_len=12.25, tgt_vocabulary=size) for size in (8_000, 9_000)
    )
    width = config.d_model if isinstance(config, TransformerConfig) else config.output_size
    assert large - small == 2 * 12.25 * width * 1_000


def test_the_transformers_paper_size_by_hand():
    """Base model with S = T = 1: each weight of a layer is used once, each of 18 attentions has one pair."""
    config = TransformerConfig(d_model=512, num_heads=8, encoder_layers=6, decoder_layers=6, ffn_size=2048)
    weights = 6 * (4 * 512**2 + 2 * 512 * 2048) + 6 * (8 * 512**2 + 2 * 512 * 2048)
    pairs = 18 * 2 * 512
    found = forward_flops(config, src_len=1, tgt_len=1, tgt_vocabulary=37_000)
    assert found == 2 * (weights + pairs + 512 * 37_000)
