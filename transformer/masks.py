"""Attention masks: bool, True = may be attended.

Shapes: B sentences, H heads, S source and T target positions, L positions of any sequence.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Build the (L, L) mask under which position t attends to positions 0 to t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def prefix_mask(src_mask: Tensor, tgt_len: int) -> Tensor:
    """Build the mask of a source followed by its target: Raffel et al. 2020, figure 3, right.

    Every position attends to the real source tokens. A target position also attends to the target up to
    itself; a source position does not attend to the target.

    Args:
        src_mask: True at real source tokens, (B, S).
        tgt_len: number of target positions T.

    Returns:
        The mask, (B, 1, S + T, S + T).
    """
    src_len = src_mask.size(1)
    is_target = torch.arange(src_len + tgt_len, device=src_mask.device) >= src_len
    real_source = pad(src_mask, (0, tgt_len), value=False)
    return real_source[:, None, None, :] | (is_target & causal_mask(len(is_target), is_target.device))


def combine_masks(mask: Tensor, allowed: Tensor, real: Tensor | None = None) -> Tensor:
    """Intersect the mask of a self-attention with a mask given by the caller.

    Args:
        mask: positions that may be attended at all, broadcasting to (B, 1, L, L).
        allowed: the caller's mask, (L, L), (B, L, L) or (B, H, L, L).
        real: True at queries to which ``allowed`` applies, broadcasting to (B, 1, L, 1). The other queries
            (padding) keep ``mask``. None applies ``allowed`` to all.

    Returns:
        The combined mask, broadcasting to (B, H, L, L).

    Raises:
        ValueError: ``allowed`` has the wrong type or shape, or a query has nothing left to attend to.
    """
    size = mask.size(-1)
    if allowed.dtype != torch.bool or allowed.shape[-2:] != (size, size):
        raise ValueError(
            f"a general mask must be bool, True = may be attended, and end in ({size}, {size}): got "
            f"{allowed.dtype} of shape {tuple(allowed.shape)}"
        )
    if allowed.dim() == 3:
        allowed = allowed.unsqueeze(1)
    combined = mask & (allowed if real is None else allowed | ~real)
    if not combined.any(-1).all():
        raise ValueError(
            "the mask leaves a position nothing to attend to: allow at least one real token for each"
        )
    return combined
