"""The description of a preset leaves the caller's random numbers alone."""

import torch

from compare import describe_preset


def test_describing_draws_no_random_number():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    describe_preset("lstm-lm", 50)
    assert torch.equal(torch.rand(3), expected)
