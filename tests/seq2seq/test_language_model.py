"""The recurrent language model: against its formula, with weights of zero, and what both families learn."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from compare.optim import OptimConfig, build_optimizer
from seq2seq import RecurrentLanguageModel, RecurrentLanguageModelConfig, formulas
from tests.kits.contract import seeded_float64
from tests.kits.recurrent_twin import cells_of
from transformer import LanguageModel, LanguageModelConfig

V, H = 11, 6


_float64 = pytest.fixture(seeded_float64)


def twin(model: RecurrentLanguageModel, ids: Tensor) -> Tensor:
    """Compute the logits (T, V) of one text by ``seq2seq.formulas``."""
    cells, logits = cells_of(model.decoder.rnn), []
    states: list[Any] = [(torch.zeros(H), torch.zeros(H)) for _ in cells]
    for token in ids:
        outputs, states = formulas.stack_step(model.decoder.embedding.weight[token], states, cells)
        logits.append(model.output.weight @ outputs[-1] + model.output.bias)
    return torch.stack(logits)


@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize(("layers", "tie"), [(1, "none"), (2, "output"), (4, "output")])
def test_it_is_its_formula_and_so_are_its_gradients(layers: int, tie: str):
    torch.manual_seed(3)
    config = RecurrentLanguageModelConfig(embedding_size=H, hidden_size=H, num_layers=layers, tie=tie)
    model = RecurrentLanguageModel(config, V).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    assert (model.output.weight is model.decoder.embedding.weight) == (tie == "output")
    ids = torch.randint(V, (3, 7))
    logits, expected = model(ids), torch.stack([twin(model, row) for row in ids])
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
    parameters = [*model.parameters()]
    ours, theirs = (torch.autograd.grad(each.sin().sum(), parameters) for each in (logits, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn", "layer-norm-lstm", "min-gru", "min-lstm"])
def test_weights_of_zero_give_the_perplexity_of_a_guess(cell: str):
    config = RecurrentLanguageModelConfig(cell=cell, embedding_size=H, hidden_size=H, dropout=0.0)
    model = RecurrentLanguageModel(config, V)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    ids = torch.randint(V, (2, 5))
    loss = cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert math.exp(loss.item()) == pytest.approx(V, rel=1e-6)


@pytest.mark.parametrize("family", ["recurrent", "transformer"])
def test_a_markov_chain_is_learned_down_to_its_entropy(family: str):
    """After each symbol two of five are equally likely: ln 2 nats per token, and no model has less."""
    torch.manual_seed(1)
    successors = torch.tensor([[1, 2], [2, 3], [3, 4], [4, 0], [0, 1]])

    def draw(texts: int) -> Tensor:
        ids = [torch.randint(5, (texts,))]
        for _ in range(12):
            ids.append(successors[ids[-1], torch.randint(2, (texts,))])
        return torch.stack(ids, dim=1)

    model: torch.nn.Module
    if family == "recurrent":
        sizes = {"embedding_size": 16, "hidden_size": 16, "num_layers": 1}
        model = RecurrentLanguageModel(RecurrentLanguageModelConfig(dropout=0.0, **sizes), 5)
    else:
        small = {"d_model": 16, "ffn_size": 32, "num_layers": 1, "num_heads": 2}
        model = LanguageModel(LanguageModelConfig(dropout=0.0, **small), 5)
    optimizer = build_optimizer(model.parameters(), OptimConfig(learning_rate=1e-2))
    for _ in range(120):
        ids = draw(32)
        loss = cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    test = draw(200)
    with torch.no_grad():
        found = float(cross_entropy(model(test[:, :-1]).flatten(0, 1), test[:, 1:].flatten()))
    assert math.log(2) - 1e-3 < found < math.log(2) + 0.03
