"""Packing on the host, against torch's."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq.fast import plan_packing

CASES = [([6, 2, 4, 1], 6), ([1], 1), ([3, 3, 3], 3), ([1, 5, 5, 2], 8)]


@pytest.mark.parametrize(("lengths", "size"), CASES)
def test_packing_is_that_of_torch(lengths: list[int], size: int):
    host = torch.tensor(lengths)
    x = torch.randn(len(lengths), size, 3, dtype=torch.float64)
    expected = pack_padded_sequence(x, host, batch_first=True, enforce_sorted=False)
    packing = plan_packing(host, size, x.device)
    found = packing.pack(x)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    padded, _ = pad_packed_sequence(expected, batch_first=True, total_length=size)
    assert torch.equal(packing.unpack(found, size), padded)


@pytest.mark.parametrize(("lengths", "size"), CASES)
def test_gradients_pass_through_both_ways(lengths: list[int], size: int):
    host = torch.tensor(lengths)
    x = torch.randn(len(lengths), size, 3, dtype=torch.float64, requires_grad=True)
    packing = plan_packing(host, size, x.device)
    weight = torch.randn(x.shape, dtype=torch.float64)
    (packing.unpack(packing.pack(x), size) * weight).sum().backward()
    mask = torch.arange(size) < host.unsqueeze(1)
    assert torch.equal(x.grad, weight * mask.unsqueeze(2))
