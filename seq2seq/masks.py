"""Masks of source and target, and whether a program is being traced."""

import torch
from torch import Tensor

# Whether torch records operations to repeat them later: the host must then read no values of tensors.


def is_traced() -> bool:
    """Return whether torch.compile is tracing the model."""
    return torch.compiler.is_compiling()


def is_recorded(device: torch.device) -> bool:
    """Return whether the model is traced, or its kernels on ``device`` are captured in a CUDA graph."""
    return is_traced() or (device.type == "cuda" and torch.cuda.is_current_stream_capturing())


# Check of the source mask that a caller passes in.
#
# Shapes: B sentences, S source positions.


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
        valid = real[:, 0].all() & (real[:, :-1] >= real[:, 1:]).all()
        if real is not src_mask:
            valid &= (real | (src_mask == 0)).all()
        if src_mask.is_cuda:
            torch._assert_async(valid, "src_mask must be 1 at real tokens, then 0 at padding, per sentence")
        elif not valid:
            raise ValueError(_describe_fault(real, src_mask))
    return real


def check_lengths(on_host: Tensor, lengths: Tensor) -> None:
    """Reject lengths that are not those of the mask, whose last words the encoder would not read.

    Values are checked where the mask is on the CPU; on a GPU that would wait for it.

    Args:
        on_host: what is given, (B,), on the CPU.
        lengths: real tokens of each sentence by the mask, (B,).

    Raises:
        ValueError: another shape, place or number.
    """
    if on_host.shape != lengths.shape or on_host.device.type != "cpu":
        raise ValueError(
            f"src_lengths must be one number per sentence, of shape {tuple(lengths.shape)} and on the CPU: "
            f"got shape {tuple(on_host.shape)} on {on_host.device}"
        )
    if has_checkable_values(lengths) and lengths.device.type == "cpu" and not torch.equal(on_host, lengths):
        raise ValueError(
            f"src_lengths must be the real tokens of src_mask, end of sentence included, {lengths.tolist()}: "
            f"got {on_host.tolist()}"
        )


def check_target(src: Tensor, tgt_in: Tensor) -> None:
    """Reject targets that are not one row of token ids per source sentence.

    Args:
        src: source token ids, (B, S).
        tgt_in: target token ids, (B, T).

    Raises:
        ValueError: another shape.
    """
    if tgt_in.dim() != 2 or tgt_in.size(0) != src.size(0):
        raise ValueError(
            f"tgt_in must be token ids of shape (sentences, tokens) with the sentences of src, "
            f"{tuple(src.shape)}: got {tuple(tgt_in.shape)}"
        )


def _describe_fault(real: Tensor, src_mask: Tensor) -> str:
    """Describe the first sentence whose mask breaks a rule, and the remedy."""
    other = (src_mask != real).nonzero()
    if len(other):
        row, position = other[0].tolist()
        return (
            f"src_mask must be bool, or 1 at real tokens and 0 at padding: row {row} holds "
            f"{src_mask[row, position].item()} at position {position}; an additive mask (0 and -inf) becomes "
            "such a mask by `src_mask == 0`"
        )
    empty = (~real.any(1)).nonzero()
    if len(empty):
        return (
            f"src_mask must mark at least one real token per sentence: row {int(empty[0])} has none; drop "
            "this sentence, or give it an end-of-sentence token"
        )
    row = int((real[:, :-1] < real[:, 1:]).any(1).nonzero()[0])
    return (
        f"src_mask must mark real tokens first and padding after them: row {row} has padding before a real "
        "token; pad on the right, and pass `~src_mask` if True marks padding (nn.MultiheadAttention)"
    )


def has_checkable_values(mask: Tensor) -> bool:
    """Return whether values can be checked: on CPU and CUDA, outside torch.compile."""
    if is_traced():
        return False
    return mask.device.type in ("cpu", "cuda") and type(mask) is Tensor  # a FakeTensor has no values
