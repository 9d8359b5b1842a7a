"""Search of a forced length, so that the cost of a batch does not depend on the weights.

Natural lengths need a trained model; the results of a run hold the speed of decoding those.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from compare.decoding.batch_search import SPECIAL
from compare.decoding.search import Hypothesis, search

if TYPE_CHECKING:
    from compare.models.registry import Model

IMPOSSIBLE = -1e4
"""Logit far below all others, representable in fp32 and bf16."""


def force_length(model: "Model") -> None:
    """Make EOS impossible before a hypothesis's limit, by the output bias; put the model in eval mode."""
    output = model.eval().output
    bias = torch.zeros_like(output.weight[:, 0]) if output.bias is None else output.bias.detach()
    bias[SPECIAL.eos] = IMPOSSIBLE
    output.bias = nn.Parameter(bias)


def search_forced(
    model: "Model", src: Tensor, src_mask: Tensor, *, steps: int, beam_size: int
) -> list[Hypothesis]:
    """Run the beam search of translation with hypotheses of exactly ``steps`` tokens, EOS included.

    A length penalty would change nothing: it only decides between hypotheses of different length.

    Args:
        model: one prepared by ``force_length``.
        src: source ids (B, S).
        src_mask: True at real tokens (B, S).
        steps: tokens of every hypothesis, at least 1.
        beam_size: hypotheses per sentence.

    Returns:
        The best hypothesis of each sentence.
    """
    limits = torch.full((src.size(0),), steps - 1)
    return search(model, src, src_mask, limits=limits, special=SPECIAL, beam_size=beam_size)
