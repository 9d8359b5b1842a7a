"""Our own dropout: the shares and scales of torch's, its gradient, and the generator that a run saves."""

import pytest
import torch

from transformer.dropout import LEVELS, Dropout

SHAPES = ((1_003, 257), (7, 30_001), (200_001,))
"""None of them a multiple of the four entries that share a random number."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_share_is_dropped_and_the_mean_kept(
    shape: tuple[int, ...], probability: float, dtype: torch.dtype
):
    torch.manual_seed(1)
    out = Dropout(probability)(torch.ones(shape, dtype=dtype))
    assert out.shape == shape
    assert out.dtype == dtype
    dropped = (out == 0).double().mean().item()
    n = out.numel()
    assert abs(dropped - probability) < 5 * (probability * (1 - probability) / n) ** 0.5 + 1 / LEVELS
    kept = out[out != 0].double()
    assert (kept - 1 / (1 - probability)).abs().max() < 0.01 / (1 - probability)
    if dtype != torch.bfloat16:  # its scale is rounded
        assert kept.unique().numel() == 1
        assert kept[0].item() * (1 - round(probability * LEVELS) / LEVELS) == pytest.approx(1, abs=1e-6)


def test_entries_fall_out_one_by_one_wherever_they_stand():
    """No two of the four that share a number are tied, nor rows, nor columns, nor calls."""
    torch.manual_seed(2)
    kept = torch.stack([(Dropout(0.5)(torch.ones(400, 64)) != 0).double() for _ in range(50)]).flatten(0, 1)
    correlation = torch.corrcoef(kept.t()) - torch.eye(64)
    assert correlation.abs().max() < 5 / len(kept) ** 0.5
    assert (kept.mean(0) - 0.5).abs().max() < 2.5 / len(kept) ** 0.5


def test_the_gradient_passes_where_the_entry_did():
    torch.manual_seed(3)
    x = torch.randn(33, 5, dtype=torch.float64, requires_grad=True)
    out = Dropout(0.3)(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad * x, out)


def test_the_same_generator_gives_the_same_mask():
    x = torch.ones(1_000)
    torch.manual_seed(4)
    state = torch.get_rng_state()
    first, second = Dropout(0.5)(x), Dropout(0.5)(x)
    torch.set_rng_state(state)
    assert torch.equal(Dropout(0.5)(x), first)
    assert not torch.equal(first, second)


def test_nothing_is_dropped_in_evaluation_or_at_0():
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
