"""Models of every family as torch.export and torch.compile trace them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import tree_leaves

from compare.models.registry import build
from compare.protocol import keep, select
from compare.training.loss import TranslationLoss
from tests.kits.contract import V, sharpen, sources, targets, tiny

FAMILIES = ["lstm", "luong-general", "transformer"]
OTHERS = ["bahdanau", "gru-context", "decoder-only", "transformer-rnn", "min-lstm", "transformer-linear"]
BEAM = 3
SENTENCES, LENGTH, STEPS = 7, 9, 5  # of the example to trace; no tiny model has one of these sizes itself
EXAMPLE = sources((9, 2, 5, 1, 1, 8, 3))


def make(name: str, *, num_layers: int = 1) -> nn.Module:
    """Build a tiny preset of few layers, as a trace takes time per layer, with sharp weights."""
    architecture = tiny(name).architecture
    layers = {"num_layers", "encoder_layers", "decoder_layers"} & vars(architecture).keys()
    torch.manual_seed(0)
    model = build(replace(architecture, **dict.fromkeys(layers, num_layers)), V - 2, V).eval()
    sharpen(model)
    return model


class Encode(nn.Module):
    """The method ``encode`` as a module, as torch.export takes it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: Tensor, src_mask: Tensor) -> Any:
        return self.model.encode(src, src_mask)


class Step(Encode):
    """The method ``step`` as a module."""

    def forward(self, tokens: Tensor, state: Any, memory: Any) -> Any:
        return self.model.step(tokens, state, memory)


def export_encode(model: nn.Module) -> ExportedProgram:
    """Export ``encode`` for any number of sentences of any length."""
    sizes = {0: Dim("sentences"), 1: Dim("length")}
    return torch.export.export(Encode(model), EXAMPLE, dynamic_shapes=(sizes, sizes))


def export_step(model: nn.Module) -> ExportedProgram:
    """Export ``step`` for any number of sentences, lengths and steps, but for ``BEAM`` hypotheses."""
    memory = model.encode(*EXAMPLE)
    state = model.init_state(memory, BEAM, 8)
    tokens = torch.full((SENTENCES, BEAM), 5)
    for _ in range(STEPS):
        _, state = model.step(tokens, state, memory)
    arguments = (tokens, state, memory)
    return torch.export.export(Step(model), arguments, dynamic_shapes=tuple(map(dynamic, arguments)))


def dynamic(tree: Any) -> Any:
    """Describe the sizes in a tree: those of the example vary, those of the model and the beam do not."""
    if isinstance(tree, Tensor):
        return [Dim.DYNAMIC if size in (SENTENCES, LENGTH, STEPS) else Dim.STATIC for size in tree.shape]
    if isinstance(tree, tuple):
        parts = [dynamic(part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return [dynamic(part) for part in tree_leaves(tree)]  # transformer.cache.KeyValueCache


def assert_same(found: Any, expected: Any) -> None:
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@pytest.fixture(params=[*FAMILIES, *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)])
def model(request: pytest.FixtureRequest) -> nn.Module:
    return make(request.param)


OTHER_SOURCES = [sources((7, 2, 2, 3, 6, 1), width=9), sources((4,)), sources((1,))]


@torch.no_grad()
def test_an_exported_search_computes_what_the_model_does(model: nn.Module):
    """Sentences of other number and length, hypotheses that are reordered, sentences that are dropped."""
    encode, step = export_encode(model).module(), export_step(model).module()
    for src, mask in OTHER_SOURCES:
        memories = encode(src, mask), model.encode(src, mask)
        assert_same(*memories)
        states = [model.init_state(memory, BEAM, 8) for memory in memories]
        for t in range(4):
            tokens = torch.arange(4, 4 + src.size(0) * BEAM).view(-1, BEAM) % (V - 4) + 4
            (logits, first), (expected, second) = (
                call(tokens, state, memory)
                for call, state, memory in zip((step, model.step), states, memories, strict=True)
            )
            assert_same((logits, first), (expected, second))
            parents = torch.tensor([[2, 0, 0]]).expand(src.size(0), -1)
            states = [select(state, parents) for state in (first, second)]
            if t == 1 and src.size(0) > 3:
                rows = torch.tensor([0, 2, 3])
                states, memories = [keep(s, rows) for s in states], [keep(m, rows) for m in memories]
                src = src[rows]


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
