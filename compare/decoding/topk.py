"""The best continuations of hypotheses, with ties in a fixed order.

Shapes: B sentences, K hypotheses each, V vocabulary.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 64
"""Size of the blocks of adjacent vocabulary entries whose maxima are compared before single entries."""


def is_synchronous(device: torch.device) -> bool:
    """Return whether results are there when a call returns, so that reading a value waits for nothing."""
    return device.type == "cpu"


def best_continuations(scores: Tensor, logp: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the ``count`` largest sums of scores (B, K) and logp (B, K, V) per sentence.

    Ties go to the lowest hypothesis k, then to the lowest token v. Only the ``count`` blocks with the largest
    maxima are searched, since an entry of any other block is preceded by these maxima. Taking maxima costs a
    tenth of sorting.

    Returns:
        The sums in descending order, their hypotheses k and their tokens v, (B, count) each.
    """
    size = logp.size(2)
    if size % BLOCK:  # pad copies the tensor even if there is nothing to add
        logp = pad(logp, (0, -size % BLOCK), value=float("-inf"))
    width = logp.size(2)
    blocks = logp.view(len(logp), -1, BLOCK)  # (B, K * blocks per hypothesis, BLOCK)
    block_scores = scores.repeat_interleave(width // BLOCK, dim=1)
    chosen = _stable_topk(blocks.amax(2) + block_scores, min(count, blocks.size(1)))[1].sort(dim=1).values
    sums = blocks.gather(1, chosen.unsqueeze(2).expand(-1, -1, BLOCK))
    sums = sums + block_scores.gather(1, chosen).unsqueeze(2)
    best, index = _stable_topk(sums.flatten(1), min(count, scores.size(1) * size))
    position = chosen.gather(1, index // BLOCK) * BLOCK + index % BLOCK  # k * width + v
    return best, position // width, (position % width).clamp(max=size - 1)  # padding has score -inf


def _stable_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the ``count`` largest values of the last dimension, in descending order, and their indices.

    Equal values are ordered by index. ``torch.topk`` leaves open the order of equal values, and which of them
    it returns if they do not all fit. One value more than needed shows the latter case, which is rare: these
    rows are sorted as a whole. A GPU sorts all rows: that takes less time than to wait for the answer.
    """
    if count == 1:
        best = values.max(dim=-1, keepdim=True)  # documented to return the first of equal values
        return best.values, best.indices
    if not is_synchronous(values.device):
        top, index = values.sort(stable=True, descending=True)
        return top[..., :count], index[..., :count]
    size = values.size(-1)
    top, index = values.topk(min(count + 1, size))
    if size > count:
        tied = (top[..., count - 1] == top[..., count]) & top[..., count].isfinite()
        if tied.any():
            top[tied], index[tied] = (
                part[..., : count + 1] for part in values[tied].sort(stable=True, descending=True)
            )
        top, index = top[..., :count], index[..., :count]
    by_index = index.argsort(dim=-1)
    top, index = top.gather(-1, by_index), index.gather(-1, by_index)
    order = top.argsort(dim=-1, descending=True, stable=True)
    return top.gather(-1, order), index.gather(-1, order)
