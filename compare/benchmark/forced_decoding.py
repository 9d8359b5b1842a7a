"""Search of a forced length: a batch costs the same whatever the weights say.

Natural lengths need a trained model; the table of a run has the speed of decoding those.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from compare.decoding.search import Hypothesis, search
from compare.decoding.translator import SPECIAL

if TYPE_CHECKING:
    from compare.models.registry import Model

IMPOSSIBLE = -1e4
"""A logit that no other comes near; fp32 and bf16 hold it."""


def force_length(model: "Model") -> None:
    """Make the end of sentence impossible before a hypothesis' limit, by a bias; sets the model to decode."""
    output = model.eval().output
    bias = torch.zeros_like(output.weight[:, 0]) if output.bias is None else output.bias.detach()
    bias[SPECIAL.eos] = IMPOSSIBLE
    output.bias = nn.Parameter(bias)


def search_forced(
    model: "Model", src: Tensor, src_mask: Tensor, *, steps: int, beam_size: int, alpha: float
) -> list[Hypothesis]:
    """Search src (B, S), under src_mask (B, S), as translation does, but for ``steps`` tokens, EOS the last.

    Args:
        model: one whose length is forced.
        src: ids.
        src_mask: True at real tokens.
        steps: tokens of every hypothesis, at least 1.
        beam_size: hypotheses kept for each sentence.
        alpha: exponent of the length penalty.
    """
    limits = torch.full((src.size(0),), steps - 1, device=src.device)
    return search(model, src, src_mask, limits=limits, special=SPECIAL, beam_size=beam_size, alpha=alpha)
