"""A tiny model and a batch, shared by the tests of loss, REINFORCE and optimizer."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

PAD = 0
SIZE, TOKENS = 5, 11


class Hidden(NamedTuple):
    hidden: Tensor
    choices: None = None


class TinyModel(nn.Module):
    """A model whose target positions see their own token and the mean of the source."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(TOKENS, SIZE, dtype=torch.float64)
        self.output = nn.Linear(SIZE, TOKENS, dtype=torch.float64)

    def features(
        self, src: Tensor, src_mask: Tensor, tgt_in: Tensor, src_lengths: Tensor | None = None
    ) -> Hidden:
        memory = (self.embedding(src) * src_mask.unsqueeze(2)).sum(dim=1) / src_mask.sum(dim=1, keepdim=True)
        return Hidden(torch.tanh(self.embedding(tgt_in) + memory.unsqueeze(1)))


def batch() -> tuple[Tensor, ...]:
    """Build four pairs; three have padded sources or targets, and one target is the end of sentence alone."""
    generator = torch.Generator().manual_seed(4)
    src_mask = torch.arange(6) < torch.tensor([[6], [2], [3], [1]])
    tgt_mask = torch.arange(5) < torch.tensor([[4], [5], [1], [2]])
    src, tgt_in, tgt_out = (torch.randint(1, TOKENS, (4, size), generator=generator) for size in (6, 5, 5))
    return src * src_mask, src_mask, tgt_in * tgt_mask, tgt_out * tgt_mask, tgt_mask


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
