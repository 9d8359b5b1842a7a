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
    length = src_len + tgt_len
    is_target = torch.arange(length, device=src_mask.device) >= src_len
    real_source = pad(src_mask, (0, tgt_len), value=False)
    return real_source[:, None, None, :] | (is_target & causal_mask(length, is_target.device))


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
    return restrict(mask, allowed if real is None else allowed | ~real)


def restrict(mask: Tensor, allowed: Tensor) -> Tensor:
    """Intersect two masks that broadcast to (B, H, Q, S).

    Raises:
        ValueError: a query has nothing left to attend to.
    """
    combined = mask & allowed
    if has_checkable_values(combined):
        message = "the mask leaves a position nothing to attend to: allow at least one real token for each"
        require(combined.any(-1).all(), message)
    return combined


def general_mask(allowed: Tensor, sentences: int, heads: int) -> Tensor:
    """Return a mask of self-attention that a caller passes in as bool.

    Args:
        allowed: True or 1 where attention is allowed, (L, L), (B, L, L) or (B, H, L, L).
        sentences: B; a mask may also have 1 there.
        heads: H; a mask may also have 1 there.

    Raises:
        ValueError: the mask is for another number of sentences or heads, or has values other than 0 and 1.
    """
    leading = allowed.shape[:-2]
    if len(leading) > 2 or any(n not in (1, m) for n, m in zip(leading, (sentences, heads), strict=False)):
        raise ValueError(
            f"allowed must be (L, L), (B, L, L) or (B, H, L, L) for B = {sentences} sentences and H = "
            f"{heads} heads: got {tuple(allowed.shape)}"
        )
    if allowed.dtype == torch.bool:
        return allowed
    is_one = allowed == 1
    if has_checkable_values(allowed):
        message = "allowed must be bool, or 1 where attention is allowed and 0 elsewhere: got other values"
        require((is_one | (allowed == 0)).all(), f"{message} (an additive mask becomes one by `mask == 0`)")
    return is_one


def is_traced() -> bool:
    """Return whether torch.compile or torch.export is tracing the model, which then reads no values."""
    return torch.compiler.is_compiling()


def has_checkable_values(mask: Tensor) -> bool:
    """Return whether values can be checked: on CPU and CUDA, outside torch.compile."""
    if is_traced():
        return False
    return mask.device.type in ("cpu", "cuda") and type(mask) is Tensor  # a FakeTensor has no values


def require(condition: Tensor, message: str) -> None:
    """Raise a ValueError unless ``condition`` (scalar) holds; on CUDA assert it without waiting."""
    if condition.device.type == "cuda":
        torch._assert_async(condition, message)
    elif not condition:
        raise ValueError(message)


MASK_RULE = (
    "src_mask must be True or 1 at the real tokens of a sentence, at least one, then False or 0 at padding"
)


def real_tokens(src: Tensor, src_mask: Tensor | None) -> Tensor:
    """Return the source mask as bool; reject masks that the model would misread.

    Values are checked on a CPU, and on CUDA by a device-side assertion, which does not wait for the device.
    Inside ``torch.compile`` only the shape is checked.

    Args:
        src: token ids, (B, S).
        src_mask: True or 1 at real tokens, which come first, at least one per sentence, (B, S). None means
            that all tokens are real.

    Returns:
        The mask, bool, (B, S); ``src_mask`` itself if it is bool.

    Raises:
        ValueError: the mask has another shape, values other than 0 and 1, padding before a real token, or a
            sentence without real tokens.
    """
    if src.dim() != 2 or src.size(1) == 0:
        raise ValueError(f"src must be token ids of shape (sentences, tokens >= 1): got {tuple(src.shape)}")
    if src_mask is None:
        return torch.ones_like(src, dtype=torch.bool)
    if src_mask.shape != src.shape:
        raise ValueError(
            f"src_mask must have the shape of src, {tuple(src.shape)}: got {tuple(src_mask.shape)}; pass "
            "`src != pad_id`, or None if no token is padding"
        )
    real = src_mask if src_mask.dtype == torch.bool else src_mask == 1
    if has_checkable_values(src_mask):
        valid = (real[:, :-1] >= real[:, 1:]).all(1) & real[:, 0]  # (B,)
        if real is not src_mask:
            valid &= (real | (src_mask == 0)).all(1)
        if src_mask.is_cuda:
            torch._assert_async(valid.all(), MASK_RULE)
        elif not valid.all():
            row = int(valid.int().argmin())
            raise ValueError(
                f"{MASK_RULE}: row {row} begins with {src_mask[row, :8].tolist()}; pad on the right; pass "
                "`~mask` if True marks padding (nn.MultiheadAttention), `mask == 0` for an additive mask"
            )
    return real


def check_target(src: Tensor, tgt_in: Tensor) -> None:
    """Raise a ValueError unless ``tgt_in`` is token ids (B, T) for the sentences of src (B, S)."""
    if tgt_in.dim() != 2 or tgt_in.size(0) != src.size(0):
        raise ValueError(
            f"tgt_in must be token ids of shape (sentences, tokens) with the sentences of src, "
            f"{tuple(src.shape)}: got {tuple(tgt_in.shape)}"
        )
