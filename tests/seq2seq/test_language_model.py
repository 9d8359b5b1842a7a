"""The recurrent language model: against its formula, with weights of zero, and which configs are refused."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from compare.optim import OptimConfig, build_optimizer
from seq2seq import RecurrentLanguageModel, RecurrentLanguageModelConfig, RegularisationConfig
from transformer import LanguageModel, LanguageModelConfig

V, H = 11, 6


@pytest.fixture
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def lstm_twin(model: RecurrentLanguageModel, ids: list[int]) -> Tensor:
    """Hochreiter and Schmidhuber 1997 with a forget gate, one token at a time; residual from layer three."""
    weights = model.decoder.rnn.layers
    h = [torch.zeros(H) for _ in weights]
    c = [torch.zeros(H) for _ in weights]
    logits = []
    for token in ids:
        x = model.decoder.embedding.weight[token]
        for layer, (of_x, of_h, bias_x, bias_h) in enumerate(weights):
            i, f, g, o = (of_x @ x + of_h @ h[layer] + bias_x + bias_h).chunk(4)
            c[layer] = f.sigmoid() * c[layer] + i.sigmoid() * g.tanh()
            h[layer] = o.sigmoid() * c[layer].tanh()
            x = x + h[layer] if layer >= 2 else h[layer]
        logits.append(model.output.weight @ x + model.output.bias)
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
    logits, twin = model(ids), torch.stack([lstm_twin(model, row.tolist()) for row in ids])
    torch.testing.assert_close(logits, twin, rtol=1e-10, atol=1e-10)
    parameters = [*model.parameters()]
    ours, theirs = (torch.autograd.grad(each.sin().sum(), parameters) for each in (logits, twin))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cell", ["lstm", "gru", "layer-norm-lstm", "min-gru", "min-lstm"])
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tie": "all"}, 'tie "all" shares a source embedding, which a language model lacks: use "output"'),
        ({"hidden_size": 8}, "needs embeddings as wide as the input of the output layer, got 6 and 8"),
        ({"cell": "rnn"}, "cell must be one of lstm, gru"),
        ({"num_layers": 0}, "num_layers must be at least 1"),
        (
            {"dropout": 0.0, "regularisation": RegularisationConfig(variational=True)},
            "variational has no effect with dropout 0",
        ),
    ],
)
def test_what_cannot_be_or_has_no_effect_is_refused_in_one_line(changes: dict[str, object], message: str):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        RecurrentLanguageModelConfig(**{"embedding_size": 6, "hidden_size": 6, **changes})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tie": "all"}, 'tie "all" shares a source embedding'),
        ({"encoder_mask": "causal"}, "encoder_mask has no effect in a language model"),
        ({"cross_mask": "window:2"}, "cross_mask has no effect in a language model"),
    ],
)
def test_options_of_a_source_are_refused_in_a_transformer_too(changes: dict[str, str], message: str):
    with pytest.raises(ValueError, match=message):
        LanguageModelConfig(**changes)
