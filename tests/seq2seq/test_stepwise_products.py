"""Products of a loop over time steps, whose gradient is one product: equal to what autograd finds."""

import pytest
import torch
from torch import Tensor

from seq2seq import AttentionConfig
from seq2seq.attention import Attention, Queries
from seq2seq.fast import StepwiseLinear, StepwiseProduct


def double(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def test_gradients_of_a_stepwise_linear() -> None:
    def run(weight: Tensor, offsets: Tensor, x: Tensor) -> Tensor:
        layer = StepwiseLinear(weight, offsets)
        return torch.stack([layer(a, b).sin() for a, b in zip(layer.offsets.unbind(), x, strict=True)])

    assert torch.autograd.gradcheck(run, (double(3, 2), double(4, 5, 3), double(4, 5, 2)))


@pytest.mark.parametrize("leading", [(3,), (3, 2)])
def test_gradients_of_a_stepwise_product(leading: tuple[int, ...]) -> None:
    def run(matrix: Tensor, x: Tensor) -> Tensor:
        product = StepwiseProduct(matrix, len(x))
        return torch.stack([product(step).sin() for step in x])

    matrix, x = double(*leading, 4, 5), double(6, *leading, 1, 4)
    assert torch.equal(run(matrix, x), torch.stack([(step @ matrix).sin() for step in x]))
    assert torch.autograd.gradcheck(run, (matrix, x))


@pytest.mark.parametrize(
    "config",
    [
        AttentionConfig(score="additive"),
        AttentionConfig(score="general"),
        AttentionConfig(score="dynamic-factorised", attention_size=3),
        AttentionConfig(score="scaled-dot", attention_size=6, num_heads=2),
        AttentionConfig(score="general", scope="local-p", window=1),
        AttentionConfig(score="general", normaliser="straight-through"),
    ],
    ids=lambda config: f"{config.score}-{config.scope}-{config.normaliser}",
)
def test_stepwise_attention_equals_attention_and_its_gradients(config: AttentionConfig) -> None:
    torch.manual_seed(1)
    attention = Attention(config, 4, 5).double()
    states, queries = double(2, 6, 5), double(3, 2, 1, 4)
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    inputs = (states, queries, *attention.parameters())

    def run(stepwise: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        source = attention.remember(states, mask)
        attend = (
            attention.stepwise(source, len(queries)) if stepwise else lambda query: attention(query, source)
        )
        outputs = [attend(Queries(query, torch.full((2, 1), t))) for t, query in enumerate(queries)]
        contexts = torch.stack([output.context for output in outputs])
        weights = torch.stack([output.weights for output in outputs])
        loss = contexts.sin().sum() + weights.square().sum()
        return contexts, torch.autograd.grad(loss, inputs)

    (found, gradients), (expected, others) = run(True), run(False)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    for left, right in zip(gradients, others, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


def test_a_stepwise_product_has_no_second_derivatives() -> None:
    matrix = double(2, 3, 4)
    loss = StepwiseProduct(matrix, 1)(double(2, 1, 3)).square().sum()
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(loss, matrix, create_graph=True)


def test_under_autocast_a_stepwise_product_is_that_of_bfloat16() -> None:
    matrix, x = torch.randn(2, 3, 4, requires_grad=True), torch.randn(1, 2, 1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        found = StepwiseProduct(matrix, 1)(x[0])
        assert found.dtype is torch.bfloat16
        assert torch.equal(found, x[0] @ matrix)
    found.float().sum().backward()
    assert matrix.grad is not None
    assert matrix.grad.dtype is torch.float32
