"""Models of every family as torch.compile traces them."""

from dataclasses import replace

import pytest
import torch
import torch._dynamo
from torch import nn

from compare.models.registry import build
from compare.training.loss import TranslationLoss
from tests.kits.contract import V, sharpen, sources, targets, tiny

FAMILIES = ["lstm", "luong-general", "transformer"]


def make(name: str, *, num_layers: int = 1) -> nn.Module:
    """Build a tiny preset of few layers, as a trace takes time per layer, with sharp weights."""
    architecture = tiny(name).architecture
    layers = {"num_layers", "encoder_layers", "decoder_layers"} & vars(architecture).keys()
    torch.manual_seed(0)
    model = build(replace(architecture, **dict.fromkeys(layers, num_layers)), V - 2, V).eval()
    sharpen(model)
    return model


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*:DeprecationWarning")  # in torch itself
@pytest.mark.parametrize(
    "name", [*FAMILIES, *(pytest.param(name, marks=pytest.mark.slow) for name in ("ladder", "min-lstm"))]
)
def test_loss_and_gradients_of_one_graph(name: str):
    """``fullgraph=True`` refuses any part that torch.compile cannot trace."""
    model = make(name).double()
    (src, mask), tgt = sources(), targets(4)
    criterion = TranslationLoss(model, 0.1)
    found = []
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(criterion, backend="eager", fullgraph=True)
        for call in (compiled, criterion):
            loss = call(src, mask, tgt[:, :-1], tgt[:, 1:], torch.ones(4, 3, dtype=torch.bool), tgt_tokens=12)
            found.append([loss.minimised, *torch.autograd.grad(loss.minimised, list(model.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
