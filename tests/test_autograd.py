"""Autograd and torch.compile on models: second derivatives are right or refused; there is one graph."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from compare.training.loss import PairWeights, TranslationLoss, linear_cross_entropy
from tests.kits.contract import make, seeded_float64, sharpen, sources, targets
from transformer.fast import Dropout

_float64 = pytest.fixture(autouse=True)(seeded_float64)
REFUSED = ["bahdanau", "luong-general", "hard-st", "self-attentive-rnn", "transformer-rnn"]


def loss(model: Any) -> Tensor:
    (src, mask), tgt = sources(), targets()
    total: Tensor = model(src, mask, tgt).logsumexp(-1).square().sum()
    return total


@pytest.fixture
def model(request: pytest.FixtureRequest) -> nn.Module:
    return make(request.param).eval()


def slope(model: nn.Module, direction: list[Tensor], *, create_graph: bool) -> Tensor:
    """Compute the derivative of the loss along a direction in the space of all parameters."""
    grads = torch.autograd.grad(loss(model), list(model.parameters()), create_graph=create_graph)
    total = sum((grad * part).sum() for grad, part in zip(grads, direction, strict=True))
    assert isinstance(total, Tensor)
    return total


@pytest.mark.parametrize("model", ["lstm", "transformer", "min-gru", "transformer-linear"], indirect=True)
def test_second_derivatives_equal_difference_quotients(model: nn.Module):
    torch.manual_seed(1)
    parameters = list(model.parameters())
    direction = [torch.randn_like(parameter) for parameter in parameters]
    grads = torch.autograd.grad(slope(model, direction, create_graph=True), parameters)
    second = sum(float((grad * part).sum()) for grad, part in zip(grads, direction, strict=True))
    slopes = []
    for shift in (1e-5, -2e-5):
        with torch.no_grad():
            for parameter, part in zip(parameters, direction, strict=True):
                parameter.add_(part, alpha=shift)
        slopes.append(float(slope(model, direction, create_graph=False)))
    assert second == pytest.approx((slopes[0] - slopes[1]) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("model", REFUSED, indirect=True)
def test_second_derivatives_that_would_be_wrong_are_refused(model: nn.Module):
    """The source embedding alone is refused too, though no custom function touches it."""
    for chosen in (list(model.parameters()), [next(model.parameters())]):
        with pytest.raises(RuntimeError, match="step by step has no second derivatives"):
            torch.autograd.grad(loss(model), chosen, create_graph=True, allow_unused=True)
    with pytest.raises(RuntimeError, match="step by step has no second derivatives"):
        loss(model).backward(create_graph=True)
    loss(model).backward()


@pytest.mark.parametrize("pair", [None, PairWeights(0.5, 1.0, 1.0)])
def test_the_training_loss_refuses_second_derivatives(pair: PairWeights | None):
    """The gradient of its square has a graph, even though that of the loss has none."""
    passes = [torch.randn(5, 3, requires_grad=True) for _ in range(1 if pair is None else 2)]
    layer = [torch.randn(shape, requires_grad=True) for shape in ((7, 3), (7,))]
    for power in (1, 2):
        smoothed, _ = linear_cross_entropy(passes, *layer, torch.arange(5), 0.1, pair)
        with pytest.raises(RuntimeError, match="training loss has no second derivatives"):
            torch.autograd.grad(smoothed**power, [*passes, *layer], create_graph=True)


def test_dropout_has_right_first_and_second_derivatives():
    def dropped(x: Tensor) -> Tensor:
        torch.manual_seed(1)
        result: Tensor = Dropout(0.3)(x.tanh())
        return result

    x = torch.randn(3, 5, requires_grad=True)
    assert gradcheck(dropped, x)
    assert gradgradcheck(dropped, x)


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*:DeprecationWarning")  # in torch itself
def test_one_graph_gives_loss_and_gradients():
    """``fullgraph=True`` refuses any part that torch.compile cannot trace."""
    model = make("transformer").eval()
    sharpen(model)
    (src, mask), tgt = sources(), targets(4)
    criterion = TranslationLoss(model, 0.1)
    gradients = []
    for call in (torch.compile(criterion, backend="eager", fullgraph=True), criterion):
        total = call(src, mask, tgt[:, :-1], tgt[:, 1:], torch.ones(4, 3, dtype=torch.bool), tgt_tokens=12)
        gradients.append([total.minimised, *torch.autograd.grad(total.minimised, list(model.parameters()))])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
