"""One update of the weights."""

import pytest
import torch

from compare.training.loss import TranslationLoss
from compare.training.step import update_weights
from tests.kits.loss import TinyModel


@pytest.mark.parametrize(("clip_norm", "factor"), [(1.0, 1 / 5), (5.0, 1.0), (8.0, 1.0), (0.0, 1.0)])
def test_gradients_are_scaled_down_to_the_norm_and_not_at_all_with_0(clip_norm: float, factor: float):
    """With plain descent at rate 1, the weights change by the gradient, here of norm 5."""
    model = TinyModel().double()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    gradients = [torch.ones_like(parameter) for parameter in before]
    length = sum(gradient.numel() for gradient in gradients) ** 0.5
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient * 5 / length
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    norm = update_weights(TranslationLoss(model, 0.0), optimizer, clip_norm)
    assert float(norm) == pytest.approx(5.0)
    for parameter, old in zip(model.parameters(), before, strict=True):
        change = torch.full_like(old, -5 / length * factor)
        torch.testing.assert_close(parameter.detach() - old, change, rtol=1e-5, atol=1e-9)
        assert parameter.grad is None
