"""minGRU and minLSTM: the scan against a loop, the cells in long and extreme cases, precision."""

import pytest
import torch
from torch import Tensor

from seq2seq import Seq2SeqConfig
from seq2seq.cells import MIN_CELLS, MinCell
from seq2seq.min_rnn import linear_scan
from seq2seq.stack import RecurrentStack
from tests.kits.recurrent import close, double


def loop(decay: Tensor, added: Tensor) -> Tensor:
    h, steps = torch.zeros_like(added[0]), []
    for a, b in zip(decay, added, strict=True):
        h = a * h + b
        steps.append(h)
    return torch.stack(steps)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 8, 9, 33])
def test_a_scan_equals_the_loop_and_its_gradients(steps: int) -> None:
    decay, added = double(steps, 2, 3), double(steps, 2, 3)
    scanned, expected = linear_scan(decay.sigmoid(), added), loop(decay.sigmoid(), added)
    close(scanned, expected)
    weight = torch.randn_like(expected)
    ours, theirs = (
        torch.autograd.grad((out.sin() * weight).sum(), (decay, added)) for out in (scanned, expected)
    )
    for left, right in zip(ours, theirs, strict=True):
        close(left, right)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_a_long_scan_in_fp32_is_as_exact_as_the_loop(scale: float) -> None:
    """2,000 steps; with a scale of 30 most factors are near 0 or 1, and products of factors become 0."""
    torch.manual_seed(0)
    gate, candidate = scale * torch.randn(2_000, 2, 8), torch.randn(2_000, 2, 8)
    parts = (-gate).sigmoid(), gate.sigmoid() * candidate
    exact = loop(*(part.double() for part in parts))
    torch.testing.assert_close(linear_scan(*parts).double(), exact, rtol=0, atol=2e-5)
    decay, added = (part.requires_grad_() for part in parts)
    linear_scan(decay, added).square().mean().backward()
    assert all(part.grad is not None and part.grad.isfinite().all() for part in parts)


def test_gates_that_round_to_0_still_share_the_state() -> None:
    """f = i = 1e-44 in minLSTM: in fp32 0 / 0, here a half; and a forget gate e times as large."""
    cell = MinCell(1, 1, MIN_CELLS["min-lstm"])
    decay, added = cell.split(torch.tensor([[-120.0, -120.0, 3.0], [-121.0, -120.0, 3.0]]))
    share = torch.tensor([0.5, torch.e / (1 + torch.e)])
    torch.testing.assert_close(decay[:, 0], share)
    torch.testing.assert_close(added[:, 0], 3 * (1 - share))


def test_norms_bound_the_output_whatever_the_weights() -> None:
    """What they are for: without them the output of three layers grows like the cube of the weights."""
    scales = []
    for pre_norm in (False, True):
        config = Seq2SeqConfig(
            cell="min-gru", num_layers=3, embedding_size=6, hidden_size=8, pre_norm=pre_norm
        )
        rnn, x = RecurrentStack(config, 6, 8).eval(), torch.randn(9, 4, 6)
        for name, parameter in rnn.named_parameters():
            if "weight" in name:
                parameter.data.mul_(100)
        scales.append(float(rnn(x)[0].detach().square().mean().sqrt()))
    assert scales[0] > 1e5
    assert scales[1] == pytest.approx(1, abs=1e-3)
