"""Who may attend to whom: bool, True = may be attended. Shapes: B sentences, H heads, Q queries, S keys."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def past(length: int, device: torch.device) -> Tensor:
    """Let position t attend to 0, ..., t: (T, T)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def prefix(src_mask: Tensor, tgt_len: int) -> Tensor:
    """Let a source followed by its target be one sequence: (B, 1, S + T, S + T).

    All see the real source tokens of src_mask (B, S); a target position also sees the target up to itself,
    a source position nothing of the target.
    """
    src_len = src_mask.size(1)
    target = torch.arange(src_len + tgt_len, device=src_mask.device) >= src_len
    source = pad(src_mask, (0, tgt_len), value=False)
    return source[:, None, None, :] | (target & past(len(target), target.device))


def restrict(mask: Tensor, allowed: Tensor, real: Tensor | None = None) -> Tensor:
    """Join the mask of a self-attention, which broadcasts to (B, 1, S, S), and one that a caller gives.

    Args:
        mask: what can be attended at all.
        allowed: what the caller allows of it, (S, S), (B, S, S) or (B, H, S, S).
        real: queries that count, broadcasting to (B, 1, S, 1), all if left out; the others keep to ``mask``.

    Raises:
        ValueError: ``allowed`` is no such mask, or it leaves a query that counts nothing to attend to.
    """
    size = mask.size(-1)
    if allowed.dtype != torch.bool or allowed.shape[-2:] != (size, size):
        raise ValueError(
            f"a general mask must be bool, True = may be attended, and end in ({size}, {size}): got "
            f"{allowed.dtype} of shape {tuple(allowed.shape)}"
        )
    if allowed.dim() == 3:
        allowed = allowed.unsqueeze(1)
    joined = mask & (allowed if real is None else allowed | ~real)
    if not joined.any(-1).all():
        raise ValueError("the mask leaves a position nothing to attend to: allow each a real token at least")
    return joined
